import type { ChatMessage } from '@warmpath/core';
import type { ContentPart } from '@warmpath/core/internal';
import { invalid } from '../json/json-body.js';
import { isObject, type JsonObject } from '../json/json-scanner.js';
import { contentTexts, elementsText, isCited, textRole } from './content-texts.js';
import { ENGINE_PROMPT_FIELDS, type PromptApi } from './prompt-api.js';
import { checkContent, readMessage } from './prompt-view.js';
import type { JsonPath, RequestMessage, RequestText, TextRole } from './request-texts.js';

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

/** OpenAI's plain completions: one prompt, or several independent ones. Token ids are no text. */
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

/** Anthropic's Messages. */
export const messagesApi = {
  name: 'messages',
  path: '/v1/messages',
  promptFields: ['tools', 'tool_choice', 'thinking', 'output_config', 'output_format', ...ENGINE_PROMPT_FIELDS],
  conversation: {
    opening: 'system',
    messages: 'messages',
    takesText: false,
    hasSystemMessages: false,
    partType: 'text',
    read: (value, place) => readMessage(value, `messages[${place}]`),
    split: { sign: '"tool_result"', type: 'tool_result', halves: splitResults },
  },
  answerLimit: { field: 'max_tokens', least: 1 },
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
} as const satisfies PromptApi;

/** Texts inside other parts: results of tools, documents in plain text, search results. */
function blockTexts(role: TextRole) {
  return (block: JsonObject, place: JsonPath): readonly RequestText[] => {
    const { type, content } = block;
    if (type === 'tool_result') return contentTexts(content, [...place, 'content'], 'tool', blockTexts('tool'));
    const texts = documentTexts(block, place, role);
    return isCited(block) ? texts.map((text) => ({ ...text, kind: 'verbatim' as const })) : texts;
  };
}

function documentTexts({ type, content, source }: JsonObject, place: JsonPath, role: TextRole): readonly RequestText[] {
  if (type === 'search_result') return contentTexts(content, [...place, 'content'], role);
  if (type !== 'document' || !isObject(source)) return [];
  if (source['type'] === 'text') return contentTexts(source['data'], [...place, 'source', 'data'], role);
  return source['type'] === 'content' ? contentTexts(source['content'], [...place, 'source', 'content'], role) : [];
}

/**
 * Anthropic puts results of tools into a user's message, before the user's words. For rendering they are two messages,
 * as in OpenAI's chat: documents go before the user's words, behind the results.
 */
function splitResults(message: ChatMessage): readonly ChatMessage[] {
  const end = resultsEnd(message);
  if (end === 0) return [message];
  const blocks = message.content as readonly ContentPart[];
  const results = { role: 'tool', content: blocks.slice(0, end).flatMap(resultParts) };
  return end === blocks.length ? [results] : [results, { ...message, content: blocks.slice(end) }];
}

/** Number of parts of a user's message up to its last tool result. */
function resultsEnd({ role, content }: ChatMessage): number {
  if (role !== 'user' || !Array.isArray(content)) return 0;
  return (content as readonly ContentPart[]).findLastIndex((block) => block?.type === 'tool_result') + 1;
}

/** A tool result as parts whose text can be counted. Only read, never written. */
function resultParts(block: ContentPart): readonly ContentPart[] {
  const { content, ...rest } = block;
  if (typeof content === 'string') return [{ ...rest, text: content }];
  return Array.isArray(content) ? [rest, ...(content as readonly ContentPart[])] : [block];
}

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
  // OpenAI's minimum.
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

/** Results of OpenAI's file search that the client sends again. */
function searchTexts(results: unknown, place: JsonPath): readonly RequestText[] {
  if (!Array.isArray(results) || results.length === 0) return [];
  return [elementsText(results, [...place, { from: 0, to: results.length - 1 }], 'tool')];
}

function isResult(type: unknown): boolean {
  return typeof type === 'string' && type.endsWith('_output');
}

/** An item as a message: a tool call is the assistant's, its result the tool's, a plain text the user's. */
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
