import { ObjectEnd } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { type TranslatedAnswer, type TranslatedApi, translate } from '../src/index.js';

const REQUESTS = { messages: { messages: [] }, responses: { input: 'Q', metadata: { a: 'b' } } };

function answerFor(api: TranslatedApi, stream: boolean, limitBytes = 1_000_000): TranslatedAnswer {
  const body = Buffer.from(JSON.stringify({ ...REQUESTS[api], stream }));
  return translate({ api, body, requestId: 'r', limitBytes }).answer;
}

interface Call {
  readonly id: string;
  readonly name: string;
  readonly text: string;
}

/** An answer of chat completions. */
interface Answer {
  readonly reasoning: string;
  readonly content: string;
  readonly calls: readonly Call[];
  readonly finish: string;
}

const USAGE = {
  prompt_tokens: 120,
  completion_tokens: 8,
  total_tokens: 128,
  prompt_tokens_details: { cached_tokens: 96 },
  completion_tokens_details: { reasoning_tokens: 3 },
};
const HEAD = { id: 'chatcmpl-1', created: 1_790_000_000, model: 'm' };

function wholeChat({ reasoning, content, calls, finish }: Answer): string {
  const message = {
    role: 'assistant',
    content: content === '' ? null : content,
    ...(reasoning !== '' && { reasoning_content: reasoning }),
    ...(calls.length > 0 && {
      tool_calls: calls.map(({ id, name, text }) => ({ id, type: 'function', function: { name, arguments: text } })),
    }),
  };
  return JSON.stringify({
    ...HEAD,
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: finish }],
    usage: USAGE,
  });
}

/** The same answer as a stream, its pieces cut as `cut` says; calls may be told at the same time. */
function streamedChat(
  answer: Answer,
  cut: (text: string) => string[],
  mix: (sequences: object[][]) => object[],
): string {
  const deltas: object[] = [{ role: 'assistant', content: '' }];
  for (const piece of cut(answer.reasoning)) deltas.push({ reasoning_content: piece });
  for (const piece of cut(answer.content)) deltas.push({ content: piece });
  const calls = answer.calls.map(({ id, name, text }, index) => [
    { tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] },
    ...cut(text).map((piece) => ({ tool_calls: [{ index, function: { arguments: piece } }] })),
  ]);
  deltas.push(...mix(calls));
  const chunks = [
    ...deltas.map((delta) => ({ ...HEAD, choices: [{ index: 0, delta, finish_reason: null }], usage: null })),
    { ...HEAD, choices: [{ index: 0, delta: {}, finish_reason: answer.finish }] },
    { ...HEAD, choices: [], usage: USAGE },
  ];
  return `: hello\n\n${chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('')}data: [DONE]\n\n`;
}

function read(answer: TranslatedAnswer, contentType: string, chunks: readonly Buffer[], status = 200): string {
  answer.start({ status, contentType });
  return chunks.map((chunk) => answer.write(chunk)).join('') + answer.end();
}

interface ServerEvent {
  readonly type: string;
  readonly [member: string]: unknown;
}

function events(text: string): ServerEvent[] {
  return text
    .split('\n\n')
    .filter((event) => event !== '' && !event.startsWith(':'))
    .map((event) => {
      const [, name, data] = /^event: (.*?)\ndata: (.*)$/s.exec(event)!;
      const value = JSON.parse(data!) as ServerEvent;
      expect(value.type).toBe(name);
      return value;
    });
}

/**
 * Puts a stream of Messages together, by Anthropic's documentation: blocks one after the other, each started and
 * stopped.
 */
function assembleMessages(stream: readonly ServerEvent[]): unknown {
  let message: Record<string, unknown> = {};
  const content: Record<string, unknown>[] = [];
  let open: Record<string, unknown> | undefined;
  let input = '';
  for (const event of stream) {
    if (event.type === 'message_start') message = { ...(event['message'] as object) };
    else if (event.type === 'content_block_start') {
      expect(open).toBeUndefined();
      expect(event['index']).toBe(content.length);
      open = { ...(event['content_block'] as object) };
      input = '';
      content.push(open);
    } else if (event.type === 'content_block_delta') {
      expect(event['index']).toBe(content.length - 1);
      const { type, ...delta } = event['delta'] as Record<string, string>;
      if (type === 'input_json_delta') input += delta['partial_json'];
      else for (const [key, text] of Object.entries(delta)) open![key] = (open![key] as string) + text;
    } else if (event.type === 'content_block_stop') {
      if (input !== '') open!['input'] = JSON.parse(input);
      open = undefined;
    } else if (event.type === 'message_delta') Object.assign(message, event['delta'], { usage: event['usage'] });
  }
  expect(open).toBeUndefined();
  expect(stream.at(-1)!.type).toBe('message_stop');
  return { ...message, content };
}

/** Puts a stream of Responses together from its deltas; the response that ends it must say the same. */
function assembleResponse(stream: readonly ServerEvent[]): unknown {
  expect(stream.map((event) => event['sequence_number'])).toEqual(stream.map((_, place) => place));
  const output: { content?: Record<string, string>[]; arguments?: string; [member: string]: unknown }[] = [];
  for (const event of stream) {
    const place = event['output_index'] as number;
    const part = output[place]?.content?.[event['content_index'] as number];
    if (event.type === 'response.output_item.added')
      output[place] = structuredClone(event['item'] as (typeof output)[number]);
    else if (event.type === 'response.content_part.added')
      output[place]!.content!.push({ ...(event['part'] as object) });
    else if (event.type === 'response.function_call_arguments.delta')
      output[place]!.arguments! += event['delta'] as string;
    else if (event.type.endsWith('.delta')) {
      const key = event.type.includes('refusal') ? 'refusal' : 'text';
      part![key] += event['delta'] as string;
    } else if (event.type === 'response.output_item.done') {
      const item = event['item'] as (typeof output)[number];
      expect({ ...output[place], status: item['status'] }).toEqual(item);
      output[place] = item;
    }
  }
  const last = stream.at(-1)!;
  const response = last['response'] as { status: string; output: unknown };
  expect(last.type).toBe(`response.${response.status}`);
  expect(response.output).toEqual(output);
  // An answer is cut in its last item.
  const stages = output.map((item) => item['status']);
  const isCut = response.status === 'incomplete' && output.length > 0;
  expect(stages).toEqual(output.map((_, place) => (isCut && place === output.length - 1 ? 'incomplete' : 'completed')));
  return response;
}

const ASSEMBLE = { messages: assembleMessages, responses: assembleResponse };

const text = fc.string({ unit: 'grapheme', maxLength: 40 });
const anyAnswer: fc.Arbitrary<Answer> = fc
  .record({
    reasoning: fc.oneof(fc.constant(''), text),
    content: text,
    calls: fc.array(
      fc.record({
        id: fc.string({ minLength: 1, maxLength: 5 }),
        name: fc.string({ minLength: 1, maxLength: 5 }),
        text: fc.dictionary(text, fc.jsonValue({ maxDepth: 1 }), { maxKeys: 3 }).map((value) => JSON.stringify(value)),
      }),
      { maxLength: 3 },
    ),
    finish: fc.constantFrom('stop', 'length', 'content_filter'),
  })
  .map((answer) => (answer.calls.length > 0 ? { ...answer, finish: 'tool_calls' } : answer));

describe.each(['messages', 'responses'] as const)('an answer in the words of %s', (api) => {
  it('is the same streamed and in one piece, however the engine cuts it', () => {
    fc.assert(
      fc.property(
        anyAnswer,
        fc.array(fc.nat(6), { minLength: 1, maxLength: 40 }),
        fc.array(fc.nat(4_000)),
        (answer, numbers, places) => {
          let taken = 0;
          const next = () => numbers[taken++ % numbers.length]!;
          const cut = (whole: string): string[] => {
            const pieces = [];
            const characters = [...whole];
            while (characters.length > 0) pieces.push(characters.splice(0, 1 + next()).join(''));
            return pieces;
          };
          const mix = (sequences: object[][]): object[] => {
            const mixed: object[] = [];
            // A call begins after the ones before it, and goes on whenever it likes.
            const waiting = sequences.slice();
            const begun: object[][] = [];
            while (waiting.length > 0 || begun.length > 0) {
              const starts = waiting.length > 0 && (begun.length === 0 || next() === 0);
              if (starts) begun.push(waiting.shift()!);
              const place = starts ? begun.length - 1 : next() % begun.length;
              mixed.push(begun[place]!.shift()!);
              if (begun[place]!.length === 0) begun.splice(place, 1);
            }
            return mixed;
          };
          const whole = JSON.parse(
            read(answerFor(api, false), 'application/json', [Buffer.from(wholeChat(answer))]),
          ) as object;
          const stream = streamedChat(answer, cut, mix);
          const bytes = Buffer.from(next() > 3 ? stream.replaceAll('\n', '\r\n') : stream);
          const ends = [0, ...places.map((place) => place % bytes.length).sort((a, b) => a - b), bytes.length];
          const chunks = ends.slice(1).map((end, i) => bytes.subarray(ends[i], end));
          const streamed = read(answerFor(api, true), 'text/event-stream', chunks);
          expect(ASSEMBLE[api](events(streamed))).toEqual(whole);
          // The engine sends the other form than was asked for.
          expect(JSON.parse(read(answerFor(api, false), 'text/event-stream', chunks))).toEqual(whole);
          const late = read(answerFor(api, true), 'application/json', [Buffer.from(wholeChat(answer))]);
          expect(ASSEMBLE[api](events(late))).toEqual(whole);
        },
      ),
      { seed: 31, numRuns: runs(150) },
    );
  });

  it.each([
    ['no JSON', '{"id":', 'application/json', 'WARMPATH_UPSTREAM_ERROR'],
    ['a page', '<html>', 'text/html', 'WARMPATH_UPSTREAM_ERROR'],
    ['a stream of no JSON', 'data: {"id"\n\n', 'text/event-stream', 'WARMPATH_UPSTREAM_ERROR'],
    [
      'an error in the stream',
      'data: {"error":{"message":"boom"}}\n\n',
      'text/event-stream',
      'WARMPATH_UPSTREAM_ERROR',
    ],
    ['a stream that stops', 'data: {"id":"a","choices":[]}\n\n', 'text/event-stream', 'WARMPATH_UPSTREAM_CUT'],
    [
      'an object longer than is taken',
      `{"choices":[],"x":"${'x'.repeat(2_000)}"}`,
      'application/json',
      'WARMPATH_UPSTREAM_ERROR',
    ],
    ['more than is taken', `data: ${'x'.repeat(2_000)}`, 'text/event-stream', 'WARMPATH_UPSTREAM_ERROR'],
    ['an event without an end', 'data: x\n'.repeat(200), 'text/event-stream', 'WARMPATH_UPSTREAM_ERROR'],
  ])('%s is an error', (_, sent, type, code) => {
    const attempt = () => read(answerFor(api, true, 1_000), type, [Buffer.from(sent)]);
    expect(attempt).toThrow(expect.objectContaining({ code }) as Error);
  });

  it('a stream that breaks off ends in an error', () => {
    const translated = answerFor(api, true);
    translated.start({ status: 200, contentType: 'text/event-stream' });
    translated.write(
      Buffer.from(`data: ${JSON.stringify({ ...HEAD, choices: [{ delta: { content: 'half' } }] })}\n\n`),
    );
    const told = events(translated.fail({ code: 'WARMPATH_UPSTREAM_CUT', message: 'Cut.' }));
    expect(told.at(-1)).toMatchObject({ type: 'error', error: { code: 'WARMPATH_UPSTREAM_CUT' } });
    if (api === 'messages') return;
    const output = [{ type: 'message', status: 'incomplete' }];
    const response = { status: 'failed', error: { code: 'WARMPATH_UPSTREAM_CUT' }, output };
    expect(told.at(-2)).toMatchObject({ type: 'response.failed', response });
  });
});

it('events end in CRLF, and may come in several lines', () => {
  const chunk = JSON.stringify({ ...HEAD, choices: [{ delta: { content: 'x' }, finish_reason: 'stop' }] }, null, 1);
  const sent = `${chunk.replace(/^/gm, 'data: ').replaceAll('\n', '\r\n')}\r\n\r\n`;
  expect(read(answerFor('messages', true), 'text/event-stream', [Buffer.from(sent)])).toContain(
    '"text_delta","text":"x"',
  );
});

describe('what engines write in their own way', () => {
  const streamOf = (...deltas: object[]) =>
    Buffer.from(
      [...deltas.map((delta) => ({ choices: [{ delta }] })), { choices: [{ delta: {}, finish_reason: 'stop' }] }]
        .map((chunk) => `data: ${JSON.stringify({ ...HEAD, ...chunk })}\n\n`)
        .join(''),
    );

  it('a call without arguments has an empty object, which clients can parse', () => {
    const call = { tool_calls: [{ index: 0, id: 'c', function: { name: 'now', arguments: '' } }] };
    const streamed = assembleResponse(
      events(read(answerFor('responses', true), 'text/event-stream', [streamOf(call)])),
    );
    expect(streamed).toMatchObject({ output: [{ name: 'now', arguments: '{}', status: 'completed' }] });
    const message = assembleMessages(events(read(answerFor('messages', true), 'text/event-stream', [streamOf(call)])));
    expect(message).toMatchObject({ content: [{ type: 'tool_use', name: 'now', input: {} }] });
  });

  it('content in parts, thoughts among them, is said like any other', () => {
    const content = [
      { type: 'thinking', thinking: [{ type: 'text', text: 'Hm.' }] },
      { type: 'text', text: 'Yes.' },
    ];
    const message = assembleMessages(
      events(read(answerFor('messages', true), 'text/event-stream', [streamOf({ content }, { content: ' No.' })])),
    );
    expect(message).toMatchObject({
      content: [
        { type: 'thinking', thinking: 'Hm.' },
        { type: 'text', text: 'Yes. No.' },
      ],
    });
  });
});

it('the end of an object is found where it is, however it is cut, and however deep it is', () => {
  fc.assert(
    fc.property(fc.dictionary(text, fc.jsonValue()), fc.nat(9), (value, step) => {
      const json = JSON.stringify(value);
      const end = new ObjectEnd();
      for (let at = 0; at < json.length; at += step + 1) {
        expect(end.isReached).toBe(false);
        end.read(json.slice(at, at + step + 1));
      }
      expect(end.isReached).toBe(true);
    }),
    { seed: 7, numRuns: runs(300) },
  );
});

it('long arguments of calls that go on by turns are put together in one pass', () => {
  const translated = answerFor('messages', true);
  translated.start({ status: 200, contentType: 'text/event-stream' });
  const chunk = (...calls: object[]) =>
    Buffer.from(`data: ${JSON.stringify({ ...HEAD, choices: [{ delta: { tool_calls: calls } }] })}\n\n`);
  const call = (index: number, text: string, id?: string) => ({
    index,
    id,
    function: { name: id && 'f', arguments: text },
  });
  translated.write(chunk(call(0, '{"a":"', 'a'), call(1, '{"b":"', 'b')));
  const pieces = 30_000;
  for (let i = 0; i < pieces; i++) translated.write(chunk(call(0, '{}}}'), call(1, '}{}}')));
  const told = events(translated.write(chunk(call(0, '"}'), call(1, '"}'))));
  const { delta } = told.at(-1) as unknown as { readonly delta: { readonly partial_json: string } };
  expect(delta.partial_json).toBe('"}');
  expect(told.filter(({ type }) => type === 'content_block_stop')).toHaveLength(1);
});

describe('numbers that JavaScript cannot hold', () => {
  it('survive in the input of a tool', () => {
    const calls = [{ id: 'c', name: 'f', text: '{"id": 12345678901234567890, "x": 1.0}' }];
    const sent = wholeChat({ reasoning: '', content: '', calls, finish: 'tool_calls' });
    expect(read(answerFor('messages', false), 'application/json', [Buffer.from(sent)])).toContain(
      '"input":{"id": 12345678901234567890, "x": 1.0}',
    );
  });
});

describe('arguments that are no JSON object reach a client of Messages', () => {
  it.each([
    ['a list', '[1', { INVALID_JSON: '[1' }],
    ['a text', 'ls -l', { INVALID_JSON: 'ls -l' }],
    ['null', 'null', { INVALID_JSON: 'null' }],
    ['a part of an object', '{"a":1,', { INVALID_JSON: '{"a":1,' }],
    ['the JSON of an object as a text', ' "{\\"a\\":1}"', { a: 1 }],
    ['the JSON of a text as a text', '"ls"', { INVALID_JSON: '"ls"' }],
    ['white space', '  ', {}],
  ])('%s', (_, text, input) => {
    const answer = { reasoning: '', content: '', calls: [{ id: 'c', name: 'f', text }], finish: 'tool_calls' };
    const whole = read(answerFor('messages', false), 'application/json', [Buffer.from(wholeChat(answer))]);
    expect(JSON.parse(whole)).toMatchObject({ content: [{ type: 'tool_use', input }] });
    const streamed = streamedChat(
      answer,
      (all) => all.match(/.{1,2}/gs) ?? [],
      (sequences) => sequences.flat(),
    );
    const told = events(read(answerFor('messages', true), 'text/event-stream', [Buffer.from(streamed)]));
    const json = told.map(({ delta }) => (delta as { partial_json?: string } | undefined)?.partial_json ?? '').join('');
    // What began as an object went out already, and says it itself.
    expect(json).toBe(text.startsWith('{') ? text : text.trim() === '' ? `${text}{}` : JSON.stringify(input));
  });
});

describe('stop reasons and counts', () => {
  const messages = (finish: string, fields: object = {}) => {
    const choice = { index: 0, message: { content: 'x' }, finish_reason: finish, ...fields };
    const sent = JSON.stringify({ ...HEAD, choices: [choice], usage: USAGE });
    return JSON.parse(read(answerFor('messages', false), 'application/json', [Buffer.from(sent)])) as object;
  };

  it.each([
    ['stop', 'end_turn'],
    ['length', 'max_tokens'],
    ['content_filter', 'refusal'],
    ['eos_token', 'end_turn'],
    ['STOP', 'end_turn'],
    ['MAX_TOKENS', 'max_tokens'],
    ['SAFETY', 'refusal'],
    // Without a call, there is no tool to use.
    ['tool_calls', 'end_turn'],
  ])('%s is %s', (finish, stopReason) => {
    expect(messages(finish)).toMatchObject({ stop_reason: stopReason, stop_sequence: null });
  });

  it.each(['stop_reason', 'matched_stop'])(
    'a stop string that the engine names in `%s` is a stop sequence',
    (field) => {
      expect(messages('stop', { [field]: 'END' })).toMatchObject({
        stop_reason: 'stop_sequence',
        stop_sequence: 'END',
      });
      // A number is the token that ended it.
      expect(messages('stop', { [field]: 2 })).toMatchObject({ stop_reason: 'end_turn', stop_sequence: null });
    },
  );

  it('cached tokens stand where each API has them', () => {
    expect(messages('stop')).toMatchObject({
      usage: { input_tokens: 24, cache_read_input_tokens: 96, cache_creation_input_tokens: 0, output_tokens: 8 },
    });
    const sent = wholeChat({ reasoning: '', content: 'x', calls: [], finish: 'stop' });
    expect(JSON.parse(read(answerFor('responses', false), 'application/json', [Buffer.from(sent)]))).toMatchObject({
      metadata: { a: 'b' },
      store: false,
      usage: {
        input_tokens: 120,
        input_tokens_details: { cached_tokens: 96 },
        output_tokens: 8,
        output_tokens_details: { reasoning_tokens: 3 },
        total_tokens: 128,
      },
    });
  });
});
