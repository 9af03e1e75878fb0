import type { ChatMessage } from '@warmpath/core';
import { checkContent, invalid } from '../prompt-view.js';
import { contentTexts, elementsText, isObject, textRole } from './content-texts.js';
import { ENGINE_PROMPT_FIELDS, type PromptApi } from './prompt-api.js';
import type { JsonPath, RequestMessage, RequestText } from './request-texts.js';

/** OpenAI's Responses. */
export const responsesApi = {
  name: 'responses',
  path: '/v1/responses',
  promptFields: [
    'tools',
    'tool_choice',
    'text',
    'reasoning',
    'prompt',
    'previous_response_id',
    'conversation',
    ...ENGINE_PROMPT_FIELDS,
  ],
  conversation: {
    opening: 'instructions',
    messages: 'input',
    takesText: true,
    hasSystemMessages: true,
    partType: 'input_text',
    read: viewItem,
  },
  // OpenAI refuses fewer.
  answerLimit: { field: 'max_output_tokens', least: 16 },
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
} as const satisfies PromptApi;

function readItem(item: unknown, place: JsonPath): RequestMessage {
  if (!isObject(item)) return { role: 'user', place, texts: [] };
  const { type, role: given, content, output, results } = item;
  if (type === 'file_search_call') return { role: 'tool', place, texts: searchTexts(results, [...place, 'results']) };
  if (isResult(type)) return { role: 'tool', place, texts: contentTexts(output, [...place, 'output'], 'tool') };
  const role = given === undefined && type !== undefined && type !== 'message' ? 'assistant' : textRole(given);
  return { role, place, texts: contentTexts(content, [...place, 'content'], role) };
}

/** What OpenAI's search of files found, where the client sends it again. */
function searchTexts(results: unknown, place: JsonPath): readonly RequestText[] {
  if (!Array.isArray(results) || results.length === 0) return [];
  return [elementsText(results, [...place, { from: 0, to: results.length - 1 }], 'tool')];
}

function isResult(type: unknown): boolean {
  return typeof type === 'string' && type.endsWith('_output');
}

/** An item as a message: a call of a tool is the assistant's, its result a tool's, and a text alone the user's. */
function viewItem(value: unknown, place: number): ChatMessage {
  if (typeof value === 'string') return { role: 'user', content: value };
  const path = `input[${place}]`;
  if (!isObject(value)) throw invalid(path, 'an object was expected');
  const { role, type, content, output, ...rest } = value;
  if (role !== undefined) {
    if (typeof role !== 'string') throw invalid(`${path}.role`, 'a string was expected');
    checkContent(content, `${path}.content`);
    return value as ChatMessage;
  }
  if (!isResult(type)) return { ...value, role: 'assistant' } as ChatMessage;
  return { ...rest, role: 'tool', type, content: output as string };
}
