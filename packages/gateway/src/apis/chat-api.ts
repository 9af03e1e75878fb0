import { contentTexts, isObject, textRole } from './content-texts.js';
import type { PromptApi } from './prompt-api.js';

/** OpenAI's chat completions. */
export const chatApi: PromptApi = {
  name: 'chat',
  path: '/v1/chat/completions',
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
