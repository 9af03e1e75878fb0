import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { type TranslatedAnswer, type TranslatedApi, TranslateError, translate } from '../src/index.js';

const APIS = ['messages', 'responses'] as const;
const REQUESTS = { messages: { model: 'm', messages: [] }, responses: { model: 'm', input: 'Q' } };

interface Told {
  readonly type?: string;
  readonly usage: Record<string, unknown>;
  readonly [member: string]: unknown;
}

/** Chunks of a stream, or one answer in one piece, as the client of an API gets it. */
function told(api: TranslatedApi, chunks: readonly object[] | object, fields: object = {}): Told {
  const isStream = Array.isArray(chunks);
  const { answer } = translate({
    api,
    body: Buffer.from(JSON.stringify({ ...REQUESTS[api], ...fields, stream: isStream })),
  });
  const sent = isStream
    ? `${chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('')}data: [DONE]\n\n`
    : JSON.stringify(chunks);
  answer.start({ status: 200, contentType: isStream ? 'text/event-stream' : 'application/json' });
  const written = answer.write(Buffer.from(sent)) + answer.end();
  if (!isStream) return JSON.parse(written) as Told;
  const events = [...written.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!) as Told);
  if (api === 'responses') return events.at(-1)!['response'] as Told;
  return events.find(({ type }) => type === 'message_delta')!;
}

const HEAD = { id: 'c', model: 'm', created: 1 };
const PLAIN = { prompt_tokens: 100, completion_tokens: 8 };
const ENDED = { index: 0, delta: {}, finish_reason: 'stop' };

describe.each(APIS)('counts of tokens reach the client of %s', (api) => {
  const counted = (cached: number, written: number) =>
    api === 'messages'
      ? {
          input_tokens: 100 - cached - written,
          cache_read_input_tokens: cached,
          cache_creation_input_tokens: written,
          output_tokens: 8,
        }
      : { input_tokens: 100, input_tokens_details: { cached_tokens: cached }, output_tokens: 8 };

  it.each<[string, object, number, number]>([
    ['OpenAI', { usage: { ...PLAIN, prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 30 } } }, 60, 30],
    ['DeepSeek', { usage: { ...PLAIN, prompt_cache_hit_tokens: 60 } }, 60, 0],
    ['Moonshot', { usage: { ...PLAIN, cached_tokens: 60 } }, 60, 0],
    ['an engine that counts beside the usage', { usage: PLAIN, cached_tokens: 60 }, 60, 0],
    ['Groq', { x_groq: { usage: { ...PLAIN, prompt_tokens_details: { cached_tokens: 60 } } } }, 60, 0],
    [
      'Alibaba',
      { usage: { ...PLAIN, prompt_tokens_details: { cached_tokens: 0, cache_creation_input_tokens: 60 } } },
      0,
      60,
    ],
    ['llama-server', { timings: { prompt_n: 40, cache_n: 60, predicted_n: 8 } }, 60, 0],
    ['an engine that counts nothing cached', { usage: PLAIN }, 0, 0],
  ])('%s', (_, usage, cached, written) => {
    const stream = [
      { ...HEAD, choices: [ENDED] },
      { ...HEAD, choices: [], ...usage },
    ];
    const whole = { ...HEAD, choices: [{ index: 0, message: { content: 'x' }, finish_reason: 'stop' }], ...usage };
    for (const answer of [stream, whole]) expect(told(api, answer).usage).toMatchObject(counted(cached, written));
  });

  it('in the choice of a stream, as Moonshot writes them', () => {
    const usage = { ...PLAIN, cached_tokens: 60 };
    expect(told(api, [{ ...HEAD, choices: [{ ...ENDED, usage }] }]).usage).toMatchObject(counted(60, 0));
  });

  it('each as it was last stated, where they come apart', () => {
    const usage = { ...PLAIN, prompt_tokens_details: { cached_tokens: 60 } };
    const stream = [
      { ...HEAD, choices: [], usage },
      { ...HEAD, choices: [{ ...ENDED, usage: { completion_tokens: 8 } }] },
    ];
    expect(told(api, stream).usage).toMatchObject(counted(60, 0));
  });
});

/** The API's answer as its clients put it together: calls with their arguments, text, reasoning and the end. */
interface Read {
  readonly calls: readonly { readonly id: string; readonly name: string; readonly arguments: unknown }[];
  readonly text: string;
  readonly reasoning: string;
  readonly ending: unknown;
}

function answerTo(api: TranslatedApi, stream: boolean): TranslatedAnswer {
  return translate({ api, body: Buffer.from(JSON.stringify({ ...REQUESTS[api], stream })), requestId: 'r' }).answer;
}

function readMessages(events: readonly Told[]): Read {
  const blocks: { type: string; id: string; name: string; text: string }[] = [];
  let ending: unknown;
  for (const event of events) {
    const at = event['index'] as number;
    if (event.type === 'content_block_start')
      blocks[at] = { ...(event['content_block'] as (typeof blocks)[0]), text: '' };
    else if (event.type === 'content_block_delta') {
      const { text = '', thinking = '', partial_json = '' } = event['delta'] as Record<string, string>;
      blocks[at]!.text += text + thinking + partial_json;
    } else if (event.type === 'message_delta') ending = (event['delta'] as Record<string, unknown>)['stop_reason'];
  }
  const texts = (type: string) => blocks.filter((block) => block.type === type).map(({ text }) => text);
  const calls = blocks.filter(({ type }) => type === 'tool_use');
  return {
    calls: calls.map(({ id, name, text }) => ({ id, name, arguments: JSON.parse(text) })),
    text: texts('text').join(''),
    reasoning: texts('thinking').join(''),
    ending,
  };
}

function readResponse({ output, status }: Record<string, unknown>): Read {
  const items = output as readonly (Record<string, string> & { content: readonly { text: string }[] })[];
  const texts = (type: string) => items.filter((item) => item['type'] === type).map(({ content }) => content[0]!.text);
  const calls = items.filter(({ type }) => type === 'function_call');
  return {
    calls: calls.map((call) => ({
      id: call['call_id']!,
      name: call['name']!,
      arguments: JSON.parse(call['arguments']!),
    })),
    text: texts('message').join(''),
    reasoning: texts('reasoning').join(''),
    ending: calls.length > 0 && status === 'completed' ? 'tool_use' : status === 'completed' ? 'end_turn' : status,
  };
}

const eventsIn = (text: string) => [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!) as Told);

/** What a streaming client reads of a stream of these choices. */
function readStream(api: TranslatedApi, choices: readonly object[], finish: string): Read {
  const answer = answerTo(api, true);
  answer.start({ status: 200, contentType: 'text/event-stream' });
  const chunks = [
    ...choices.map((choice) => ({ index: 0, ...choice })),
    { index: 0, delta: {}, finish_reason: finish },
  ];
  const sent = chunks.map((choice) => `data: ${JSON.stringify({ ...HEAD, choices: [choice] })}\n\n`).join('');
  const events = eventsIn(answer.write(Buffer.from(`${sent}data: [DONE]\n\n`)) + answer.end());
  return api === 'messages'
    ? readMessages(events)
    : readResponse(events.at(-1)!['response'] as Record<string, unknown>);
}

const callsOf = (...names: readonly string[]) =>
  names.map((name, at) => ({ id: `c${at}`, name, arguments: { x: at } }));
const written = (value: unknown) => JSON.stringify(value);

describe.each(APIS)('tool calls in the forms of engines, to a client of %s', (api) => {
  const piece = (fields: object) => ({ delta: { tool_calls: [fields] } });
  const fn = (name: string | undefined, text: unknown) => ({ function: { name, arguments: text } });
  const NO_IDS = callsOf('f', 'g').map((call) => ({ ...call, id: expect.any(String) as string }));

  it.each<[string, readonly object[], readonly object[]]>([
    [
      'all with index 0, told apart by id',
      [piece({ index: 0, id: 'c0', ...fn('f', '{"x":0}') }), piece({ index: 0, id: 'c1', ...fn('f', '{"x":1}') })],
      callsOf('f', 'f'),
    ],
    [
      'all with index 0, in turns',
      [
        piece({ index: 0, id: 'c0', ...fn('f', '{"x"') }),
        piece({ index: 0, id: 'c1', ...fn('g', '{"x"') }),
        piece({ index: 0, id: 'c0', ...fn(undefined, ':0}') }),
        piece({ index: 0, id: 'c1', ...fn(undefined, ':1}') }),
      ],
      callsOf('f', 'g'),
    ],
    [
      'all with index 0 and no id',
      [piece({ index: 0, ...fn('f', '{"x":0}') }), piece({ index: 0, ...fn('g', '{"x":1}') })],
      NO_IDS,
    ],
    [
      'no index, told apart by id',
      [
        piece({ id: 'c0', ...fn('f', '{"x"') }),
        piece(fn(undefined, ':0}')),
        piece({ id: 'c1', ...fn('g', '{"x"') }),
        piece(fn(undefined, ':1}')),
      ],
      callsOf('f', 'g'),
    ],
    ['neither index nor id', [piece(fn('f', '{"x":0}')), piece(fn('g', '{"x":1}'))], NO_IDS],
    [
      'neither index nor id, of one tool',
      [piece(fn('f', '{"x":0}')), piece(fn('f', '{"x":1}'))],
      NO_IDS.map((call) => ({ ...call, name: 'f' })),
    ],
    [
      'neither index nor id, in one chunk',
      [
        { delta: { tool_calls: [fn('f', '{"x"'), fn('g', '{"x"')] } },
        { delta: { tool_calls: [fn(undefined, ':0}'), fn(undefined, ':1}')] } },
      ],
      NO_IDS,
    ],
    [
      'arguments as an object',
      [piece({ index: 0, id: 'c0', ...fn('f', { x: 0 }) }), piece({ index: 1, id: 'c1', ...fn('g', { x: 1 }) })],
      callsOf('f', 'g'),
    ],
    [
      'the id later',
      [
        piece({ index: 0, ...fn('f', '') }),
        piece({ index: 0, ...fn(undefined, '{"x"') }),
        piece({ index: 0, id: 'c0', ...fn(undefined, ':0}') }),
      ],
      callsOf('f'),
    ],
    [
      'the id behind the arguments',
      [piece({ index: 0, ...fn('f', '{"x":0}') }), piece({ index: 0, id: 'c0' })],
      callsOf('f'),
    ],
    [
      'the name later',
      [piece({ index: 0, id: 'c0', ...fn(undefined, '{"x"') }), piece({ index: 0, ...fn('f', ':0}') })],
      callsOf('f'),
    ],
    [
      'the id and the name in every piece',
      [piece({ index: 0, id: 'c0', ...fn('f', '{"x"') }), piece({ index: 0, id: 'c0', ...fn('f', ':0}') })],
      callsOf('f'),
    ],
    [
      'a new id in every piece',
      [piece({ index: 0, id: 'c0', ...fn('f', '{"x"') }), piece({ index: 0, id: 'other', ...fn(undefined, ':0}') })],
      callsOf('f'),
    ],
    [
      'one id for all',
      [piece({ index: 0, id: 'c0', ...fn('f', '{"x":0}') }), piece({ index: 1, id: 'c0', ...fn('g', '{"x":1}') })],
      [...callsOf('f'), { id: 'c0_1', name: 'g', arguments: { x: 1 } }],
    ],
    [
      'the arguments again at the end',
      [piece({ index: 0, id: 'c0', ...fn('f', '{"x":0}') }), piece({ index: 0, id: 'c0', ...fn('f', '{"x":0}') })],
      callsOf('f'),
    ],
    [
      'index as a string',
      [piece({ index: '0', id: 'c0', ...fn('f', '{"x":0}') }), piece({ index: '1', id: 'c1', ...fn('g', '{"x":1}') })],
      callsOf('f', 'g'),
    ],
    [
      'the old `function_call`',
      [
        { delta: { function_call: { name: 'f', arguments: '' } } },
        { delta: { function_call: { arguments: '{"x":0}' } } },
      ],
      NO_IDS.slice(0, 1),
    ],
    [
      'both forms at once',
      [
        {
          delta: {
            tool_calls: [{ index: 0, id: 'c0', ...fn('f', '{"x":0}') }],
            function_call: { name: 'f', arguments: '{"x":0}' },
          },
        },
      ],
      callsOf('f'),
    ],
  ])('%s', (_, choices, calls) => {
    for (const finish of ['tool_calls', 'stop', 'function_call'])
      expect(readStream(api, choices, finish)).toEqual({ calls, text: '', reasoning: '', ending: 'tool_use' });
  });

  it('in one piece, with arguments as text or object, numbered or not', () => {
    for (const index of [undefined, 0])
      for (const text of [written, (value: unknown) => value]) {
        const calls = callsOf('f', 'g').map((call) => ({ index, id: call.id, ...fn(call.name, text(call.arguments)) }));
        const answer = answerTo(api, false);
        answer.start({ status: 200, contentType: 'application/json' });
        const message = { role: 'assistant', content: null, tool_calls: calls };
        answer.write(Buffer.from(written({ ...HEAD, choices: [{ index: 0, message, finish_reason: 'tool_calls' }] })));
        const told = JSON.parse(answer.end()) as Record<string, unknown>;
        const inputs =
          api === 'messages'
            ? (told['content'] as readonly Record<string, unknown>[]).map(({ id, name, input }) => ({
                id,
                name,
                arguments: input,
              }))
            : readResponse(told).calls;
        expect(inputs).toEqual(callsOf('f', 'g'));
      }
  });

  it('are the same calls with the same arguments, whatever the order and the form of their pieces', () => {
    const anyCall = fc.record({
      name: fc.constantFrom('f', 'g', 'h'),
      value: fc.dictionary(fc.string({ maxLength: 6 }), fc.jsonValue({ maxDepth: 1 }), { maxKeys: 3 }),
      step: fc.integer({ min: 1, max: 9 }),
    });
    const form = fc.record({
      index: fc.constantFrom('own', 'zero', 'none'),
      /** Which pieces tell the id, and the name. */
      id: fc.constantFrom('first', 'all', 'last'),
      name: fc.constantFrom('first', 'all', 'last'),
      isMixed: fc.boolean(),
    });
    fc.assert(
      fc.property(
        fc.array(anyCall, { minLength: 1, maxLength: 4 }),
        form,
        fc.array(fc.nat(9), { minLength: 9 }),
        (calls, given, turns) => {
          const queues = calls.map(({ name, value, step }, at) => {
            const text = written(value);
            const pieces = text.match(new RegExp(`[^]{1,${step}}`, 'g'))!;
            const says = (which: string, place: number) =>
              which === 'all' || place === (which === 'first' ? 0 : pieces.length - 1);
            const index = { own: at, zero: 0, none: undefined }[given.index];
            return pieces.map((part, place) =>
              piece({
                index,
                ...(says(given.id, place) && { id: `c${at}` }),
                ...fn(says(given.name, place) ? name : undefined, part),
              }),
            );
          });
          // Calls go on by turns only where every piece says whose it is.
          const isMarked = given.index === 'own' || given.id === 'all';
          const sent: object[] = [];
          const waiting = queues.slice();
          for (let turn = 0; waiting.some((queue) => queue.length > 0); turn++) {
            const open = waiting.filter((queue) => queue.length > 0);
            const queue = open[given.isMixed && isMarked ? turns[turn % turns.length]! % open.length : 0]!;
            sent.push(queue.shift()!);
          }
          // Without a number, a call whose id comes last cannot be told from the call before it until then.
          fc.pre(given.index === 'own' || (given.id !== 'last' && given.name !== 'last'));
          const { calls: read } = readStream(api, sent, 'tool_calls');
          const wanted = calls.map(({ name, value }, at) => ({
            id: `c${at}`,
            name,
            arguments: JSON.parse(written(value)) as unknown,
          }));
          expect([...read].sort((a, b) => a.id.localeCompare(b.id))).toEqual(wanted);
        },
      ),
      { seed: 5, numRuns: runs(200) },
    );
  });
});

describe.each(APIS)('thoughts in the forms of engines, to a client of %s', (api) => {
  it.each<[string, object]>([
    ['`reasoning_content`', { reasoning_content: 'Hm.' }],
    ['`reasoning`', { reasoning: 'Hm.' }],
    ['both', { reasoning_content: 'Hm.', reasoning: 'Hm.' }],
    ['an empty one beside', { reasoning_content: '', reasoning: 'Hm.' }],
    ['an empty one beside, the other way round', { reasoning_content: 'Hm.', reasoning: '' }],
    ['null beside', { reasoning_content: null, reasoning: 'Hm.' }],
    ['details', { reasoning_details: [{ type: 'reasoning.text', text: 'Hm.' }] }],
    ['parts', { content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'Hm.' }] }] }],
  ])('%s', (_, delta) => {
    const read = readStream(api, [{ delta: { content: '', ...delta } }, { delta: { content: 'Yes.' } }], 'stop');
    expect(read).toEqual({ calls: [], text: 'Yes.', reasoning: 'Hm.', ending: 'end_turn' });
  });
});

/** What a client reads of an engine's bytes, or the error that ends the answer. */
function outcome(api: TranslatedApi, sent: string, { isStream = true, contentType = 'text/event-stream' } = {}) {
  const answer = answerTo(api, isStream);
  let text = '';
  try {
    answer.start({ status: 200, contentType });
    text += answer.write(Buffer.from(sent));
    text += answer.end();
    return { text, error: undefined };
  } catch (error) {
    if (!TranslateError.isInstance(error)) throw error;
    const told = answer.fail(error);
    const body = isStream && told.startsWith('event') ? eventsIn(told).at(-1)! : (JSON.parse(told) as Told);
    return { text: text + told, error: body['error'] as Record<string, unknown>, code: error.code };
  }
}

const chunk = (choice: object, more: object = {}) =>
  `data: ${written({ ...HEAD, choices: [{ index: 0, ...choice }], ...more })}\n\n`;
const HALF = chunk({ delta: { content: 'half' }, finish_reason: null });
const DONE = 'data: [DONE]\n\n';

describe.each(APIS)('an answer that is none is an error to a client of %s', (api) => {
  it.each<[string, string, RegExp]>([
    ...['abort', 'error', 'network_error', 'insufficient_system_resource', 'unheard_of'].flatMap(
      (reason): [string, string, RegExp][] => [
        [`the finish reason ${reason}`, HALF + chunk({ delta: {}, finish_reason: reason }), new RegExp(reason)],
        [
          `the finish reason ${reason}, and the end of the stream`,
          HALF + chunk({ delta: {}, finish_reason: reason }) + DONE,
          new RegExp(reason),
        ],
      ],
    ),
    ['an empty finish reason in every chunk', chunk({ delta: { content: 'half' }, finish_reason: '' }), /ended before/],
    [
      'an empty finish reason in every chunk, and the end',
      chunk({ delta: { content: 'half' }, finish_reason: '' }) + DONE,
      /ended before/,
    ],
    ['no finish reason', HALF + DONE, /ended before/],
    ['nothing at all', '', /ended before/],
    ['comments alone', ': wait\n\n', /ended before/],
    ['an error object', `${HALF}data: {"error":{"message":"out of memory"}}\n\n`, /out of memory/],
    ['an error text', `${HALF}data: {"error":"out of memory"}\n\n`, /out of memory/],
    [
      'an object that is an error',
      `${HALF}data: {"object":"error","message":"out of memory","code":500}\n\n${DONE}`,
      /out of memory/,
    ],
    [
      'a type that is an error',
      `${HALF}data: {"type":"error","error":{"type":"overloaded_error","message":"out of memory"}}\n\n`,
      /out of memory/,
    ],
    ['a detail', `${HALF}data: {"detail":"out of memory"}\n\n`, /out of memory/],
    ['details in a list', `${HALF}data: {"detail":[{"msg":"out of memory"}]}\n\n`, /out of memory/],
    ['several errors', `${HALF}data: {"errors":[{"message":"out of memory"}]}\n\n`, /out of memory/],
    ['a message alone', `${HALF}data: {"message":"out of memory","code":500}\n\n`, /out of memory/],
    [
      'an error of the choice',
      HALF + chunk({ delta: {}, finish_reason: 'error', error: { message: 'out of memory' } }),
      /out of memory/,
    ],
    [
      'an error beside the choices',
      HALF + chunk({ delta: { content: '' }, finish_reason: 'error' }, { error: { message: 'out of memory' } }),
      /out of memory/,
    ],
    [
      'an error behind its finish reason',
      `${HALF + chunk({ delta: {}, finish_reason: 'error' })}data: {"error":{"message":"out of memory"}}\n\n`,
      /out of memory/,
    ],
    ['an event that is called an error', `${HALF}event: error\ndata: out of memory\n\n`, /out of memory/],
    [
      'an event that is called an error, of another shape',
      `${HALF}event:error\r\ndata: {"reason":"out of memory"}\r\n\r\n`,
      /out of memory/,
    ],
    ['a field that is called an error', `${HALF}error: {"code":500,"message":"out of memory"}\n\n`, /out of memory/],
    ['a text that is no JSON', `${HALF}data: out of memory\n\n`, /out of memory/],
    ['JSON in the place of a stream', '{"error":{"message":"out of memory"}}', /out of memory/],
  ])('%s', (_, sent, message) => {
    const { text, error } = outcome(api, sent);
    expect(error?.['message']).toMatch(message);
    expect(text).not.toMatch(/message_stop|response\.completed|response\.incomplete/);
    // The client of an answer in one piece hears the same.
    expect(outcome(api, sent, { isStream: false }).error?.['message']).toMatch(message);
  });

  it.each<[string, object]>([
    ['an error object', { error: { message: 'out of memory' } }],
    ['an object that is an error', { object: 'error', message: 'out of memory', code: 500 }],
    ['an error of the choice', { choices: [{ error: { message: 'out of memory' } }] }],
    ['the finish reason abort', { choices: [{ message: { content: 'x' }, finish_reason: 'abort' }] }],
    ['no choices', { choices: [] }],
    ['nothing', {}],
  ])('in one piece: %s', (_, body) => {
    for (const isStream of [true, false]) {
      const { error, text } = outcome(api, written(body), { isStream, contentType: 'application/json' });
      expect(error).toBeDefined();
      expect(text).not.toMatch(/message_stop|"end_turn"|"completed"/);
    }
  });

  it('with the code, the kind and the place that the engine states', () => {
    const stated = {
      message: 'Too long.',
      type: 'invalid_request_error',
      code: 'context_length_exceeded',
      param: 'messages',
    };
    expect(outcome(api, `${HALF}data: ${written({ error: stated })}\n\n`).error).toEqual(stated);
    const { error } = outcome(api, `${HALF}data: ${written({ error: { message: 'Slow down.', code: 429 } })}\n\n`);
    expect(error).toMatchObject({ code: 429, ...(api === 'messages' && { type: 'rate_limit_error' }) });
  });
});

describe.each(APIS)('what engines write around an answer, to a client of %s', (api) => {
  const STREAM = chunk({ delta: { content: 'half' } }) + chunk({ delta: {}, finish_reason: 'stop' }) + DONE;
  const WHOLE = written({ ...HEAD, choices: [{ index: 0, message: { content: 'half' }, finish_reason: 'stop' }] });
  const TYPES = [
    'text/event-stream',
    'Text/Event-Stream',
    'text/plain',
    'application/octet-stream',
    'application/json',
    '',
  ];

  it.each(TYPES)('the content type `%s`', (contentType) => {
    for (const isStream of [true, false])
      for (const sent of [STREAM, WHOLE, `\uFEFF${STREAM}`, `\uFEFF${WHOLE}`, `\n\n ${WHOLE}`]) {
        const { text, error } = outcome(api, sent, { isStream, contentType });
        expect(error).toBeUndefined();
        expect(text).toContain('half');
        expect(text).toMatch(/end_turn|"completed"/);
      }
  });

  it('a stream of another content type is told as it comes', () => {
    const answer = answerTo(api, true);
    expect(answer.start({ status: 200, contentType: 'text/plain' }).isStreamed).toBe(true);
    expect(answer.write(Buffer.from(HALF))).toContain('half');
  });

  it('an empty first chunk, as Azure writes it, names no model', () => {
    const first = `data: ${written({ id: '', model: '', created: 0, object: '', choices: [], prompt_filter_results: [] })}\n\n`;
    for (const sent of [first + STREAM, first + STREAM.replaceAll('"model":"m"', '"model":""')]) {
      const { text } = outcome(api, sent);
      expect(text).toContain('"model":"m"');
      expect(text).not.toContain('"model":""');
    }
  });
});

it('a stream of Messages begins with an estimate of its prompt, and ends with the count', () => {
  const content = 'How much does it weigh? '.repeat(100);
  const body = Buffer.from(written({ model: 'm', max_tokens: 9, stream: true, messages: [{ role: 'user', content }] }));
  const ask = (sent: string) => {
    const { answer } = translate({ api: 'messages', body });
    answer.start({ status: 200, contentType: 'text/event-stream' });
    const events = eventsIn(answer.write(Buffer.from(sent)) + answer.end());
    const start = events.find(({ type }) => type === 'message_start')!['message'] as Told;
    return [start.usage['input_tokens'], events.find(({ type }) => type === 'message_delta')!.usage['input_tokens']];
  };
  const ended = chunk({ delta: { content: 'x' }, finish_reason: 'stop' });
  const [estimated, unchanged] = ask(ended);
  expect(estimated).toBeGreaterThan(400);
  expect(estimated).toBeLessThan(1_000);
  expect(unchanged).toBe(estimated);
  const usage = `data: ${written({ ...HEAD, choices: [], usage: PLAIN })}\n\n`;
  expect(ask(ended + usage)).toEqual([estimated, 100]);
  expect(ask(usage + ended)).toEqual([100, 100]);
});
