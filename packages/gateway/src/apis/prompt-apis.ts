import type { IncomingHttpHeaders } from 'node:http';
import { type ChatMessage, recognise, WarmpathError } from '@warmpath/core';
import type { ContentPart } from '@warmpath/core/internal';
import { messagesErrorType } from '@warmpath/translate';
import { invalid } from '../json/json-body.js';
import { isObject, type JsonObject } from '../json/json-scanner.js';
import { checkContent, ENGINE_PROMPT_FIELDS, type PromptApi, readMessage } from './prompt-view.js';
import type { ElementRange, JsonPath, RequestMessage, RequestText, TextPlace, TextRole } from './request-texts.js';

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

/** The texts of a content: a string or an array of parts. `textOf` reads parts that are not plain text. */
function contentTexts(
  content: unknown,
  place: JsonPath,
  role: TextRole,
  textsOfPart: (part: JsonObject, place: JsonPath) => readonly RequestText[] = () => [],
): readonly RequestText[] {
  if (typeof content === 'string') return [{ role, text: content, place }];
  if (!Array.isArray(content)) return [];
  const ranges = elementRanges(content, (part) => textsOfPart(part, place).some(hasMarkedDocuments));
  let next = 0;
  return content.flatMap((part: unknown, position) => {
    while (next < ranges.length && ranges[next]!.to < position) next++;
    const range = ranges[next];
    if (range !== undefined && range.from <= position)
      return range.from === position ? [elementsText(content, [...place, range], role)] : [];
    const at = [...place, position];
    if (!isObject(part)) return [];
    const { type, text } = part;
    const isText = TEXT_PARTS.has(type as string) && typeof text === 'string';
    return isText ? [{ role, text, place: [...at, 'text'] }] : textsOfPart(part, at);
  });
}

/** Types of Anthropic's document parts. */
const DOCUMENT_PARTS: ReadonlySet<string> = new Set(['search_result', 'document']);
/** Types of text sources of documents. */
const TEXT_SOURCES: ReadonlySet<unknown> = new Set(['text', 'content']);
const NO_RANGES: readonly ElementRange[] = [];

/**
 * Adjacent parts of one kind, which may change places. A part with marked documents in its text is read for these
 * instead.
 */
function elementRanges(content: readonly unknown[], isMarked: (part: JsonObject) => boolean): readonly ElementRange[] {
  const movable = content.map((part) => isMovable(part) && !isMarked(part as JsonObject));
  // Most contents have none.
  if (!movable.includes(true)) return NO_RANGES;
  const ranges: ElementRange[] = [];
  for (let from = 0; from < content.length; from++) {
    let to = from;
    while (movable[to + 1] && movable[from] && typeOf(content[to + 1]) === typeOf(content[from])) to++;
    if (to > from) ranges.push({ from, to });
    from = to;
  }
  return ranges;
}

function hasMarkedDocuments(text: RequestText): boolean {
  return recognise([text], { mode: 'marked' }).length > 0;
}

/** Whether a document part may move: it has text, no citations and no cache breakpoint. */
function isMovable(part: unknown): boolean {
  if (!isObject(part) || !DOCUMENT_PARTS.has(part['type'] as string)) return false;
  if (isCited(part) || isObject(part['cache_control'])) return false;
  const { source } = part;
  return part['type'] === 'search_result' || (isObject(source) && TEXT_SOURCES.has(source['type']));
}

/** Whether answers cite the part by its number and by positions in its text. */
function isCited({ citations }: JsonObject): boolean {
  return isObject(citations) && citations['enabled'] === true;
}

function typeOf(part: unknown): unknown {
  return isObject(part) ? part['type'] : undefined;
}

/** Document parts of an array as one JSON text. `place` ends in their range. */
function elementsText(elements: readonly unknown[], place: TextPlace, role: TextRole): RequestText {
  const { from, to } = place.at(-1) as ElementRange;
  const written = elements.slice(from, to + 1).map((element) => JSON.stringify(element));
  return { role, text: written.join(','), place, kind: 'elements' };
}

/** Types of text parts. */
const TEXT_PARTS: ReadonlySet<string> = new Set(['text', 'input_text', 'output_text']);

const ROLES: ReadonlyMap<unknown, TextRole> = new Map([
  ['system', 'system'],
  ['developer', 'system'],
  ['user', 'user'],
  ['assistant', 'assistant'],
  ['tool', 'tool'],
  ['function', 'tool'],
]);

/** The normalised role. An unknown role counts as the user's. */
function textRole(role: unknown): TextRole {
  return ROLES.get(role) ?? 'user';
}

/** The form of errors in an API. */
export interface ErrorShape {
  /** The body of an answer. */
  body(error: WarmpathError, requestId: string): object;
  /** The last SSE event of a broken stream. Begins with a blank line, which ends an incomplete event. */
  event(error: WarmpathError): string;
}

/** OpenAI's form. Streams get both `event: error` and an `error` member, because clients look for either. */
const openAIErrors: ErrorShape = {
  body: (error) => error.toOpenAI(),
  event: (error) => sse(error.toOpenAI()),
};

/** The event of the Responses API, with the `error` member that OpenAI's client looks for. */
const responsesErrors: ErrorShape = {
  body: (error) => error.toOpenAI(),
  event: (error) => {
    const { code, message, param } = error.toOpenAI().error;
    return sse({ type: 'error', code, message, param, ...error.toOpenAI() });
  },
};

/** Anthropic's form, with code, path and remedy of the error table. */
const messagesErrors: ErrorShape = {
  body: (error, requestId) => ({ ...messagesError(error), request_id: requestId }),
  event: (error) => sse(messagesError(error)),
};

/** The form for a URL, also for paths below the API's own. */
export function errorShapeOf(url: string): ErrorShape {
  if (url.startsWith(messagesApi.path)) return messagesErrors;
  return url.startsWith(responsesApi.path) ? responsesErrors : openAIErrors;
}

/** What keeps the connection of a stream alive: an event that clients of Messages know, or a comment. */
export function keepAliveOf(url: string): string {
  return url.startsWith(messagesApi.path) ? 'event: ping\ndata: {"type":"ping"}\n\n' : ': keep-alive\n\n';
}

function messagesError(error: WarmpathError): object {
  const { message, code, param, remedy } = error.toOpenAI().error;
  return { type: 'error', error: { type: messagesErrorType(error.status), message, code, param, remedy } };
}

function sse(data: object): string {
  return `\n\nevent: error\ndata: ${JSON.stringify(data)}\n\n`;
}

/**
 * The error for clients. Errors of the configuration or of a collection's files lose their details, which name folders
 * of the server.
 */
export function clientError(error: WarmpathError): WarmpathError {
  const isOfCollection = error.code.startsWith('WARMPATH_COLLECTION_');
  if (error.status !== 500 || !(isOfCollection || error.type === 'configuration_error')) return error;
  const path = isOfCollection ? error.path : undefined;
  return new WarmpathError(error.code, { cause: error, ...(path !== undefined && { path }) });
}

/** Status and headers, names in lower case. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
}

/** Whether the head says that events follow. */
export function isStreamHead({ headers }: ResponseHead): boolean {
  return /^text\/event-stream\b/i.test(headers['content-type'] ?? '');
}

/** Converts an engine's response into the client's. Each step may throw a WarmpathError. */
export interface ResponseBody {
  /** The head for the client; `undefined` if it is known only at the end. */
  head(head: ResponseHead): ResponseHead | undefined;
  /** Converts a chunk. Empty: the client gets nothing of it. */
  data(chunk: Buffer): Buffer | string;
  /** The rest of the response, and the head if it was not known before. */
  end(): { readonly head?: ResponseHead; readonly rest: string };
  /** The end of a broken stream. */
  broken(error: WarmpathError): string;
}

/** The engine's response without changes. */
export class UntouchedBody implements ResponseBody {
  readonly #errors: ErrorShape;

  constructor(errors: ErrorShape) {
    this.#errors = errors;
  }

  head(head: ResponseHead): ResponseHead {
    return head;
  }

  data(chunk: Buffer): Buffer {
    return chunk;
  }

  end(): { readonly rest: string } {
    return { rest: '' };
  }

  broken(error: WarmpathError): string {
    return this.#errors.event(error);
  }
}
