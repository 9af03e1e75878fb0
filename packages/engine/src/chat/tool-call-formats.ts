import { readKeywords, readValue, skipSpace } from './literals.js';
import type { ToolDefinition } from './messages.js';

/** A call as it stands in an answer; its arguments are the JSON of an object. */
export interface ReadCall {
  readonly name: string;
  readonly arguments: string;
}

type ToolParameters = ReadonlyMap<string, Readonly<Record<string, unknown>> | null | undefined>;

/** Reads all of a text as calls of known functions; `undefined` for anything else. */
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

/** The calls that a text holds and nothing else, in the first of several forms that fits. */
export function readCalls({ readers }: Pick<CallFormat, 'readers'>, body: string, tools: ToolParameters) {
  for (const read of readers) {
    const calls = read(body, tools);
    if (calls !== undefined && calls.length > 0 && calls.every(({ name }) => tools.has(name))) {
      return calls;
    }
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

/** Objects like `{"name": …, "arguments": {…}}`, alone, in a row or in an array. */
export const jsonCalls: CallReader = (body, tools) => {
  const calls: ReadCall[] = [];
  let at = skipSpace(body, 0);
  while (at < body.length) {
    const value = /[[{]/.test(body.charAt(at)) ? readValue(body, at) : undefined;
    if (value === undefined) {
      return undefined;
    }
    const members = body[at] === '[' ? itemsOf(value.json) : [value.json];
    for (const member of members) {
      const call = jsonCall(member, tools);
      if (call === undefined) {
        return undefined;
      }
      calls.push(call);
    }
    at = skipSpace(body, value.end);
    at = /[,;]/.test(body.charAt(at)) ? skipSpace(body, at + 1) : at;
  }
  return calls;
};

function jsonCall(json: string, tools: ToolParameters): ReadCall | undefined {
  const outer = membersOf(json);
  const inner = outer.get('function');
  const members = inner?.startsWith('{') === true ? membersOf(inner) : outer;
  const nameKey = NAME_KEYS.find((key) => members.get(key)?.startsWith('"') === true);
  if (nameKey !== undefined) {
    const key = ARGUMENT_KEYS.find((each) => members.has(each));
    const given = key === undefined ? '{}' : members.get(key)!;
    // Some models write the object as a text.
    const value = given.startsWith('"') ? (JSON.parse(given) as string).trim() : given;
    const object = readValue(value === 'null' || value === '' ? '{}' : value, 0)?.json;
    return object?.startsWith('{') === true
      ? { name: JSON.parse(members.get(nameKey)!) as string, arguments: object }
      : undefined;
  }
  // Apertus: the name is the key.
  const [only, ...others] = members;
  return only !== undefined && others.length === 0 && tools.has(only[0]) && only[1].startsWith('{')
    ? { name: only[0], arguments: only[1] }
    : undefined;
}

/** The members of an object that `readValue` wrote, each as JSON, in the digits that it was written with. */
function membersOf(json: string): Map<string, string> {
  const members = new Map<string, string>();
  let at = 1;
  while (json.startsWith('"', at)) {
    const key = readValue(json, at)!;
    const value = readValue(json, key.end + 1)!;
    members.set(JSON.parse(key.json) as string, value.json);
    at = value.end + 2;
  }
  return members;
}

function itemsOf(json: string): string[] {
  const items: string[] = [];
  for (let at = 1; at < json.length - 1; ) {
    const item = readValue(json, at)!;
    items.push(item.json);
    at = item.end + 2;
  }
  return items;
}

/** Calls whose name stands before the object of their arguments. The header's first group is the name. */
function headedCalls(header: RegExp, trailer: RegExp = /\s*/y): CallReader {
  return (body) => {
    const calls: ReadCall[] = [];
    let at = 0;
    while (body.slice(at).trim() !== '') {
      header.lastIndex = at;
      const match = header.exec(body);
      const value = match === null ? undefined : readValue(body, header.lastIndex);
      if (value === undefined || !value.json.startsWith('{')) {
        return undefined;
      }
      calls.push({ name: match![1]!, arguments: value.json });
      trailer.lastIndex = value.end;
      at = trailer.test(body) ? trailer.lastIndex : value.end;
    }
    return calls;
  };
}

/**
 * Calls whose arguments stand in tags, one each, as text or as JSON: the schema says which. The first group of `call`
 * is the name, those of `parameter` are the key and the value.
 */
function taggedCalls(call: RegExp, parameter: RegExp, end: RegExp): CallReader {
  return (body, tools) => {
    const calls: ReadCall[] = [];
    let at = 0;
    const next = (pattern: RegExp): RegExpExecArray | null => {
      pattern.lastIndex = at;
      const match = pattern.exec(body);
      at = match === null ? at : pattern.lastIndex;
      return match;
    };
    while (body.slice(at).trim() !== '') {
      const name = next(call)?.[1];
      if (name === undefined) {
        return undefined;
      }
      const members: string[] = [];
      for (let match = next(parameter); match !== null; match = next(parameter)) {
        const { key, value, isText } = match.groups as { key: string; value: string; isText?: string };
        members.push(`${JSON.stringify(key)}: ${taggedValue(value, key, tools.get(name), isText)}`);
      }
      if (next(end) === null) {
        return undefined;
      }
      calls.push({ name, arguments: `{${members.join(', ')}}` });
    }
    return calls;
  };
}

/** The JSON of a value between tags. @param isText What the tag itself says. */
function taggedValue(
  given: string,
  key: string,
  schema: Readonly<Record<string, unknown>> | null | undefined,
  isText: string | undefined,
): string {
  const text = given.replace(/^\r?\n|\r?\n$/g, '');
  const types = typesOf((schema?.['properties'] as Record<string, unknown> | undefined)?.[key]);
  if (isText === 'true' || (isText !== 'false' && types.includes('string'))) {
    const isNull = types.includes('null') && /^(?:null|None)$/.test(text);
    return isNull ? 'null' : JSON.stringify(text);
  }
  const value = readValue(text, 0);
  return value !== undefined && text.slice(value.end).trim() === '' ? value.json : JSON.stringify(text);
}

/** The types that a JSON schema allows, its alternatives included. */
function typesOf(schema: unknown): readonly string[] {
  if (typeof schema !== 'object' || schema === null) {
    return [];
  }
  const { type, anyOf, oneOf, enum: values } = schema as Record<string, unknown>;
  const alternatives = [anyOf, oneOf].flatMap((each) => (Array.isArray(each) ? (each as unknown[]) : []));
  return [
    ...(Array.isArray(type) ? (type as string[]) : typeof type === 'string' ? [type] : []),
    ...alternatives.flatMap(typesOf),
    ...(Array.isArray(values) && values.some((value) => typeof value === 'string') ? ['string'] : []),
  ];
}

/** Python's: `[find(what="hay"), other()]`. */
const pythonCalls: CallReader = (body) => {
  const text = body.trim();
  const isList = text.startsWith('[') && text.endsWith(']');
  const calls: ReadCall[] = [];
  const end = isList ? text.length - 1 : text.length;
  const header = /\s*([\w.-]+)\s*\(/y;
  for (let at = isList ? 1 : 0; at < end; ) {
    header.lastIndex = at;
    const match = header.exec(text);
    const read = match === null ? undefined : readKeywords(text, header.lastIndex);
    if (read === undefined) {
      return undefined;
    }
    calls.push({ name: match![1]!, arguments: read.json });
    at = skipSpace(text, read.end);
    if (at < end && !/[,;]/.test(text[at]!)) {
      return undefined;
    }
    at = skipSpace(text, at + 1);
  }
  return calls;
};

const functionTags = taggedCalls(
  /\s*<function=([^>\s]+)>\s*/y,
  /\s*<parameter=(?<key>[^>]+)>(?<value>[\s\S]*?)<\/parameter>\s*/y,
  /\s*<\/function>\s*/y,
);
const invokeTags = taggedCalls(
  /\s*<(?:｜DSML｜)?invoke name="([^"]+)">\s*/y,
  /\s*<(?:｜DSML｜)?parameter name="(?<key>[^"]+)"(?: string="(?<isText>true|false)")?>(?<value>[\s\S]*?)<\/(?:｜DSML｜)?parameter>\s*/y,
  /\s*<\/(?:｜DSML｜)?invoke>\s*/y,
);
const argumentTags = taggedCalls(
  /\s*([\w.-]+)\s*/y,
  /\s*<arg_key(?::\w+)?>(?<key>[\s\S]*?)<\/arg_key(?::\w+)?>\s*<arg_value(?::\w+)?>(?<value>[\s\S]*?)<\/arg_value(?::\w+)?>\s*/y,
  /\s*$/y,
);
const parameterTags = taggedCalls(
  /\s*([^">\s]+)">\s*/y,
  /\s*<param name="(?<key>[^"]+)">(?:<!\[CDATA\[)?(?<value>[\s\S]*?)(?:\]\]>)?<\/param>\s*/y,
  /\s*$/y,
);

const MISTRAL = headedCalls(/\s*(?:\[TOOL_CALLS\])?\s*([\w.-]+)\s*(?:\[CALL_ID\][^[{]*)?(?:\[ARGS\])?\s*(?=\{)/y);
const DEEPSEEK = headedCalls(
  /\s*<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?\s*([\w.-]+)(?:<｜tool▁sep｜>|\s*```json)\s*/y,
  /\s*(?:```)?\s*(?:<｜tool▁call▁end｜>)?\s*/y,
);
const KIMI = headedCalls(
  /\s*<\|tool_call_begin\|>\s*(?:functions\.)?([\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*/y,
  /\s*(?:<\|tool_call_end\|>)?\s*/y,
);
const SOLAR = headedCalls(
  /\s*(?:<\|tool_call:begin\|>)?[^<]*<\|tool_call:name\|>([\w.-]+)<\|tool_call:args\|>\s*/y,
  /\s*(?:<\|tool_call:end\|>)?\s*/y,
);
const GEMMA = headedCalls(/\s*call:([\w.-]+)\s*(?=\{)/y);
const FUNCTIONARY = headedCalls(/\s*([\w.-]+)>\s*/y);

/** The families' formats. A template uses those whose mark it has; the form between the marks is found by trying. */
const CALL_FORMATS: readonly CallFormat[] = [
  { open: '<tool_call>', close: '</tool_call>', readers: [jsonCalls, functionTags, argumentTags] },
  { open: '[TOOL_CALLS]', inner: ['[ARGS]', '[CALL_ID]'], readers: [jsonCalls, MISTRAL] },
  { open: '<|tool_call>', close: '<tool_call|>', inner: ['<|"|>'], readers: [GEMMA] },
  { open: '<start_function_call>', close: '<end_function_call>', inner: ['<escape>'], readers: [GEMMA] },
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
    readers: [DEEPSEEK],
  },
  {
    open: '<｜DSML｜function_calls>',
    close: '</｜DSML｜function_calls>',
    isIn: /DSML[\s\S]*function_calls/,
    inner: ['｜DSML｜'],
    readers: [invokeTags],
  },
  {
    open: '<｜DSML｜tool_calls>',
    close: '</｜DSML｜tool_calls>',
    isIn: /DSML[\s\S]*tool_calls/,
    inner: ['｜DSML｜'],
    readers: [invokeTags],
  },
  {
    open: '<|tool_calls_section_begin|>',
    close: '<|tool_calls_section_end|>',
    inner: ['<|tool_call_begin|>', '<|tool_call_argument_begin|>', '<|tool_call_end|>'],
    readers: [KIMI],
  },
  {
    open: '<|tool_calls|>',
    inner: ['<|tool_call:begin|>', '<|tool_call:name|>', '<|tool_call:args|>', '<|tool_call:end|>'],
    readers: [SOLAR],
  },
  { open: '<|START_ACTION|>', close: '<|END_ACTION|>', readers: [jsonCalls] },
  { open: '<|tools_prefix|>', close: '<|tools_suffix|>', readers: [jsonCalls] },
  {
    open: '<|tool_call|>',
    readers: [jsonCalls, (body, tools) => jsonCalls(body.replace(/<\|\/tool_call\|>\s*$/, ''), tools)],
    inner: ['<|/tool_call|>'],
  },
  { open: '<tool_calls>', close: '</tool_calls>', readers: [jsonCalls] },
  { open: '<minimax:tool_call>', close: '</minimax:tool_call>', readers: [invokeTags] },
  { open: '<seed:tool_call>', close: '</seed:tool_call>', readers: [functionTags] },
  { open: '<function name="', close: '</function>', readers: [parameterTags] },
  { open: '<function=', close: '</function>', readers: [FUNCTIONARY] },
  { open: 'functools', isIn: /functools\[/, readers: [jsonCalls] },
  { open: '<|python_tag|>', readers: [jsonCalls, pythonCalls] },
];

/** The formats of a template, outer ones alone: `<function=` stands inside of `<tool_call>`. */
export function callFormats(source: string): readonly CallFormat[] {
  const used = CALL_FORMATS.filter(({ open, isIn }) =>
    isIn === undefined ? source.includes(open) : isIn.test(source),
  );
  const isInner = ({ open }: CallFormat): boolean => open.startsWith('<function');
  return used.some((format) => !isInner(format)) ? used.filter((format) => !isInner(format)) : used;
}
