import { isObject, type JsonObject } from '../json/json-scanner.js';
import type { JsonPath } from './request-texts.js';

/** What the model calls a tool with, and where it stands. */
export interface CallInput {
  readonly place: JsonPath;
  /** The string, or the JSON text of an object. */
  readonly text: string;
  /** Whether it is an object in the body, and no string. */
  readonly isObject: boolean;
}

/** Inputs of the calls in one message or item, in any of the APIs. `place` leads to the message. O(calls). */
export function callInputs(message: JsonObject, place: JsonPath): readonly CallInput[] {
  const { type, content, tool_calls: calls, function_call: call } = message;
  return [
    ...elements(calls).flatMap((each, at) => functionInputs(each, [...place, 'tool_calls', at])),
    ...(isObject(call) ? stringInput(call['arguments'], [...place, 'function_call', 'arguments']) : []),
    ...(type === 'function_call' ? stringInput(message['arguments'], [...place, 'arguments']) : []),
    ...(type === 'custom_tool_call' ? stringInput(message['input'], [...place, 'input']) : []),
    ...elements(content).flatMap((part, at) => partInput(part, [...place, 'content', at])),
  ];
}

/** Inputs of one element of `tool_calls`, or of a part of a stream's. */
function functionInputs(call: unknown, place: JsonPath): readonly CallInput[] {
  if (!isObject(call)) return [];
  const { function: named, custom } = call;
  return [
    ...(isObject(named) ? stringInput(named['arguments'], [...place, 'function', 'arguments']) : []),
    ...(isObject(custom) ? stringInput(custom['input'], [...place, 'custom', 'input']) : []),
  ];
}

/** Anthropic's calls are parts of a message. */
function partInput(part: unknown, place: JsonPath): readonly CallInput[] {
  if (!isObject(part) || part['type'] !== 'tool_use' || !isObject(part['input'])) return [];
  return [{ place: [...place, 'input'], text: JSON.stringify(part['input']), isObject: true }];
}

function stringInput(text: unknown, place: JsonPath): readonly CallInput[] {
  return typeof text === 'string' ? [{ place, text, isObject: false }] : [];
}

function elements(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
