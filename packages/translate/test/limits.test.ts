import { describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import {
  AnswerAssembly,
  type AnswerEvents,
  type ChatDelta,
  MAX_TOOL_CALLS,
  NO_EVENTS,
} from '../src/answer-assembly.js';
import { type TranslatedAnswer, type TranslatedApi, TranslateError, translate } from '../src/index.js';
import { messagesWriter } from '../src/messages-writer.js';
import { MAX_DEPTH } from '../src/request-value.js';

const APIS = ['messages', 'responses'] as const;
const REQUESTS = { messages: { messages: [] }, responses: { input: 'Q' } };

function answerFor(api: TranslatedApi, fields: object, limitBytes?: number): TranslatedAnswer {
  const body = Buffer.from(JSON.stringify({ ...REQUESTS[api], ...fields }));
  return translate({ api, body, ...(limitBytes !== undefined && { limitBytes }) }).answer;
}

function refusalOf(step: () => unknown): TranslateError {
  try {
    step();
  } catch (error) {
    if (TranslateError.isInstance(error)) return error;
    throw error;
  }
  return expect.fail('It was accepted.');
}

function nested(levels: number, open: string, inner: string, close: string): string {
  return open.repeat(levels) + inner + close.repeat(levels);
}

describe('a body that is nested deep', () => {
  const document = (levels: number) => {
    const open = '{"type":"document","source":{"type":"content","content":[';
    return `{"messages":[{"role":"user","content":[${nested(levels, open, '{"type":"text","text":"x"}', ']}}')}]}]}`;
  };
  const schema = (levels: number) => nested(levels, '{"a":', '1', '}');
  const cases: readonly (readonly [string, TranslatedApi, (levels: number) => string])[] = [
    ['x[0][0][0][0][0][0][0]', 'messages', (levels) => `{"messages":[],"x":${nested(levels, '[', '1', ']')}}`],
    [
      'metadata.user_id[0][0][0][0][0][0]',
      'messages',
      (levels) => `{"messages":[],"metadata":{"user_id":${nested(levels, '[', '', ']')}}}`,
    ],
    [
      'tools[0].input_schema.a.a.a.a.a',
      'messages',
      (levels) => `{"messages":[],"tools":[{"name":"f","input_schema":${schema(levels)}}]}`,
    ],
    ['messages[0].content[0].source.content[0].source', 'messages', document],
    [
      'tools[0].parameters.a.a.a.a.a',
      'responses',
      (levels) => `{"input":"q","tools":[{"type":"function","name":"f","parameters":${schema(levels)}}]}`,
    ],
    [
      'input[0].content[0].input_audio.a.a.a',
      'responses',
      (levels) => `{"input":[{"role":"user","content":[{"type":"input_audio","input_audio":${schema(levels)}}]}]}`,
    ],
  ];

  it.each(cases)('is refused with a path: %s', (path, api, bodyOf) => {
    for (const levels of [MAX_DEPTH, 5_000, 100_000]) {
      const error = refusalOf(() => translate({ api, body: Buffer.from(bodyOf(levels)) }));
      expect(error).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', path });
      expect(error.message).toBe(`${path}: nested deeper than the 256 levels that are read`);
    }
  });

  it.each(APIS)('is translated, and answered, up to the limit: %s', (api) => {
    const tool = api === 'messages' ? { name: 'f', input_schema: 0 } : { type: 'function', name: 'f', parameters: 0 };
    // The body, the tools and the tool are levels, too.
    const deepest = schema(MAX_DEPTH - 3);
    const text = JSON.stringify({ ...REQUESTS[api], tools: [tool] }).replace(':0', `:${deepest}`);
    const { body, answer } = translate({ api, body: Buffer.from(text) });
    expect(body).toContain(deepest);
    answer.start({ status: 200, contentType: 'application/json' });
    answer.write(Buffer.from('{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}]}'));
    expect(answer.end()).toContain('yes');
    const deeper = text.replace(deepest, schema(MAX_DEPTH - 2));
    expect(refusalOf(() => translate({ api, body: Buffer.from(deeper) })).code).toBe('WARMPATH_INVALID_REQUEST');
  });

  it('is counted outside of texts only', () => {
    const body = Buffer.from(JSON.stringify({ input: `\\"${'[{'.repeat(300)}\\\\` }));
    expect(JSON.parse(translate({ api: 'responses', body }).body)).toMatchObject({ messages: [{ role: 'user' }] });
  });
});

it('documents in the content of a document are left out: the API itself has none', () => {
  const inner = { type: 'document', source: { type: 'text', data: 'x' } };
  const outer = { type: 'document', source: { type: 'content', content: [inner] } };
  const body = Buffer.from(JSON.stringify({ messages: [{ role: 'user', content: [outer] }] }));
  expect(translate({ api: 'messages', body })).toMatchObject({
    body: expect.stringContaining('[document left out]'),
    warnings: [{ path: 'messages[0].content[0].source.content[0].type' }],
  });
});

it('a message of very many parts is translated', () => {
  const parts = 130_000;
  const many = (part: object) => Array.from({ length: parts }, () => part);
  const text = { type: 'text', text: 'x' };
  const bodies = {
    messages: { messages: ['user', 'assistant'].map((role) => ({ role, content: many(text) })) },
    responses: {
      input: [
        { role: 'user', content: many(text) },
        { type: 'reasoning', content: many(text) },
        { role: 'assistant', content: many(text) },
      ],
    },
  };
  for (const api of isFull ? APIS : APIS.slice(0, 1)) {
    const { body } = translate({ api, body: Buffer.from(JSON.stringify(bodies[api])) });
    const { messages } = JSON.parse(body) as { messages: { content: object[] }[] };
    expect(messages.map(({ content }) => content.length)).toEqual([parts, parts]);
  }
});

describe('tool calls that go on by turns', () => {
  const chunk = (choice: object) =>
    Buffer.from(`data: ${JSON.stringify({ id: 'a', model: 'm', choices: [choice] })}\n\n`);
  const begun = (index: number) => ({ index, id: `c${index}`, function: { name: 'f', arguments: '{"a":' } });
  const ended = (index: number) => ({ index, function: { arguments: `${index}}` } });

  /** The events of a stream in which all calls are open at the same time. */
  function streamOf(calls: number): Buffer[] {
    const all = Array.from({ length: calls }, (_, index) => index);
    return [
      ...all.map((index) => chunk({ delta: { tool_calls: [begun(index)] } })),
      ...all.map((index) => chunk({ delta: { tool_calls: [ended(index)] } })),
      chunk({ delta: {}, finish_reason: 'tool_calls' }),
    ];
  }

  const lastEvent = (text: string) => {
    const [, type, data] = /event: (\S+)\ndata: (.*)\n\n$/.exec(text)!;
    return { type, data: JSON.parse(data!) as Record<string, unknown> };
  };

  it.each(APIS)('are taken up to a limit; one more ends the stream in an error of %s', (api) => {
    const answer = answerFor(api, { stream: true });
    answer.start({ status: 200, contentType: 'text/event-stream' });
    const whole = streamOf(MAX_TOOL_CALLS).map((part) => answer.write(part));
    whole.push(answer.end());
    const stops = whole.join('').match(/event: (content_block_stop|response.output_item.done)\n/g);
    expect(stops).toHaveLength(MAX_TOOL_CALLS);
    expect(lastEvent(whole.join('')).type).toBe(api === 'messages' ? 'message_stop' : 'response.completed');

    const next = answerFor(api, { stream: true });
    next.start({ status: 200, contentType: 'text/event-stream' });
    const error = refusalOf(() => {
      for (const part of streamOf(MAX_TOOL_CALLS + 1)) next.write(part);
    });
    expect(error).toMatchObject({ code: 'WARMPATH_UPSTREAM_ERROR', path: undefined });
    const { type, data } = lastEvent(next.fail(error));
    const { message, code } = error;
    expect(type).toBe('error');
    expect(data['error']).toMatchObject({ message, code });
  });

  it.each(APIS)('too many in one piece end in an error of %s', (api) => {
    const answer = answerFor(api, {});
    answer.start({ status: 200, contentType: 'application/json' });
    const tool_calls = Array.from({ length: MAX_TOOL_CALLS + 1 }, (_, index) => begun(index));
    answer.write(Buffer.from(JSON.stringify({ choices: [{ message: { tool_calls }, finish_reason: 'tool_calls' }] })));
    const error = refusalOf(() => answer.end());
    expect(JSON.parse(answer.fail(error))).toMatchObject({ error: { code: 'WARMPATH_UPSTREAM_ERROR' } });
  });

  /**
   * Steps of an answer in which all calls are open at the same time; `onRead` is told when one of them is looked at.
   */
  function deltasOf(calls: number, onRead: () => void, isComplete: boolean): ChatDelta[] {
    const delta = (index: number, fields: object, text: string): ChatDelta => {
      const given = { kind: 'call' as const, index, id: undefined, name: undefined, ...fields, text };
      return new Proxy(given, {
        get: (target, key) => {
          onRead();
          return target[key as keyof typeof target];
        },
      });
    };
    const all = Array.from({ length: calls }, (_, index) => index);
    return [
      { kind: 'head', id: 'a', model: 'm', created: 1 },
      ...all.map((index) => delta(index, { id: `c${index}`, name: 'f' }, isComplete ? '{"a":' : '')),
      ...(isComplete ? all.map((index) => delta(index, {}, '1}')) : []),
      { kind: 'finish', reason: 'tool_calls', stop: undefined },
    ];
  }

  /** Looks at steps, events and characters of an answer. */
  function workOf(calls: number, isComplete: boolean) {
    const work = { reads: 0, events: 0, characters: 0 };
    const writer = messagesWriter();
    const count = (written: string) => {
      work.events++;
      work.characters += written.length;
      return written;
    };
    const counting: AnswerEvents = {
      start: (head, usage) => count(writer.start(head, usage)),
      open: (block) => count(writer.open(block)),
      append: (block, text) => count(writer.append(block, text)),
      close: (block) => count(writer.close(block)),
      end: (answer) => count(writer.end(answer)),
      fail: (failure, answer) => count(writer.fail(failure, answer)),
    };
    const assembly = new AnswerAssembly(counting);
    const deltas = deltasOf(calls, () => work.reads++, isComplete);
    for (const delta of deltas) assembly.add(delta);
    assembly.end();
    return work;
  }

  it.each([
    ['whose arguments end', true],
    ['without arguments', false],
  ])('cost the same work each, however many are open: calls %s', (_, isComplete) => {
    const few = workOf(100, isComplete);
    const many = workOf(1_000, isComplete);
    expect(many.reads).toBe(10 * few.reads);
    // One event for the start of the answer, and one for its end.
    expect(many.events - 2).toBe(10 * (few.events - 2));
    // Longer numbers.
    expect(many.characters).toBeLessThan(10.5 * few.characters);
  });

  it('are given to the client one after the other, each with all its text', () => {
    const assembly = new AnswerAssembly(messagesWriter());
    for (const delta of deltasOf(3, () => {}, true).slice(0, -2)) assembly.add(delta);
    assembly.add({ kind: 'text', text: 'later' });
    assembly.add({ kind: 'text', text: ' still' });
    const written = assembly.add({ kind: 'call', index: 2, id: undefined, name: undefined, text: '3}' });
    expect([...written.matchAll(/"(?:partial_json|text)":"([^"]*)"/g)].map(([, text]) => text)).toEqual([
      '3}',
      '',
      'later still',
    ]);
  });

  const call = (index: number, text: string): ChatDelta => {
    return { kind: 'call', index, id: `c${index}`, name: 'f', text };
  };

  /** Calls of an answer that was cut: the arguments of each, and whether it was cut in them. */
  function cutCalls(...deltas: readonly ChatDelta[]) {
    const assembly = new AnswerAssembly(NO_EVENTS);
    for (const delta of deltas) assembly.add(delta);
    assembly.add({ kind: 'finish', reason: 'length', stop: undefined });
    assembly.end();
    return assembly.answer().blocks.map(({ text, isCut }) => [text, isCut]);
  }

  it('are cut where an answer is cut: each of which a part is missing, and the last one', () => {
    expect(cutCalls(call(0, '{"a":'), call(1, '{}'), call(2, '{"b"'))).toEqual([
      ['{"a":', true],
      ['{}', false],
      ['{"b"', true],
    ]);
    expect(cutCalls(call(0, ''), call(1, '{}'))).toEqual([
      ['{}', false],
      ['{}', true],
    ]);
  });

  it('may have white space behind their arguments', () => {
    const calls = cutCalls(call(0, '{}'), call(1, '{"b"'), call(0, ' \n'), call(1, ':1}'));
    expect(calls.map(([text]) => text)).toEqual(['{}', '{"b":1}']);
  });

  it('that waited when a stream broke off are not part of the answer', () => {
    const assembly = new AnswerAssembly(NO_EVENTS);
    for (const delta of [call(0, '{"a":'), call(1, '{}')]) assembly.add(delta);
    assembly.fail({ code: null, message: 'Cut.' });
    expect(assembly.answer().blocks.map(({ text, isCut }) => [text, isCut])).toEqual([['{"a":', true]]);
  });
});

describe('the size of an answer', () => {
  it('counts blocks, too: very many short ones are refused like one long one', () => {
    const answer = answerFor('messages', { stream: true }, 100_000);
    answer.start({ status: 200, contentType: 'text/event-stream' });
    const turns = ['content', 'reasoning'].map((kind) => {
      return Buffer.from(`data: ${JSON.stringify({ id: 'a', choices: [{ delta: { [kind]: 'x' } }] })}\n\n`);
    });
    let blocks = 0;
    const error = refusalOf(() => {
      for (; blocks < 100_000; blocks++) answer.write(turns[blocks % 2]!);
    });
    expect(error.code).toBe('WARMPATH_UPSTREAM_ERROR');
    expect(blocks).toBeLessThan(200);
  });

  it('counts what waits behind a tool call, and what belongs to none any more', () => {
    const assembly = new AnswerAssembly(NO_EVENTS);
    for (const index of [0, 1]) {
      assembly.add({ kind: 'call', index, id: 'c', name: 'f', text: '{"a"' });
      const before = assembly.size;
      assembly.add({ kind: 'call', index, id: undefined, name: undefined, text: 'x'.repeat(1_000) });
      expect(assembly.size).toBe(before + 1_000);
    }
  });
});

it.each(APIS)('what came before an error in the same chunk reaches the client of %s', (api) => {
  const answer = answerFor(api, { stream: true });
  answer.start({ status: 200, contentType: 'text/event-stream' });
  const half = `data: ${JSON.stringify({ id: 'a', choices: [{ delta: { content: 'half' } }] })}\n\n`;
  const error = refusalOf(() => answer.write(Buffer.from(`${half}data: {"error":{"message":"boom"}}\n\n`)));
  const events = answer.fail(error);
  expect(events.indexOf('half')).toBeGreaterThan(0);
  expect(events.lastIndexOf('boom')).toBeGreaterThan(events.indexOf('half'));
});
