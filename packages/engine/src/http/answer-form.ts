import { z } from 'zod';
import type { AnswerPart } from '../chat/answer-reader.js';
import type { ToolDefinition } from '../chat/messages.js';
import { writeGrammar } from '../structured/gbnf.js';
import { readJsonSchema } from '../structured/json-schema.js';
import { ANY_OBJECT, checkNodes, refuse, type SchemaNode } from '../structured/schema-node.js';
import type { FormCache, ReadForm } from './form-cache.js';
import { type GenerationFields, parseBody, type ToolChoice } from './schemas.js';

/** Most functions that a model may choose from. */
const MAX_TOOLS = 128;

export interface AnswerForm extends ReadForm {
  /** The functions that the prompt describes to the model. */
  readonly tools?: readonly ToolDefinition[];
  /** Whether the answer must call one of them, may call some, or calls none. */
  readonly callChoice: 'forced' | 'free' | 'none';
}

const toolsSchema = z.object({
  tools: z
    .array(
      z.object({
        type: z.literal('function', { error: 'This engine supports tools of the type function only' }),
        function: z.object({
          name: z.string().regex(/^[\w-]{1,64}$/, { error: 'Expected 1 to 64 letters, digits, or any of _ -' }),
          description: z.string().nullish(),
          parameters: z.record(z.string(), z.unknown()).nullish(),
        }),
      }),
    )
    .max(MAX_TOOLS),
});

/**
 * The functions of a request; `undefined` for none.
 *
 * @throws WARMPATH_INVALID_REQUEST with the path of what is wrong.
 */
export function readTools(given: unknown): readonly ToolDefinition[] | undefined {
  const { tools } = parseBody(toolsSchema, { tools: given ?? [] });
  tools.forEach(({ function: { name } }, index) => {
    if (tools.findIndex((each) => each.function.name === name) < index) {
      throw refuse(`tools[${index}].function.name`, 'Expected another name than that of a tool before');
    }
  });
  return tools.length === 0 ? undefined : tools;
}

/**
 * The grammar of a request for JSON, of any form or of a schema.
 *
 * @throws WARMPATH_INVALID_REQUEST with the path of what is wrong or not supported, into the schema too.
 */
export function jsonForm(fields: GenerationFields, cache: FormCache): ReadForm {
  const { response_format: format, structured_outputs: outputs } = fields;
  const wanted: [path: string, schema: unknown][] = [];
  if (format?.type === 'json_object') {
    wanted.push(['response_format', undefined]);
  } else if (format?.type === 'json_schema') {
    wanted.push(['response_format.json_schema.schema', format.json_schema.schema]);
  }
  const others = {
    json_schema: fields.json_schema,
    guided_json: fields.guided_json,
    'structured_outputs.json': outputs?.json,
  };
  wanted.push(...Object.entries(others).filter(([, schema]) => schema !== undefined && schema !== null));
  const [first, second] = wanted;
  if (second !== undefined) throw refuse(second[0], `The form of the answer is said by ${first![0]} already`);
  if (first === undefined) return {};
  const [path, schema] = first;
  if (schema === undefined) return { grammar: writeGrammar(ANY_OBJECT, path) };
  return cache.form([path, schema], () => {
    const { node, check } = readJsonSchema(schema, path);
    return { grammar: writeGrammar(node, path), ...(check && { fits: (text: string) => check(JSON.parse(text)) }) };
  });
}

/**
 * The same for a chat. An answer that must call a function is `{"name": "<function>", "arguments": {…}}`, and the
 * arguments fit the function's schema.
 *
 * @throws As {@link jsonForm} does.
 */
export function chatForm(
  fields: GenerationFields & { tool_choice?: ToolChoice; tools?: unknown },
  cache: FormCache,
): AnswerForm {
  const { tool_choice: choice } = fields;
  const form = jsonForm(fields, cache);
  const tools = readTools(fields.tools);
  if (choice === undefined || choice === null || choice === 'auto' || choice === 'none') {
    // An answer in a given form calls nothing.
    const isFree = tools !== undefined && choice !== 'none' && form.grammar === undefined;
    return { ...form, ...(tools !== undefined && { tools }), callChoice: isFree ? 'free' : 'none' };
  }
  if (form.grammar !== undefined) {
    throw refuse('tool_choice', 'A call cannot be forced where the form of the answer is said as well');
  }
  if (tools === undefined) throw refuse('tools', 'Expected the functions of which one must be called');
  return { ...cache.form([choice, tools], () => callForm(tools, choice)), tools, callChoice: 'forced' };
}

function callForm(tools: readonly ToolDefinition[], choice: Exclude<ToolChoice, null | undefined>): ReadForm {
  const checks = new Map<string, (value: unknown) => boolean>();
  const members = tools.flatMap(({ function: { name, parameters } }, index) => {
    if (typeof choice === 'object' && choice.function.name !== name) return [];
    const { node, check } = readJsonSchema(parameters ?? NO_PARAMETERS, `tools[${index}].function.parameters`);
    if (check !== undefined) checks.set(name, check);
    return [callNode(name, node)];
  });
  if (members.length === 0) throw refuse('tool_choice.function.name', 'Expected the name of one of the tools');
  const node: SchemaNode = { kind: 'union', members, path: 'tools', isExclusive: false };
  checkNodes(node);
  const fits = (text: string): boolean => {
    const call = JSON.parse(text) as { readonly name: string; readonly arguments: unknown };
    return checks.get(call.name)?.(call.arguments) ?? true;
  };
  return { grammar: writeGrammar(node, 'tools'), ...(checks.size > 0 && { fits }) };
}

const NO_PARAMETERS = { type: 'object', properties: {} };

function callNode(name: string, parameters: SchemaNode): SchemaNode {
  return {
    kind: 'object',
    properties: [
      { key: 'name', isRequired: true, value: { kind: 'texts', texts: [JSON.stringify(name)] } },
      { key: 'arguments', isRequired: true, value: parameters },
    ],
    others: [],
  };
}

/** What such an answer begins with, until the first character of its arguments. */
const CALL = /^\{"name": ?"([\w-]+)", ?"arguments": ?(?=\S)/;

/** A part of an answer, or more of the arguments of the call before. */
export type ToldPart = AnswerPart | { readonly kind: 'arguments'; readonly text: string };

/** Reads an answer that follows a forced {@link chatForm}: the call, then its arguments in pieces. */
export function forcedCallReader(): { push(text: string): ToldPart[]; end(): ToldPart[] } {
  let text = '';
  let head: RegExpExecArray | null = null;
  let sent = 0;
  const next = (isEnd: boolean): ToldPart[] => {
    const isBegun = head !== null;
    head ??= CALL.exec(text);
    if (head === null) return [];
    const rest = text.slice(head[0].length);
    // The last brace closes the call, unless the answer was cut off before.
    const isClosed = rest.endsWith('}') && (!isEnd || isJson(rest.slice(0, -1)));
    const whole = isClosed ? rest.slice(0, -1) : rest;
    const piece = whole.slice(sent);
    sent = whole.length;
    if (!isBegun) return [{ kind: 'call', call: { name: head[1]!, arguments: piece } }];
    return piece === '' ? [] : [{ kind: 'arguments', text: piece }];
  };
  return {
    push: (piece) => {
      text += piece;
      return next(false);
    },
    end: () => next(true),
  };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
