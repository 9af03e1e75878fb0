import { contentTexts, isObject, textRole } from './content-texts.js';
import type { PromptApi } from './prompt-api.js';
import type { RequestMessage } from './request-texts.js';

/** OpenAI's Responses. */
export const responsesApi: PromptApi = {
  name: 'responses',
  path: '/v1/responses',
  messages: ({ instructions, input }) => {
    const read: RequestMessage[] = [];
    if (typeof instructions === 'string') {
      const place = ['instructions'];
      read.push({ role: 'system', place, texts: [{ role: 'system', text: instructions, place }] });
    }
    if (typeof input === 'string') {
      read.push({ role: 'user', place: ['input'], texts: [{ role: 'user', text: input, place: ['input'] }] });
    }
    if (!Array.isArray(input)) return read;
    for (const [position, item] of input.entries()) read.push(readItem(item, ['input', position]));
    return read;
  },
};

function readItem(item: unknown, place: readonly (string | number)[]): RequestMessage {
  if (!isObject(item)) return { role: 'user', place, texts: [] };
  const { type, role: given, content, output } = item;
  if (typeof type === 'string' && type.endsWith('_output')) {
    return { role: 'tool', place, texts: contentTexts(output, [...place, 'output'], 'tool') };
  }
  const role = given === undefined && type !== undefined && type !== 'message' ? 'assistant' : textRole(given);
  return { role, place, texts: contentTexts(content, [...place, 'content'], role) };
}
