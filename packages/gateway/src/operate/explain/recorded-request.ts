import type { WarmpathError } from '@warmpath/core';
import { API_NAMES, type ApiName } from '../../apis/prompt-view.js';
import { BodyView, parseObject, withPlace } from '../../json/json-body.js';
import { isObject, type JsonObject } from '../../json/json-scanner.js';

/** The body of a request, and its API if the record names it. */
export interface RecordedRequest {
  readonly body: string;
  readonly object: JsonObject;
  readonly api: ApiName | undefined;
}

/** Path suffixes of the APIs. */
const PATHS: Readonly<Record<ApiName, RegExp>> = {
  chat: /\/chat\/completions$/,
  completions: /\/completions$/,
  messages: /\/messages(?:\/count_tokens)?$/,
  responses: /\/responses$/,
};
/** Members of recorded requests, and of lines of batches, that may hold the body. */
const BODIES = ['body', 'params', 'request', 'postData', 'text', 'json'];
/** Depth of a body in a record, at most. */
const MAX_DEPTH = 4;

/**
 * Reads a request: a body, or a record of one with the body inside and its path beside it (a line of a batch, an entry
 * of an HTTP archive, `{"path", "body"}`). Errors: `WARMPATH_INVALID_JSON`. O(text).
 */
export function readRecorded(text: string): RecordedRequest {
  let found: RecordedRequest = { body: text, object: parsePlaced(text), api: undefined };
  for (let depth = 0; depth < MAX_DEPTH && !isPrompt(found.object); depth++) {
    const inner = within(found);
    if (inner === undefined) break;
    found = inner;
  }
  return found;
}

function parsePlaced(text: string): JsonObject {
  try {
    return parseObject(text);
  } catch (error) {
    throw withPlace(error as WarmpathError, Buffer.from(text));
  }
}

function isPrompt(object: JsonObject): boolean {
  return ['messages', 'prompt', 'input'].some((key) => Object.hasOwn(object, key));
}

function within({ body, object, api }: RecordedRequest): RecordedRequest | undefined {
  for (const key of BODIES) {
    const value = object[key];
    if (typeof value !== 'string' && !isObject(value)) continue;
    const said = apiOfPath(object['path'] ?? object['url']) ?? api;
    if (typeof value === 'string') return { body: value, object: parseObject(value), api: said };
    return { body: new BodyView(Buffer.from(body)).raw(key)!, object: value, api: said };
  }
  return undefined;
}

function apiOfPath(url: unknown): ApiName | undefined {
  if (typeof url !== 'string') return undefined;
  const path = url.replace(/[?#].*$/s, '').replace(/\/$/, '');
  return API_NAMES.find((name) => PATHS[name].test(path));
}

/** Top-level members that only Anthropic's Messages have. */
const MESSAGES_MEMBERS = ['system', 'anthropic_version', 'anthropic_beta', 'stop_sequences', 'mcp_servers'];
/** Types of content parts that only Messages have. */
const MESSAGES_PARTS = new Set([
  'tool_use',
  'tool_result',
  'thinking',
  'redacted_thinking',
  'search_result',
  'document',
  'image',
  'server_tool_use',
  'web_search_tool_result',
]);

/** The API of a body, by members that only one API has. Default: chat completions. O(messages). */
export function apiOfBody(object: JsonObject): ApiName {
  const { messages, model, tools } = object;
  if (messages === undefined && Object.hasOwn(object, 'input')) return 'responses';
  if (messages === undefined && Object.hasOwn(object, 'prompt')) return 'completions';
  if (MESSAGES_MEMBERS.some((key) => Object.hasOwn(object, key))) return 'messages';
  if (isList(tools, (tool) => isObject(tool['input_schema']))) return 'messages';
  if (isList(messages, ({ content }) => isList(content, ({ type }) => MESSAGES_PARTS.has(type as string))))
    return 'messages';
  const isChat =
    isList(tools, (tool) => isObject(tool['function'])) ||
    isList(messages, ({ role, tool_calls: calls }) => !isTurn(role) || Array.isArray(calls));
  // `max_tokens` is required in Messages. Together with a Claude model or `thinking`, the body is for Messages.
  const isMeant = (typeof model === 'string' && /claude/i.test(model)) || Object.hasOwn(object, 'thinking');
  return isMeant && Object.hasOwn(object, 'max_tokens') && !isChat ? 'messages' : 'chat';
}

function isTurn(role: unknown): boolean {
  return role === 'user' || role === 'assistant';
}

function isList(value: unknown, test: (element: JsonObject) => boolean): boolean {
  return Array.isArray(value) && value.some((element) => isObject(element) && test(element));
}
