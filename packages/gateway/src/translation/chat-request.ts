import type { Warning } from '@warmpath/core';
import type { JsonPath } from '../intake/apis/request-texts.js';
import { type JsonText, type RawJson, writeJson } from './raw-json.js';
import { arrayAt, isGiven, type RequestSource, stringAt } from './request-source.js';

/** A request in the words of chat completions. */
export interface ChatRequest {
  /** JSON. */
  readonly body: string;
  /** Members of the original that were left out. */
  readonly leftOut: readonly Warning[];
}

/** A part of a message's content, for `writeJson`. */
export interface ChatPart {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** A message, for `writeJson`. */
export interface ChatMessage {
  readonly role: string;
  readonly content: JsonText | readonly ChatPart[] | null;
  readonly [field: string]: unknown;
}

/** A call of a tool in an assistant's message. */
export interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: JsonText };
}

/** A tool, as the client wrote its schema. */
export interface ChatTool {
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    readonly description?: unknown;
    readonly parameters: RawJson | undefined;
    readonly strict?: boolean;
  };
}

/** What a request says in the words of its own API. */
export interface Translated {
  readonly messages: readonly ChatMessage[];
  readonly tool: (given: unknown, place: JsonPath) => ChatTool;
  /** Members that are said in other words. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Their names in the original; all others mean the same, or are the engine's own. */
  readonly translated: ReadonlySet<string>;
}

/** Writes a request; its key order is always the same. O(request). */
export function chatRequest(source: RequestSource, { messages, tool, fields, translated }: Translated): ChatRequest {
  const { stream, tools } = source.body;
  const body = writeJson({
    model: source.raw(['model']),
    messages,
    ...(isGiven(tools) && { tools: arrayAt(tools, ['tools']).map((given, at) => tool(given, ['tools', at])) }),
    ...fields,
    ...source.others(translated),
    ...(stream === true && { stream, stream_options: { include_usage: true } }),
  });
  return { body, leftOut: source.leftOut };
}

/** A tool that the client runs. `schema`: what the API calls its parameters. Error: `WARMPATH_INVALID_REQUEST`. */
export function functionTool(
  source: RequestSource,
  { name, description, strict }: Readonly<Record<string, unknown>>,
  place: JsonPath,
  schema: string,
): ChatTool {
  return {
    type: 'function',
    function: {
      name: stringAt(name, [...place, 'name']),
      ...(isGiven(description) && { description }),
      parameters: source.raw([...place, schema]),
      ...(typeof strict === 'boolean' && { strict }),
    },
  };
}

export function textPart(text: JsonText): ChatPart {
  return { type: 'text', text };
}

/** Parts as a message's content: one text alone is a string, which every chat template takes. */
export function contentOf(parts: readonly ChatPart[]): JsonText | readonly ChatPart[] {
  const [first] = parts;
  if (first === undefined) return '';
  return parts.length === 1 && first.type === 'text' ? (first['text'] as JsonText) : parts;
}

/** What an assistant said, thought and called in one turn. */
export interface AssistantTurn {
  readonly parts: readonly ChatPart[];
  readonly calls: readonly ToolCall[];
  readonly reasoning: readonly string[];
}

/** An assistant's message. Reasoning goes where vLLM, SGLang, llama-server and DeepSeek have it. */
export function assistantMessage({ parts, calls, reasoning }: AssistantTurn): ChatMessage {
  return {
    role: 'assistant',
    content: parts.length === 0 && calls.length > 0 ? null : contentOf(parts),
    ...(reasoning.length > 0 && { reasoning_content: reasoning.join('') }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}
