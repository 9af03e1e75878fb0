import { isRecord } from '../document.js';

/** Members that say nothing to the model: marks for caches, and what clients and engines add. */
const UNREAD: ReadonlySet<string> = new Set([
  'annotations',
  'cache_control',
  'citations',
  'index',
  'logprobs',
  'prompt_cache_breakpoint',
  'status',
]);
/** Clients and engines leave thoughts of earlier turns out. */
const THOUGHTS: ReadonlySet<string> = new Set(['reasoning', 'reasoning_content', 'signature']);
const THOUGHT_PARTS: ReadonlySet<unknown> = new Set(['thinking', 'redacted_thinking']);
const TEXT_PARTS: ReadonlySet<unknown> = new Set(['text', 'input_text', 'output_text']);
/** Members that hold a tool's input, as JSON or as a text of JSON. */
const INPUTS: ReadonlySet<string> = new Set(['arguments', 'input']);

type Members = Readonly<Record<string, unknown>>;

/**
 * What a message says, as one text: equal for messages that differ only in how a client writes them. A string is one
 * text part. Key order, white space, escapes, marks for caches, ids of items, empty members, names and thoughts do not
 * count; ids of tool calls do. O(message).
 *
 * @param message A message or item of any API, as `JSON.parse` gives it.
 */
export function messageMeaning(message: unknown): string {
  if (typeof message === 'string') return messageMeaning({ role: 'user', content: message });
  if (!isRecord(message)) return JSON.stringify(meaningOf(message)) ?? '';
  const { content, output, type, id, name, ...others } = message;
  return JSON.stringify(
    meaningOf({
      ...others,
      // Calls have no role. A result is named by its call.
      ...(message['role'] === undefined && { name }),
      ...(type !== 'message' && { type }),
      ...(type === 'item_reference' && { id }),
      content: partsOf(content),
      output: partsOf(output),
    }),
  );
}

/** Whether one message may be sent for another: they say the same, thoughts and given names included. O(messages). */
export function saysTheSame(one: unknown, other: unknown): boolean {
  if (messageMeaning(one) !== messageMeaning(other) || thoughtsIn(one) !== thoughtsIn(other)) return false;
  const [name, otherName] = [one, other].map((message) => (isRecord(message) ? message['name'] : undefined));
  return name === otherName || name === undefined || otherName === undefined;
}

function thoughtsIn(message: unknown): string {
  if (!isRecord(message)) return '';
  const { content, reasoning = null, reasoning_content: otherwise = null } = message;
  const parts = Array.isArray(content)
    ? content.filter((part: Members | null) => THOUGHT_PARTS.has(part?.['type']))
    : [];
  return JSON.stringify(keySorted([reasoning, otherwise, parts]));
}

function partsOf(content: unknown): unknown {
  if (typeof content === 'string') return content === '' ? [] : [content];
  if (!Array.isArray(content)) return content;
  return content.flatMap((part: unknown) => {
    if (!isRecord(part)) return [part];
    if (THOUGHT_PARTS.has(part['type'])) return [];
    const { type, text, ...others } = part;
    if (TEXT_PARTS.has(type) && typeof text === 'string' && countedKeys(others).length === 0) return [text];
    return [{ ...part, content: partsOf(part['content']) }];
  });
}

/** The value without what says nothing. Objects become pairs in the order of their keys. */
function meaningOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(meaningOf);
  if (!isRecord(value)) return value;
  const pairs = countedKeys(value).map((key) => [key, INPUTS.has(key) ? inputOf(value[key]) : meaningOf(value[key])]);
  return { pairs };
}

function countedKeys(value: Members): readonly string[] {
  const isCounted = (key: string) => !UNREAD.has(key) && !THOUGHTS.has(key) && !isNothing(value[key]);
  return Object.keys(value).filter(isCounted).sort();
}

function inputOf(input: unknown): unknown {
  if (typeof input !== 'string') return keySorted(input);
  try {
    return keySorted(JSON.parse(input));
  } catch {
    return input;
  }
}

/** The value with objects as pairs in the order of their keys. O(value). */
export function keySorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(keySorted);
  if (!isRecord(value)) return value;
  const keys = Object.keys(value).sort();
  return { pairs: keys.map((key) => [key, keySorted(value[key])]) };
}

function isNothing(value: unknown): boolean {
  return value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0);
}
