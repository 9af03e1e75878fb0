import { type ReadValue, readKeywords, readValue, skipSpace } from './literals.js';
import type { ToolDefinition } from './messages.js';

export interface ReadCall {
  readonly name: string;
  readonly arguments: string;
}

export type ToolParameters = ReadonlyMap<string, Readonly<Record<string, unknown>> | null | undefined>;

/** Reads all of a text as calls; `undefined` for anything else. */
type CallReader = (body: string, tools: ToolParameters) => ReadCall[] | undefined;

/** What a family of models encloses its calls in. */
export interface CallFormat {
  readonly open: string;
  /** Left out where calls go on to the end of the answer. */
  readonly close?: string;
  /** What must stand in a template that uses the format; `open` when left out. */
  readonly isIn?: RegExp;
  /** Further special tokens between `open` and `close`. */
  readonly inner?: readonly string[];
  readonly readers: readonly CallReader[];
}

export function toolParameters(tools: readonly ToolDefinition[]): ToolParameters {
  return new Map(tools.map(({ function: { name, parameters } }) => [name, parameters]));
}

/** The calls of known functions that a text holds and nothing else, in the first of several forms that fits. */
export function readCalls(
  { readers }: Pick<CallFormat, 'readers'>,
  body: string,
  tools: ToolParameters,
): ReadCall[] | undefined {
  for (const read of readers) {
    const calls = read(body, tools);
    if (calls !== undefined && calls.length > 0 && calls.every(({ name }) => tools.has(name))) return calls;
  }
  return undefined;
}

/** Whether the JSON that a text begins with goes on behind its end, so that a closing tag may stand in a string. */
export function isOpenJson(body: string): boolean {
  const start = skipSpace(body, 0);
  return /[[{]/.test(body.charAt(start)) && readValue(body, start) === undefined;
}

const NAME_KEYS = ['name', 'tool_name', 'function'];
const ARGUMENT_KEYS = ['arguments', 'parameters', 'args', 'input'];

/** Objects like `{"name": …, "arguments": {…}}`, alone, in a row or in a list. */
export const jsonCalls: CallReader = (body, tools) => {
  const calls: (ReadCall | undefined)[] = [];
  for (let at = skipSpace(body, 0); at < body.length; ) {
    const value = readValue(body, at);
    if (value === undefined) return undefined;
    calls.push(...(value.items ?? [value]).map((item) => jsonCall(item, tools)));
    at = skipSpace(body, value.end);
    at = /[,;]/.test(body.charAt(at)) ? skipSpace(body, at + 1) : at;
  }
  return allOf(calls);
};

function jsonCall({ members: outer }: ReadValue, tools: ToolParameters): ReadCall | undefined {
  const members = outer?.get('function')?.members ?? outer;
  const nameKey = NAME_KEYS.find((key) => members?.get(key)?.json.startsWith('"') === true);
  if (members === undefined || nameKey === undefined) {
    // Apertus: the name is the key.
    const [only, ...others] = members ?? [];
    const isCall = only !== undefined && others.length === 0 && tools.has(only[0]) && only[1].members !== undefined;
    return isCall ? { name: only[0], arguments: only[1].json } : undefined;
  }
  const key = ARGUMENT_KEYS.find((each) => members.has(each));
  const given = key === undefined ? 'null' : members.get(key)!.json;
  // Some models write the object as a text.
  const text = given.startsWith('"') ? (JSON.parse(given) as string).trim() : given;
  const value = readValue(text === 'null' || text === '' ? '{}' : text, 0);
  const name = JSON.parse(members.get(nameKey)!.json) as string;
  return value?.members === undefined ? undefined : { name, arguments: value.json };
}

/** A name, and the special tokens around it, before the object of its arguments. */
const CALL_HEAD =
  /(?:\s|<[^<>]*>|\[TOOL_CALLS\]|function(?=<)|call:|functions\.|\w+(?=<\|tool_call:name\|>))*([\w.-]+?)(?::\d+)?(?:\s|>|<[^<>]*>|\[CALL_ID\]\w*|\[ARGS\]|```json)*(?=\{)/y;
const CALL_TAIL = /(?:\s|```|<[^<>]*>)*/y;

/** Calls whose name stands before the object of their arguments. */
const headedCalls: CallReader = (body) => {
  const calls: ReadCall[] = [];
  for (let at = 0; at < body.length; ) {
    const [name] = matchAt(CALL_HEAD, body, at)?.slice(1) ?? [];
    const value = name === undefined ? undefined : readValue(body, CALL_HEAD.lastIndex);
    if (value?.members === undefined) return undefined;
    calls.push({ name: name!, arguments: value.json });
    matchAt(CALL_TAIL, body, value.end);
    at = CALL_TAIL.lastIndex;
  }
  return calls;
};

const TAG_HEAD = /\s*(<function=|<(?:｜DSML｜)?invoke name=")?([\w.-]+)(?:"?>)?\s*/y;
const TAG_END = /\s*<\/(?:｜DSML｜)?(?:function|invoke)>\s*/y;
/** Their groups: the key, what the tag says of the value, the value. */
const TAGGED_ARGUMENTS = [
  /\s*<(?:｜DSML｜)?param(?:eter)?(?:=| name=")([^">]+)"?(?: string="(true|false)")?>([\s\S]*?)<\/(?:｜DSML｜)?param(?:eter)?>\s*/y,
  /\s*<arg_key(?::\w+)?>([\s\S]*?)<\/arg_key(?::\w+)?>(\s*)<arg_value(?::\w+)?>([\s\S]*?)<\/arg_value(?::\w+)?>\s*/y,
];

/** Calls whose arguments stand in tags, one each, as text or as JSON: the schema says which. */
const taggedCalls: CallReader = (body, tools) => {
  const calls: ReadCall[] = [];
  let at = 0;
  const next = (pattern: RegExp): RegExpExecArray | null => {
    const match = matchAt(pattern, body, at);
    at = match === null ? at : pattern.lastIndex;
    return match;
  };
  const nextArgument = (): RegExpExecArray | null => next(TAGGED_ARGUMENTS[0]!) ?? next(TAGGED_ARGUMENTS[1]!);
  while (at < body.length) {
    const [, tag, name] = next(TAG_HEAD) ?? [];
    if (name === undefined) return undefined;
    const members: string[] = [];
    for (let match = nextArgument(); match !== null; match = nextArgument()) {
      const [, key, isText, value] = match;
      members.push(`${JSON.stringify(key)}: ${taggedValue(value!, key!, tools.get(name), isText)}`);
    }
    if (tag !== undefined && next(TAG_END) === null) return undefined;
    calls.push({ name, arguments: `{${members.join(', ')}}` });
  }
  return calls;
};

/** The JSON of a value between tags. @param isText What the tag itself says, if anything. */
function taggedValue(
  given: string,
  key: string,
  schema: Readonly<Record<string, unknown>> | null | undefined,
  isText: string | undefined,
): string {
  const text = given.replace(/^\r?\n|\r?\n$/g, '').replace(/^<!\[CDATA\[([\s\S]*)\]\]>$/, '$1');
  const types = typesOf((schema?.['properties'] as Record<string, unknown> | undefined)?.[key]);
  if (isText === 'true' || (isText !== 'false' && types.includes('string'))) {
    const isNull = types.includes('null') && /^(?:null|None)$/.test(text);
    return isNull ? 'null' : JSON.stringify(text);
  }
  const value = readValue(text, 0);
  return value !== undefined && text.slice(value.end).trim() === '' ? value.json : JSON.stringify(text);
}

/** The types that a JSON schema allows, its alternatives included. */
function typesOf(schema: unknown): readonly unknown[] {
  const { type, anyOf, oneOf, enum: values } = (schema ?? {}) as Record<string, unknown>;
  const alternatives = [anyOf, oneOf].flatMap((each) => (Array.isArray(each) ? (each as unknown[]) : []));
  const hasTexts = Array.isArray(values) && values.some((value) => typeof value === 'string');
  return [type, ...alternatives.map(typesOf), hasTexts ? 'string' : undefined].flat();
}

/** Python's: `[find(what="hay"), other()]`. */
const pythonCalls: CallReader = (body) => {
  const text = body.trim().replace(/^\[([\s\S]*)\]$/, '$1');
  const calls: ReadCall[] = [];
  for (let at = 0; at < text.length; ) {
    const header = /\s*([\w.-]+)\s*\(/y;
    const name = matchAt(header, text, at)?.[1];
    const value = name === undefined ? undefined : readKeywords(text, header.lastIndex);
    if (value === undefined) return undefined;
    calls.push({ name: name!, arguments: value.json });
    at = skipSpace(text, value.end);
    if (at < text.length && !/[,;]/.test(text[at]!)) return undefined;
    at = skipSpace(text, at + 1);
  }
  return calls;
};

function matchAt(pattern: RegExp, text: string, at: number): RegExpExecArray | null {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

function allOf<T>(items: readonly (T | undefined)[]): T[] | undefined {
  const there = items.filter((item) => item !== undefined);
  return there.length === items.length ? there : undefined;
}

/** The families' formats. A template uses those whose mark it has; the form between the marks is found by trying. */
const CALL_FORMATS: readonly CallFormat[] = [
  { open: '<tool_call>', close: '</tool_call>', readers: [jsonCalls, taggedCalls] },
  { open: '[TOOL_CALLS]', inner: ['[ARGS]', '[CALL_ID]'], readers: [jsonCalls, headedCalls] },
  { open: '<|tool_call>', close: '<tool_call|>', inner: ['<|"|>'], readers: [headedCalls] },
  { open: '<start_function_call>', close: '<end_function_call>', inner: ['<escape>'], readers: [headedCalls] },
  {
    open: '<|tool_call_start|>',
    close: '<|tool_call_end|>',
    isIn: /<\|tool_call_start\|>|<\|tool_list_start\|>|List of tools: \[/,
    readers: [pythonCalls, jsonCalls],
  },
  {
    open: '<｜tool▁calls▁begin｜>',
    close: '<｜tool▁calls▁end｜>',
    inner: ['<｜tool▁call▁begin｜>', '<｜tool▁sep｜>', '<｜tool▁call▁end｜>'],
    readers: [headedCalls],
  },
  ...['function_calls', 'tool_calls'].map((name) => ({
    open: `<｜DSML｜${name}>`,
    close: `</｜DSML｜${name}>`,
    isIn: new RegExp(`DSML[\\s\\S]*${name}`),
    inner: ['｜DSML｜'],
    readers: [taggedCalls],
  })),
  {
    open: '<|tool_calls_section_begin|>',
    close: '<|tool_calls_section_end|>',
    inner: ['<|tool_call_begin|>', '<|tool_call_argument_begin|>', '<|tool_call_end|>'],
    readers: [headedCalls],
  },
  {
    open: '<|tool_calls|>',
    inner: ['<|tool_call:begin|>', '<|tool_call:name|>', '<|tool_call:args|>', '<|tool_call:end|>'],
    readers: [headedCalls],
  },
  { open: '<|START_ACTION|>', close: '<|END_ACTION|>', readers: [jsonCalls] },
  { open: '<|tools_prefix|>', close: '<|tools_suffix|>', readers: [jsonCalls] },
  {
    open: '<|tool_call|>',
    inner: ['<|/tool_call|>'],
    readers: [(body, tools) => jsonCalls(body.replace(/<\|\/tool_call\|>\s*$/, ''), tools)],
  },
  { open: '<tool_calls>', close: '</tool_calls>', readers: [jsonCalls] },
  { open: '<minimax:tool_call>', close: '</minimax:tool_call>', readers: [taggedCalls] },
  { open: '<seed:tool_call>', close: '</seed:tool_call>', readers: [taggedCalls] },
  { open: '<function name="', close: '</function>', readers: [taggedCalls] },
  { open: '<function=', close: '</function>', readers: [headedCalls] },
  { open: 'functools', isIn: /functools\[/, readers: [jsonCalls] },
  { open: '<|python_tag|>', readers: [jsonCalls, pythonCalls] },
];

/** The formats of a template, outer ones alone: `<function=` stands inside of `<tool_call>`. */
export function callFormats(source: string): readonly CallFormat[] {
  const used = CALL_FORMATS.filter(({ open, isIn }) => isIn?.test(source) ?? source.includes(open));
  const outer = used.filter(({ open }) => !open.startsWith('<function'));
  return outer.length > 0 ? outer : used;
}
