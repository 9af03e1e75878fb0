import { isObject, type JsonObject } from '../json/json-scanner.js';
import type { JsonPath } from './request-texts.js';

/** A text of the model in an answer, or in one event of a stream. */
export interface AnswerText {
  readonly place: JsonPath;
  /** The string, or the JSON text of an object. */
  readonly text: string;
  readonly isObject?: boolean;
  /**
   * Of a stream: the text whose next piece this is. Channels of one group follow each other. `undefined` for a text
   * that is complete.
   */
  readonly channel?: Channel;
}

export interface Channel {
  readonly group: string;
  readonly name: string;
}

/** What one event of a stream says. */
export interface AnswerEvent {
  readonly texts: readonly AnswerText[];
  /** Groups of which no more pieces come. */
  readonly ended: readonly string[];
}

const MESSAGE_TEXTS = ['content', 'reasoning_content', 'reasoning', 'refusal'];
/** Responses: events that bring a piece of a text, or all of it. */
const PIECES =
  /^response\.(output_text|refusal|reasoning_text|reasoning_summary_text|function_call_arguments|custom_tool_call_input)\.(delta|done)$/;
const WHOLE_FIELDS = ['text', 'refusal', 'arguments', 'input'];

/**
 * The texts of a whole answer in any of the APIs. Not: what Anthropic signs (`thinking`), which must come back as it
 * was. O(answer).
 */
export function answerTexts(body: JsonObject): readonly AnswerText[] {
  const { choices, output } = body;
  return [
    ...elements(choices).flatMap((choice, at) => [
      ...strings(choice, ['text'], ['choices', at]),
      ...messageTexts(choice['message'], ['choices', at, 'message']),
    ]),
    ...contentTexts(body, []),
    ...callInputs(body, []),
    ...elements(output).flatMap((item, at) => itemTexts(item, ['output', at])),
  ];
}

/** The texts of one event of a stream in any of the APIs. O(event). */
export function eventTexts(event: JsonObject): AnswerEvent {
  const { type, choices } = event;
  if (Array.isArray(choices)) return choiceTexts(elements(choices));
  if (typeof type !== 'string') return { texts: [], ended: [] };
  if (type.startsWith('content_block_')) return anthropicTexts(type, event);
  return responsesTexts(type, event);
}

function choiceTexts(choices: readonly JsonObject[]): AnswerEvent {
  const texts: AnswerText[] = [];
  const ended: string[] = [];
  for (const [at, choice] of choices.entries()) {
    const group = String(choice['index'] ?? at);
    const place = ['choices', at];
    for (const each of strings(choice, ['text'], place)) texts.push({ ...each, channel: { group, name: 'text' } });
    const { delta } = choice;
    if (isObject(delta)) {
      const pieces = [...strings(delta, MESSAGE_TEXTS, [...place, 'delta']), ...callInputs(delta, [...place, 'delta'])];
      for (const { place: own, text } of pieces)
        texts.push({ place: own, text, channel: { group, name: nameOf(own, delta) } });
    }
    if (typeof choice['finish_reason'] === 'string') ended.push(group);
  }
  return { texts, ended };
}

/** `content`, or `tool_calls.1` by the index that the call itself states. */
function nameOf(place: JsonPath, delta: JsonObject): string {
  const [, , , field, at] = place;
  if (field !== 'tool_calls') return String(field);
  const call = elements(delta['tool_calls'])[at as number];
  return `tool_calls.${call?.['index'] ?? at}`;
}

function anthropicTexts(type: string, event: JsonObject): AnswerEvent {
  const group = String(event['index']);
  const channel = { group, name: 'block' };
  if (type === 'content_block_stop') return { texts: [], ended: [group] };
  const field = type === 'content_block_delta' ? 'delta' : 'content_block';
  const part = event[field];
  if (!isObject(part)) return { texts: [], ended: [] };
  return { texts: strings(part, ['text', 'partial_json'], [field]).map((each) => ({ ...each, channel })), ended: [] };
}

function responsesTexts(type: string, event: JsonObject): AnswerEvent {
  const [, kind, step] = PIECES.exec(type) ?? [];
  const group = [event['output_index'], kind, event['content_index'] ?? event['summary_index']].join();
  if (step === 'delta') {
    const channel = { group, name: 'delta' };
    return { texts: strings(event, ['delta'], []).map((each) => ({ ...each, channel })), ended: [] };
  }
  if (step === 'done') return { texts: strings(event, WHOLE_FIELDS, []), ended: [group] };
  const { part, item, response } = event;
  return {
    texts: [
      ...(isObject(part) ? strings(part, ['text', 'refusal'], ['part']) : []),
      ...(isObject(item) ? itemTexts(item, ['item']) : []),
      ...(isObject(response)
        ? elements(response['output']).flatMap((each, at) => itemTexts(each, ['response', 'output', at]))
        : []),
    ],
    ended: [],
  };
}

function messageTexts(message: unknown, place: JsonPath): readonly AnswerText[] {
  if (!isObject(message)) return [];
  return [...strings(message, MESSAGE_TEXTS, place), ...contentTexts(message, place), ...callInputs(message, place)];
}

/** An item of Responses: a message, a call, or reasoning. */
function itemTexts(item: JsonObject, place: JsonPath): readonly AnswerText[] {
  if (item['role'] !== undefined && item['role'] !== 'assistant') return [];
  return [
    ...contentTexts(item, place),
    ...elements(item['summary']).flatMap((part, at) => strings(part, ['text'], [...place, 'summary', at])),
    ...callInputs(item, place),
  ];
}

function contentTexts({ content }: JsonObject, place: JsonPath): readonly AnswerText[] {
  return elements(content).flatMap((part, at) => strings(part, ['text', 'refusal'], [...place, 'content', at]));
}

function strings(object: JsonObject, fields: readonly string[], place: JsonPath): readonly AnswerText[] {
  return fields.flatMap((field) => {
    const text = object[field];
    return typeof text === 'string' ? [{ place: [...place, field], text }] : [];
  });
}

function elements(value: unknown): readonly JsonObject[] {
  return Array.isArray(value) ? value.map((each) => (isObject(each) ? each : {})) : [];
}

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
