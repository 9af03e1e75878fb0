import { describe, expect, it } from 'vitest';
import { translate } from '../src/index.js';

const TOOLS = [
  { type: 'custom', name: 'exec' },
  { type: 'namespace', name: 'clock', tools: [{ type: 'function', name: 'sleep', parameters: {} }] },
  { type: 'tool_search', execution: 'client', parameters: {} },
  { type: 'function', name: 'plain', parameters: {} },
];

interface ResponseEvent {
  readonly type: string;
  readonly delta?: string;
  readonly input?: string;
  readonly item?: object;
  readonly response?: { readonly output: readonly object[] };
}

/** What a client of Responses gets for one call of a function, its arguments in pieces of two characters. */
function answerTo(name: string, text: string, stream: boolean): readonly ResponseEvent[] {
  const body = Buffer.from(JSON.stringify({ input: 'Q', tools: TOOLS, stream }));
  const { answer } = translate({ api: 'responses', body });
  answer.start({ status: 200, contentType: 'text/event-stream' });
  const pieces = ['', ...(text.match(/.{1,2}/gsu) ?? [])];
  const chunks = pieces.map((piece, at) => {
    const called = {
      index: 0,
      ...(at === 0 && { id: 'c' }),
      function: { ...(at === 0 && { name }), arguments: piece },
    };
    return { id: 'a', model: 'm', choices: [{ index: 0, delta: { tool_calls: [called] } }] };
  });
  const end = { id: 'a', model: 'm', choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] };
  const sse = [...chunks, end].map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('');
  const written = answer.write(Buffer.from(`${sse}data: [DONE]\n\n`)) + answer.end();
  if (!stream) return [{ type: 'whole', response: JSON.parse(written) as { output: object[] } }];
  return [...written.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!) as ResponseEvent);
}

describe('a call comes back in the form of its tool', () => {
  const cases: readonly (readonly [name: string, text: string, item: object])[] = [
    ['exec', '{"input": "a \\"b\\"\\n🦀"}', { type: 'custom_tool_call', name: 'exec', input: 'a "b"\n🦀' }],
    ['exec', 'ls -l', { type: 'custom_tool_call', name: 'exec', input: 'ls -l' }],
    ['exec', '{"command": "ls"}', { type: 'custom_tool_call', name: 'exec', input: '{"command": "ls"}' }],
    ['clock__sleep', '{"s":1}', { type: 'function_call', name: 'sleep', namespace: 'clock', arguments: '{"s":1}' }],
    ['tool_search', '{"query":"x"}', { type: 'tool_search_call', execution: 'client', arguments: { query: 'x' } }],
    ['plain', '{"a":1}', { type: 'function_call', name: 'plain', arguments: '{"a":1}' }],
    ['unknown', '{}', { type: 'function_call', name: 'unknown', arguments: '{}' }],
  ];

  it.each(cases)('%s %s', (name, text, item) => {
    const expected = { call_id: 'c', status: 'completed', ...item };
    expect(answerTo(name, text, false)[0]!.response!.output).toMatchObject([expected]);
    const events = answerTo(name, text, true);
    expect(events.filter(({ type }) => type === 'response.output_item.done')).toMatchObject([{ item: expected }]);
    expect(events.at(-1)!.response!.output).toMatchObject([expected]);
    const { input } = item as { readonly input?: string };
    const deltas = events.filter(({ type }) => type === 'response.custom_tool_call_input.delta');
    expect(deltas.map(({ delta }) => delta).join('')).toBe(input ?? '');
    const done = events.find(({ type }) => type === 'response.custom_tool_call_input.done');
    expect(done?.input).toBe(input);
    const isFunction = 'arguments' in item && typeof item.arguments === 'string';
    expect(events.some(({ type }) => type.startsWith('response.function_call_arguments'))).toBe(isFunction);
  });
});
