import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { translate } from '../src/index.js';

const TOOLS = [
  { type: 'custom', name: 'exec' },
  { type: 'namespace', name: 'clock', tools: [{ type: 'function', name: 'sleep', parameters: {} }] },
  { type: 'tool_search', execution: 'client', parameters: {} },
  { type: 'function', name: 'plain', parameters: {} },
  { type: 'local_shell' },
  { type: 'shell', environment: { type: 'local' } },
  { type: 'apply_patch' },
  { type: 'computer_use_preview', display_width: 800, display_height: 600, environment: 'linux' },
];

/** Those whose arguments come in pieces. */
const FUNCTIONS = new Set(['clock__sleep', 'plain', 'unknown']);

interface ResponseEvent {
  readonly type: string;
  readonly delta?: string;
  readonly input?: string;
  readonly item?: object;
  readonly response?: { readonly output: readonly object[] };
}

/** What a client of Responses gets for one call of a function, its arguments in pieces of two characters. */
function answerTo(
  name: string,
  text: string,
  stream: boolean,
  tools: readonly object[] = TOOLS,
): readonly ResponseEvent[] {
  const answer = answerOf(stream, tools);
  const sse = streamOf(name, ['', ...(text.match(/.{1,2}/gsu) ?? [])], 'tool_calls');
  const written = answer.write(Buffer.from(`${sse}data: [DONE]\n\n`)) + answer.end();
  return stream ? eventsIn(written) : [{ type: 'whole', response: JSON.parse(written) as { output: object[] } }];
}

function answerOf(stream: boolean, tools: readonly object[] = TOOLS) {
  const body = Buffer.from(JSON.stringify({ input: 'Q', tools, stream }));
  const { answer } = translate({ api: 'responses', body });
  answer.start({ status: 200, contentType: 'text/event-stream' });
  return answer;
}

/** A call of chat completions. */
function streamOf(name: string, pieces: readonly string[], finish?: string): string {
  const chunks = pieces.map((piece, at) => {
    const called = {
      index: 0,
      ...(at === 0 && { id: 'c' }),
      function: { ...(at === 0 && { name }), arguments: piece },
    };
    return { id: 'a', model: 'm', choices: [{ index: 0, delta: { tool_calls: [called] } }] };
  });
  const end = { id: 'a', model: 'm', choices: [{ index: 0, delta: {}, finish_reason: finish }] };
  return [...chunks, ...(finish === undefined ? [] : [end])]
    .map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`)
    .join('');
}

function eventsIn(written: string): readonly ResponseEvent[] {
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
    // A model's own slips: what can be read of it is the text, and no character is lost.
    ['exec', ' { "input" :"x"}', { type: 'custom_tool_call', input: 'x' }],
    ['exec', '{"note":1,"input":"x"}', { type: 'custom_tool_call', input: 'x' }],
    ['exec', '{"input":"a\nb\\d"}', { type: 'custom_tool_call', input: 'a\nb\\d' }],
    ['exec', '{"input":"\\ud83e\\udd80\\"\\u00e9"}', { type: 'custom_tool_call', input: '🦀"é' }],
    ['exec', '{"input":"cut', { type: 'custom_tool_call', input: 'cut' }],
    ['exec', '{"input":7}', { type: 'custom_tool_call', input: '{"input":7}' }],
    ['exec', `{${' '.repeat(99)}"input":"x"}`, { type: 'custom_tool_call', input: 'x' }],
    [
      'local_shell',
      '{"action":{"command":["ls","-l"]}}',
      { type: 'local_shell_call', action: { type: 'exec', command: ['ls', '-l'], env: {} } },
    ],
    ['local_shell', '{"command":["ls"]}', { type: 'local_shell_call', action: { command: ['ls'] } }],
    ['local_shell', '{"command":"ls"}', { type: 'function_call', name: 'local_shell', arguments: '{"command":"ls"}' }],
    ['local_shell', 'ls', { type: 'function_call', name: 'local_shell', arguments: 'ls' }],
    [
      'shell',
      '{"action":{"commands":["ls"],"timeout_ms":9}}',
      {
        type: 'shell_call',
        environment: { type: 'local' },
        action: { commands: ['ls'], timeout_ms: 9, max_output_length: null },
      },
    ],
    [
      'apply_patch',
      '{"operation":{"type":"delete_file","path":"a"}}',
      { type: 'apply_patch_call', operation: { type: 'delete_file', path: 'a' } },
    ],
    ['apply_patch', '{"operation":{"type":"delete_file"}}', { type: 'function_call', name: 'apply_patch' }],
    [
      'computer',
      '{"action":{"type":"click","x":1,"y":2}}',
      { type: 'computer_call', pending_safety_checks: [], action: { type: 'click', x: 1, y: 2 } },
    ],
    ['tool_search', 'x', { type: 'function_call', name: 'tool_search', arguments: 'x' }],
  ];

  it.each(cases)('%s %s', (name, text, item) => {
    const expected = { call_id: 'c', status: 'completed', ...item };
    expect(answerTo(name, text, false)[0]!.response!.output).toMatchObject([expected]);
    const events = answerTo(name, text, true);
    expect(events.filter(({ type }) => type === 'response.output_item.done')).toMatchObject([{ item: expected }]);
    expect(events.at(-1)!.response!.output).toMatchObject([expected]);
    const { input } = events.at(-1)!.response!.output[0] as { readonly input?: string };
    const deltas = events.filter(({ type }) => type === 'response.custom_tool_call_input.delta');
    expect(deltas.map(({ delta }) => delta).join('')).toBe(input ?? '');
    const done = events.find(({ type }) => type === 'response.custom_tool_call_input.done');
    expect(done?.input).toBe(input);
    const isFunction = FUNCTIONS.has(name);
    expect(events.some(({ type }) => type.startsWith('response.function_call_arguments'))).toBe(isFunction);
    expect(events.filter(({ type }) => type === 'response.output_item.added')).toHaveLength(1);
  });

  it.each([
    ['local_shell', '{"action":{"command":["ls"],"timeout_ms":9}}'],
    ['local_shell', '{"action":{"command":["ls"],"env":{"A":"1"}}}'],
    ['shell', '{"action":{"commands":["ls"]}}'],
    ['apply_patch', '{"operation":{"type":"update_file","path":"a","diff":"+b"}}'],
    ['computer', '{"action":{"type":"wait"}}'],
    ['tool_search', '{"query":"x"}'],
    ['exec', '{"input":"a"}'],
  ])('stands in the next prompt as the model wrote it: %s %s', (name, text) => {
    const [whole] = answerTo(name, text, false);
    const input = [{ role: 'user', content: 'Q' }, ...whole!.response!.output];
    const { body } = translate({ api: 'responses', body: Buffer.from(JSON.stringify({ input, tools: TOOLS })) });
    const { messages } = JSON.parse(body) as { messages: { tool_calls?: { function: object }[] }[] };
    expect(messages.at(-1)!.tool_calls![0]!.function).toEqual({ name, arguments: text });
  });

  it('gives a free text out as it comes, and halves of characters whole', () => {
    const events = answerTo('exec', '{"input":"line 1\\nline 2 \\ud83e\\udd80"}', true);
    const deltas = events.filter(({ type }) => type === 'response.custom_tool_call_input.delta');
    expect(deltas.length).toBeGreaterThan(5);
    expect(deltas.filter(({ delta }) => /[\ud800-\udfff]/.test(delta!.replaceAll('🦀', '')))).toEqual([]);
  });

  it('has lists of actions as calls of the newer tool of a screen', () => {
    const [whole] = answerTo('computer', '{"actions":[{"type":"screenshot"}]}', false, [{ type: 'computer' }]);
    const call = { type: 'computer_call', actions: [{ type: 'screenshot' }], pending_safety_checks: [] };
    expect(whole!.response!.output).toMatchObject([call]);
  });

  const written = fc.oneof(
    fc.json({ maxDepth: 2 }),
    fc.string({ unit: 'binary', maxLength: 40 }),
    fc.record({ input: fc.string({ unit: 'binary' }) }).map((given) => JSON.stringify(given)),
    fc.record({ command: fc.array(fc.string()) }).map((action) => JSON.stringify({ action })),
    fc.constantFrom('{"input":"\\', '{"input":"\\u12', '{"input":"\\ud83e', ' {"input": "a"} ', '{"operation":{}}'),
  );

  it('in the same way whole, in pieces that are cut anywhere, and as far as it came before the stream broke', () => {
    const names = fc.constantFrom('exec', 'local_shell', 'shell', 'apply_patch', 'computer', 'tool_search', 'plain');
    fc.assert(
      fc.property(names, written, fc.array(fc.nat(8)), (name, text, sizes) => {
        const pieces: string[] = [];
        for (let at = 0, turn = 0; at < text.length; turn++) {
          const size = 1 + (sizes[turn % Math.max(1, sizes.length)] ?? 3);
          pieces.push(text.slice(at, at + size));
          at += size;
        }
        const all = pieces.length === 0 ? [''] : pieces;
        const whole = answerOf(false);
        const { output } = JSON.parse(whole.write(Buffer.from(streamOf(name, all, 'tool_calls'))) + whole.end()) as {
          readonly output: readonly { readonly input?: string }[];
        };
        const streamed = answerOf(true);
        const events = eventsIn(streamed.write(Buffer.from(streamOf(name, all, 'tool_calls'))) + streamed.end());
        const done = events.filter(({ type }) => type === 'response.output_item.done');
        expect(done.map(({ item }) => item)).toEqual(output);
        const deltas = (given: readonly ResponseEvent[]) =>
          given.map(({ type, delta }) => (type === 'response.custom_tool_call_input.delta' ? delta : '')).join('');
        expect(deltas(events)).toBe(output[0]!.input ?? '');
        const broken = answerOf(true);
        const told = eventsIn(
          broken.write(Buffer.from(streamOf(name, all.slice(0, -1)))) + broken.fail({ code: null, message: 'cut' }),
        );
        expect(told.filter(({ type }) => type === 'response.output_item.done')).toEqual([]);
        expect(told.slice(-2).map(({ type }) => type)).toEqual(['response.failed', 'error']);
        expect((output[0]!.input ?? '').startsWith(deltas(told))).toBe(true);
      }),
      { seed: 45, numRuns: runs(300) },
    );
  });
});
