import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { messageMeaning } from '../src/internal.js';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** The same JSON with its keys in another order. */
function reversed(value: Json): Json {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, inner]) => [key, reversed(inner)]),
  );
}

const MARK = { cache_control: { type: 'ephemeral' } };
const text = (it: string) => ({ type: 'text', text: it });
const call = (input: Json, id = 'c') => ({
  id,
  type: 'function',
  function: { name: 'f', arguments: JSON.stringify(input) },
});
const use = (input: Json, id = 'c') => ({ type: 'tool_use', id, name: 'f', input });

const SAME: readonly (readonly [string, object, object])[] = [
  ['a string and one text part', { role: 'user', content: 'a' }, { role: 'user', content: [text('a')] }],
  ['a moved mark', { role: 'user', content: [text('a')] }, { role: 'user', content: [{ ...text('a'), ...MARK }] }],
  ['a mark of the message', { role: 'user', content: 'a' }, { role: 'user', content: 'a', ...MARK }],
  ['an added name', { role: 'user', content: 'a' }, { role: 'user', content: 'a', name: 'Ann' }],
  ['another key order', { role: 'user', content: 'a' }, { content: 'a', role: 'user' }],
  [
    'empty members',
    { role: 'assistant', content: 'a' },
    { role: 'assistant', content: 'a', tool_calls: [], refusal: null, annotations: [] },
  ],
  ['no content', { role: 'assistant', content: null }, { role: 'assistant', content: '' }],
  ['a thought', { role: 'assistant', content: 'a' }, { role: 'assistant', content: 'a', reasoning_content: 't' }],
  [
    'a thought as a block',
    { role: 'assistant', content: [text('a')] },
    { role: 'assistant', content: [{ type: 'thinking', thinking: 't', signature: 's' }, text('a')] },
  ],
  [
    'arguments of a call',
    { role: 'assistant', content: null, tool_calls: [call({ a: 1, b: [2] })] },
    {
      role: 'assistant',
      tool_calls: [{ index: 0, ...call({}), function: { arguments: ' { "b": [ 2 ],"a":1}', name: 'f' } }],
    },
  ],
  [
    'a call as a block',
    { role: 'assistant', content: [use({ a: 1, b: 2 })] },
    { role: 'assistant', content: [{ ...use({ b: 2, a: 1 }), ...MARK }] },
  ],
  [
    'a result of a tool',
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c', content: 'r' }] },
    {
      role: 'user',
      content: [{ tool_use_id: 'c', content: [text('r')], type: 'tool_result', is_error: false, ...MARK }],
    },
  ],
  [
    'a named result',
    { role: 'tool', tool_call_id: 'c', content: 'r' },
    { role: 'tool', tool_call_id: 'c', content: 'r', name: 'f' },
  ],
  [
    'an item of Responses',
    { role: 'user', content: 'a' },
    { type: 'message', id: 'm', role: 'user', content: [{ type: 'input_text', text: 'a' }] },
  ],
  [
    'an answer of Responses',
    { role: 'assistant', content: 'a' },
    {
      type: 'message',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: 'a', annotations: [], logprobs: [] }],
    },
  ],
  [
    'a call of Responses',
    { type: 'function_call', call_id: 'c', name: 'f', arguments: '{"a":1}' },
    { type: 'function_call', id: 'fc', call_id: 'c', name: 'f', arguments: '{ "a": 1 }', status: 'completed' },
  ],
  ['a text', { type: 'x', text: 1 }, { text: 1, type: 'x' }],
];

const OTHER: readonly (readonly [string, object, object])[] = [
  ['the role', { role: 'user', content: 'a' }, { role: 'system', content: 'a' }],
  ['the text', { role: 'user', content: 'a' }, { role: 'user', content: 'a ' }],
  ['the cut of a text', { role: 'user', content: [text('a'), text('b')] }, { role: 'user', content: 'ab' }],
  [
    'the order of parts',
    { role: 'user', content: [text('a'), text('b')] },
    { role: 'user', content: [text('b'), text('a')] },
  ],
  [
    'an image',
    { role: 'user', content: [{ type: 'image', source: { url: '1' } }] },
    { role: 'user', content: [{ type: 'image', source: { url: '2' } }] },
  ],
  [
    'the id of a call',
    { role: 'assistant', tool_calls: [call({})] },
    { role: 'assistant', tool_calls: [call({}, 'd')] },
  ],
  ['the id of a block', { role: 'assistant', content: [use({})] }, { role: 'assistant', content: [use({}, 'd')] }],
  [
    'the call of a result',
    { role: 'tool', tool_call_id: 'c', content: 'r' },
    { role: 'tool', tool_call_id: 'd', content: 'r' },
  ],
  ['false in an input', { role: 'assistant', content: [use({ a: false })] }, { role: 'assistant', content: [use({})] }],
  [
    'a status in an input',
    { role: 'assistant', tool_calls: [call({ status: 'a' })] },
    { role: 'assistant', tool_calls: [call({ status: 'b' })] },
  ],
  [
    'a failed result',
    { role: 'user', content: [{ type: 'tool_result', is_error: true }] },
    { role: 'user', content: [{ type: 'tool_result' }] },
  ],
  [
    'the function',
    { type: 'function_call', call_id: 'c', name: 'f' },
    { type: 'function_call', call_id: 'c', name: 'g' },
  ],
  ['the item referred to', { type: 'item_reference', id: 'a' }, { type: 'item_reference', id: 'b' }],
  [
    'a list for an object',
    { role: 'assistant', content: [use([['a', 1]])] },
    { role: 'assistant', content: [use({ a: 1 })] },
  ],
];

describe('what a message says', () => {
  it.each(SAME)('is the same with %s', (_, one, other) => {
    expect(messageMeaning(other)).toBe(messageMeaning(one));
  });

  it.each(OTHER)('depends on %s', (_, one, other) => {
    expect(messageMeaning(other)).not.toBe(messageMeaning(one));
  });

  it('does not depend on the order of keys, and on nothing but what JSON holds', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }) as fc.Arbitrary<Json>, (value) => {
        expect(messageMeaning(reversed(value))).toBe(messageMeaning(value));
        expect(messageMeaning(JSON.parse(JSON.stringify(value, null, 2)))).toBe(messageMeaning(value));
      }),
      { seed: 31, numRuns: runs(300) },
    );
  });
});
