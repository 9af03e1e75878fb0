import { isObject, type JsonObject } from '../json/json-scanner.js';
import type { ApiName } from './prompt-view.js';
import type { JsonPath } from './request-texts.js';

/** A call of a tool in a request. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** As JSON or, for tools that take a text, that text. */
  readonly input: unknown;
}

/** A result of a tool that is one text. */
interface ResultText {
  readonly call: string;
  readonly text: string;
  readonly failed: boolean;
  /** The path of the string. */
  readonly place: JsonPath;
}

/** What one message, or item, holds of tools. */
export interface MessageTools {
  readonly calls: readonly ToolCall[];
  readonly results: readonly ResultText[];
}

type Reader = (message: JsonObject, place: JsonPath) => MessageTools;

const NONE: MessageTools = { calls: [], results: [] };

/** The calls and results of each message, by the API of a request. Completions have none. */
const READERS: Readonly<Record<Exclude<ApiName, 'completions'>, Reader>> = {
  chat: ({ role, content, tool_call_id: id, tool_calls: calls }, place) => ({
    calls: objectsIn(calls).flatMap(({ id, function: called }) =>
      isObject(called) ? callOf(id, called['name'], parsed(called['arguments'])) : [],
    ),
    results: role === 'tool' ? resultOf(id, content, [...place, 'content']) : [],
  }),
  messages: ({ content }, place) => {
    const parts = objectsIn(content);
    return {
      calls: parts.flatMap(({ type, id, name, input }) => (type === 'tool_use' ? callOf(id, name, input) : [])),
      results: parts.flatMap(({ type, tool_use_id: id, content: result, is_error: failed }, at) =>
        type === 'tool_result' ? resultOf(id, result, [...place, 'content', at, 'content'], failed === true) : [],
      ),
    };
  },
  responses: ({ type, call_id: id, name, arguments: json, input, output }, place) => {
    if (type === 'function_call') return { ...NONE, calls: callOf(id, name, parsed(json)) };
    if (type === 'custom_tool_call') return { ...NONE, calls: callOf(id, name, input) };
    const isResult = type === 'function_call_output' || type === 'custom_tool_call_output';
    return isResult ? { ...NONE, results: resultOf(id, output, [...place, 'output']) } : NONE;
  },
};

/** The calls and results of tools in each of the messages, which stand in the member `member`. O(messages). */
export function toolsOf(api: ApiName, messages: readonly unknown[], member: string): readonly MessageTools[] {
  if (api === 'completions') return messages.map(() => NONE);
  return messages.map((message, at) => (isObject(message) ? READERS[api](message, [member, at]) : NONE));
}

/** Parts that are no objects stay in their places. */
function objectsIn(parts: unknown): readonly JsonObject[] {
  return Array.isArray(parts) ? parts.map((part: unknown) => (isObject(part) ? part : {})) : [];
}

function callOf(id: unknown, name: unknown, input: unknown): readonly ToolCall[] {
  return typeof id === 'string' && typeof name === 'string' ? [{ id, name, input }] : [];
}

function parsed(json: unknown): unknown {
  try {
    return JSON.parse(String(json));
  } catch {
    return json;
  }
}

/** A result that is a string or one text part; others are not told. */
function resultOf(call: unknown, content: unknown, place: JsonPath, failed = false): readonly ResultText[] {
  if (typeof call !== 'string') return [];
  if (typeof content === 'string') return [{ call, text: content, failed, place }];
  const [part, ...others] = objectsIn(content);
  const text = part?.['text'];
  return others.length === 0 && typeof text === 'string' ? [{ call, text, failed, place: [...place, 0, 'text'] }] : [];
}
