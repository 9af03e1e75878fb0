import { contentTexts, isObject, textRole } from './content-texts.js';
import type { PromptApi } from './prompt-api.js';
import type { JsonObject, JsonPath, RequestMessage, RequestText, TextRole } from './request-texts.js';

/** Anthropic's Messages. */
export const messagesApi: PromptApi = {
  name: 'messages',
  path: '/v1/messages',
  messages: ({ system, messages }) => {
    const read: RequestMessage[] = [];
    if (system !== undefined && system !== null) {
      read.push({ role: 'system', place: ['system'], texts: contentTexts(system, ['system'], 'system') });
    }
    if (!Array.isArray(messages)) return read;
    for (const [position, message] of messages.entries()) {
      const place = ['messages', position];
      const { role: given, content } = isObject(message) ? message : {};
      const role = textRole(given);
      read.push({ role, place, texts: contentTexts(content, [...place, 'content'], role, blockTexts(role)) });
    }
    return read;
  },
};

/** Texts inside of blocks: results of tools, documents in plain text, search results. */
function blockTexts(role: TextRole) {
  return (block: JsonObject, place: JsonPath): readonly RequestText[] => {
    const { type, content, source } = block;
    if (type === 'tool_result') return contentTexts(content, [...place, 'content'], 'tool', blockTexts('tool'));
    if (type === 'search_result') return contentTexts(content, [...place, 'content'], role);
    if (type !== 'document' || !isObject(source)) return [];
    if (source['type'] === 'text' && typeof source['data'] === 'string') {
      return [{ role, text: source['data'], place: [...place, 'source', 'data'] }];
    }
    return source['type'] === 'content' ? contentTexts(source['content'], [...place, 'source', 'content'], role) : [];
  };
}
