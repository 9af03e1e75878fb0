import type { ChatMessage } from '@warmpath/core';
import { ClientMessages, checkContent, invalid, placed, placeOf } from './client-messages.js';
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
  said: { opening: 'instructions', messages: 'input' },
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
  readPrompt: ({ instructions, input }, rawValue) => {
    const given = readInput(input);
    const hasInstructions = typeof instructions === 'string';
    const opening = { role: 'system', content: hasInstructions ? instructions : '' };
    // One string is one message of the user, which it only becomes in writing if something stands beside it.
    const text = typeof input === 'string' ? JSON.stringify(given) : rawValue('input')!;
    const client = new ClientMessages(given, text, (part) =>
      part.type === 'text' ? { ...part, type: 'input_text' } : part,
    );
    const viewed = given.map(viewItem);
    return {
      kind: 'chat',
      messages: hasInstructions ? [opening, ...viewed] : viewed,
      write: (rendered) => {
        const [first, ...rest] = rendered;
        const begins = hasInstructions && first !== undefined && placeOf(first) === undefined;
        const items = begins ? rest : rendered;
        const isString = typeof input === 'string' && items.length === 1 && typeof items[0]!.content === 'string';
        const written = items.map((item) => writeItem(item, given, client));
        const members = new Map([['input', isString ? JSON.stringify(items[0]!.content) : `[${written.join(',')}]`]]);
        if (begins && first !== opening) members.set('instructions', JSON.stringify(first.content));
        return members;
      },
    };
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

/** The input as items; each keeps the fields that the client gave it. */
function readInput(input: unknown): readonly ChatMessage[] {
  if (typeof input === 'string') return [placed({ role: 'user', content: input }, 0)];
  if (!Array.isArray(input)) throw invalid(['input'], 'a string or an array of items was expected');
  return input.map((item: unknown, position) => {
    if (!isObject(item)) throw invalid(['input', position], 'an object was expected');
    const { role, content } = item;
    if (role !== undefined && typeof role !== 'string') {
      throw invalid(['input', position, 'role'], 'a string was expected');
    }
    if (role !== undefined) checkContent(content, ['input', position, 'content']);
    return placed(item as ChatMessage, position);
  });
}

/** An item as a message: a call of a tool is the assistant's, its result a tool's. */
function viewItem(item: ChatMessage, place: number): ChatMessage {
  if (item.role !== undefined) return item;
  const { output, ...rest } = item as { readonly output?: unknown };
  if (!isResult(item['type'])) return placed({ ...item, role: 'assistant' }, place);
  return placed({ ...rest, role: 'tool', content: output as string }, place);
}

/** Only items with a role can have been added to. */
function writeItem(item: ChatMessage, given: readonly ChatMessage[], client: ClientMessages): string {
  const place = placeOf(item);
  return place !== undefined && given[place]!.role === undefined ? client.raw(place) : client.write(item);
}
