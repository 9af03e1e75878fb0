import { ENGINE_PROMPT_FIELDS, type PromptApi } from './prompt-api.js';
import type { RequestMessage } from './request-texts.js';

/** OpenAI's plain completions: one prompt, or several that each are answered for themselves. Token ids are no text. */
export const completionsApi: PromptApi = {
  name: 'completions',
  path: '/v1/completions',
  promptFields: ENGINE_PROMPT_FIELDS,
  conversation: undefined,
  answerLimit: { field: 'max_tokens', least: 1 },
  messages: ({ prompt }) => {
    const prompts = Array.isArray(prompt) ? prompt.map((text, at) => [text, ['prompt', at]]) : [[prompt, ['prompt']]];
    return prompts.map(([text, place]): RequestMessage => {
      return { role: 'user', place, texts: typeof text === 'string' ? [{ role: 'user', text, place }] : [] };
    });
  },
};
