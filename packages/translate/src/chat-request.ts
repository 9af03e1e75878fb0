import { type JsonText, RawJson, type RequestValue } from './request-value.js';

/** A request as chat completions have it. */
export interface ChatRequest {
  /** JSON. */
  readonly body: string;
  /** What was left out of the original. */
  readonly leftOut: readonly RequestValue[];
  /** System messages that became the user's. */
  readonly movedSystem: number;
  /** How calls of tools are written that are no plain functions of the client, by the function's name. */
  readonly callForms: ReadonlyMap<string, CallForm>;
}

/** How a request is translated. */
export interface ChatOptions {
  /** Whether system messages behind the first message keep their role. */
  readonly keepSystem: boolean;
}

/** How the client's API writes calls of a tool. */
export interface CallForm {
  readonly kind: 'function' | 'custom' | 'search' | 'item';
  readonly name: string;
  readonly namespace: string | undefined;
  /** Of a tool whose calls are items of their own. */
  readonly type: string | undefined;
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

/** A tool call in an assistant's message. */
interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: JsonText };
}

/** A tool, with its schema as the client wrote it. */
export interface ChatTool {
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    readonly description?: RawJson | string | undefined;
    readonly parameters: RawJson | object | undefined;
    readonly strict?: boolean;
  };
}

/** What a request's members become. */
export interface ChatMembers {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly ChatTool[];
  /** Members that chat completions have under another name or in another form. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Names in the original of all that is translated or left out; members of other names are copied. */
  readonly translated: ReadonlySet<string>;
}

/** Members that engines refuse without tools. */
const OF_TOOLS = ['tool_choice', 'parallel_tool_calls'];

/** Writes a request as JSON; its key order is always the same. O(request). */
export function chatRequest(request: RequestValue, members: ChatMembers): string {
  const { messages, tools, fields, translated } = members;
  const hasTools = tools.length > 0;
  const given = Object.entries(fields).filter(([name]) => hasTools || !OF_TOOLS.includes(name));
  return writeJson({
    model: request.get('model').raw(),
    messages,
    ...(hasTools && { tools }),
    ...Object.fromEntries(given),
    ...request.rawMembersExcept(hasTools ? translated : new Set([...translated, ...OF_TOOLS])),
    ...(request.get('stream').value === true && { stream: true, stream_options: { include_usage: true } }),
  });
}

/**
 * A tool that the client runs.
 *
 * @param schema The name under which the API has the schema of the tool's input.
 * @throws TranslateError `WARMPATH_INVALID_REQUEST`.
 */
export function functionTool(tool: RequestValue, schema: string): ChatTool {
  const strict = tool.get('strict').value;
  const described = describedTool(tool, tool.get('name').string(), schemaIn(tool.get(schema)));
  return typeof strict === 'boolean' ? { ...described, function: { ...described.function, strict } } : described;
}

/** A function of a name and parameters, with the tool's own description. */
export function describedTool(
  tool: RequestValue,
  name: string,
  parameters: ChatTool['function']['parameters'],
): ChatTool {
  const description = tool.get('description');
  return {
    type: 'function',
    function: { name, ...(description.isGiven && { description: description.raw() }), parameters },
  };
}

/** Chat templates read an object: `null` is no schema. */
export function schemaIn(given: RequestValue): RawJson | undefined {
  return given.value === null ? undefined : given.raw();
}

/** Most characters of a type's name in the note that replaces a part. */
const MAX_TYPE_LENGTH = 64;

/** Stands in a message for what chat completions cannot express, so that the model knows of it. */
export function leftOutPart(type: RequestValue): ChatPart {
  return textPart(`[${type.string().slice(0, MAX_TYPE_LENGTH)} left out]`);
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

/** What an assistant wrote, thought and called in one turn. */
export interface AssistantTurn {
  readonly parts: ChatPart[];
  readonly calls: ToolCall[];
  readonly reasoning: string[];
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

/** `JSON.stringify` for plain data with raw parts in it. O(size): every text is copied once, however deep it stands. */
export function writeJson(value: unknown): string {
  const written: string[] = [];
  write(value, written);
  return written.join('');
}

function write(value: unknown, written: string[]): void {
  if (value instanceof RawJson) written.push(value.text);
  else if (Array.isArray(value)) writeArray(value, written);
  else if (typeof value === 'object' && value !== null) writeObject(value, written);
  else written.push(JSON.stringify(value));
}

function writeArray(elements: readonly unknown[], written: string[]): void {
  written.push('[');
  for (const [place, element] of elements.entries()) {
    if (place > 0) written.push(',');
    write(element ?? null, written);
  }
  written.push(']');
}

function writeObject(object: object, written: string[]): void {
  let before = '{';
  for (const [key, member] of Object.entries(object)) {
    if (member === undefined) continue;
    written.push(`${before}${JSON.stringify(key)}:`);
    write(member, written);
    before = ',';
  }
  written.push(before === '{' ? '{}' : '}');
}
