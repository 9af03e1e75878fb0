import { readMessage } from '../prompt-view.js';
import { contentTexts, isObject, textRole } from './content-texts.js';
import { ENGINE_PROMPT_FIELDS, type PromptApi } from './prompt-api.js';

/** OpenAI's chat completions. */
export const chatApi: PromptApi = {
  name: 'chat',
  path: '/v1/chat/completions',
  promptFields: [
    'tools',
    'functions',
    'tool_choice',
    'function_call',
    'response_format',
    'reasoning_effort',
    ...ENGINE_PROMPT_FIELDS,
  ],
  conversation: {
    messages: 'messages',
    takesText: false,
    hasSystemMessages: true,
    partType: 'text',
    read: (value, place) => readMessage(value, `messages[${place}]`),
  },
  answerLimit: { field: 'max_tokens', least: 1 },
  messages: ({ messages }) => {
    if (!Array.isArray(messages)) return [];
    return messages.map((message: unknown, position) => {
      const place = ['messages', position];
      const { role: given, content } = isObject(message) ? message : {};
      const role = textRole(given);
      return { role, place, texts: contentTexts(content, [...place, 'content'], role) };
    });
  },
};
