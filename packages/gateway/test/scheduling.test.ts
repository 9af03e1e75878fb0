import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { arrange } from '@warmpath/core';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { resolveConfig } from '../src/config/load.js';
import { configuredDialect } from '../src/dialects/dialects.js';
import { type Dispatch, DispatchQueue } from '../src/engines/dispatch-queue.js';
import { QueueReports, sumOfMetric } from '../src/engines/engine.js';
import type { Upstream, UpstreamListener } from '../src/engines/upstream.js';
import { EventLoopBudget } from '../src/limits/load.js';
import { CHAT_STREAM, startStream } from './fake-engine.js';
import {
  chat,
  DOCUMENTS,
  errorOf,
  metricOf,
  openRequest,
  type Reply,
  type StandConfig,
  send,
  stand,
  untilMetric,
} from './harness.js';

const PATH = '/v1/chat/completions';

/** An engine whose answers begin and end when they are told to, behind a gateway with a clock that stands still. */
async function told(config: StandConfig) {
  const held: ServerResponse[] = [];
  const clock = { now: 1_000 };
  const both = await stand((response) => held.push(response), config, { now: () => clock.now });
  const users = () => both.engine.received.map(({ body }) => (JSON.parse(body) as { user?: string }).user);
  const post = (body: object, headers: Readonly<Record<string, string>> = {}) =>
    send(both.gateway.url + PATH, body, { headers });
  return { ...both, both, held, clock, users, post };
}

const asked = (user: string, fields: object = {}) => chat(DOCUMENTS, { user, ...fields });

describe('priorities', () => {
  it.each([
    ['vllm', ['first', 'urgent', 'unsaid', 'idle']],
    ['sglang', ['first', 'idle', 'unsaid', 'urgent']],
    ['generic', ['first', 'unsaid', 'idle', 'urgent']],
  ] as const)('go in the direction of the engine: %s', async (dialect, order) => {
    const { both, engine, held, users, post } = await told({ upstream: { maxConcurrent: 1, dialect } });
    const replies = [post(asked('first'))];
    await engine.until('request', 1);
    for (const [user, priority] of [['unsaid'], ['idle', 7], ['urgent', -7]] as const) {
      replies.push(post(asked(user, priority === undefined ? {} : { priority })));
      await untilMetric(both.gateway, 'warmpath_queue_depth', replies.length - 1);
    }
    for (let place = 0; place < 4; place++) {
      await engine.until('request', place + 1);
      held[place]!.end('{}');
    }
    expect((await Promise.all(replies)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(users()).toEqual(order);
    // The engine reads it itself.
    expect(engine.received.filter(({ body }) => body.includes('"priority"'))).toHaveLength(2);
  });

  it('hold within a tenant only', async () => {
    const { both, engine, held, users, post } = await told({ upstream: { maxConcurrent: 1, dialect: 'vllm' } });
    const one = { authorization: 'Bearer one' };
    const replies = [post(asked('a'), one)];
    await engine.until('request', 1);
    replies.push(post(asked('b', { priority: -100 }), one));
    await untilMetric(both.gateway, 'warmpath_queue_depth', 1);
    replies.push(post(asked('other'), { authorization: 'Bearer two' }));
    await untilMetric(both.gateway, 'warmpath_queue_depth', 2);
    for (let place = 0; place < 3; place++) {
      await engine.until('request', place + 1);
      held[place]!.end('{}');
    }
    await Promise.all(replies);
    // Of whoever has nothing under way, the turn comes first that was there first; then the other tenant's.
    expect(users().slice(1).sort()).toEqual(['b', 'other']);
    expect(users()[0]).toBe('a');
  });
});

describe('a wait that would be too long', () => {
  /** An engine that takes one at a time, of which the gateway has seen that it takes a second for each. */
  async function slow(config: StandConfig = {}) {
    const parts = await told({ ...config, upstream: { maxConcurrent: 1 } });
    const { both, engine, held, clock, post } = parts;
    let answered = 0;
    const answer = async () => {
      await engine.until('request', ++answered);
      clock.now += 1_000;
      held[answered - 1]!.end('{}');
    };
    const first: Promise<Reply>[] = [];
    for (let place = 0; place < 10; place++) {
      first.push(post(asked(`first ${place}`)));
      if (place === 0) await engine.until('request', 1);
      else await untilMetric(both.gateway, 'warmpath_queue_depth', place);
    }
    for (let place = 0; place < 10; place++) await answer();
    await Promise.all(first);
    return { ...parts, answer };
  }

  it("is refused at once where the client's own timeout is over before", async () => {
    const { both, engine, answer, post } = await slow();
    const replies = [post(asked('running'))];
    await engine.until('request', 11);
    for (let place = 0; place < 3; place++) {
      replies.push(post(asked(`waits ${place}`)));
      await untilMetric(both.gateway, 'warmpath_queue_depth', place + 1);
    }
    const late = await post(asked('late'), { 'x-stainless-timeout': '2' });
    expect(late.status).toBe(429);
    expect(errorOf(late)).toMatchObject({ code: 'WARMPATH_OVERLOADED' });
    expect(errorOf(late).message).toContain(
      'with 3 requests before it, this request would wait about 4.0 s. It may wait 2.0 s',
    );
    expect(late.headers['retry-after']).toBe('2');
    const patient = post(asked('patient'), { 'x-stainless-timeout': '600' });
    await untilMetric(both.gateway, 'warmpath_queue_depth', 4);
    for (let place = 0; place < 5; place++) await answer();
    expect((await Promise.all([...replies, patient])).map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  });

  it('is refused at once at twice the load that can be served, and all that were accepted are answered', async () => {
    const { both, engine, answer, post } = await slow({ queue: { maxWaitMs: 10_000 } });
    const running = post(asked('running'));
    await engine.until('request', 11);
    const outcomes: string[] = [];
    const replies = Array.from({ length: 20 }, async (_, place) => {
      const reply = await post(asked(`${place}`));
      outcomes.push(`${reply.status}`);
      return reply;
    });
    // The refusals come before anything else is served.
    while (outcomes.length < 10) await metricOf(both.gateway, 'warmpath_queue_depth');
    expect(outcomes).toEqual(Array(10).fill('429'));
    expect(await metricOf(both.gateway, 'warmpath_queue_depth')).toBe(10);
    for (let place = 0; place < 11; place++) await answer();
    const all = await Promise.all([running, ...replies]);
    expect(all.filter(({ status }) => status === 200)).toHaveLength(11);
    for (const { status, headers } of all)
      if (status === 429) expect(Number(headers['retry-after'])).toBeGreaterThan(0);
  });
});

describe('requests that begin alike', () => {
  const system = 'Answer from the documents, and from nothing else. '.repeat(20);
  const burst = (user: string, text = system) => ({
    ...asked(user),
    stream: true,
    messages: [
      { role: 'system', content: text },
      { role: 'user', content: `What is the weight, ${user}?` },
    ],
  });
  const dialect = 'sglang';
  const finish = (response: ServerResponse) => startStream(response).end(CHAT_STREAM);

  it('follow the first one until its first token', async () => {
    const { both, engine, held, users, post } = await told({ upstream: { dialect } });
    const replies = [post(burst('leader'))];
    await engine.until('request', 1);
    for (const user of ['a', 'b', 'c']) replies.push(post(burst(user)));
    await untilMetric(both.gateway, 'warmpath_queue_depth', 3);
    // Others are not held up.
    replies.push(post(burst('other tenant'), { authorization: 'Bearer two' }));
    await engine.until('request', 2);
    replies.push(post(burst('other beginning', `Else. ${system}`)));
    await engine.until('request', 3);
    expect(await metricOf(both.gateway, 'warmpath_queue_depth')).toBe(3);
    // A beginning of an answer without content says nothing.
    const [role, content, ...rest] = CHAT_STREAM.split('\n\n');
    startStream(held[0]!).write(`${role}\n\n`);
    expect(await metricOf(both.gateway, 'warmpath_queue_depth')).toBe(3);
    held[0]!.write(`${content}\n\n`);
    await engine.until('request', 6);
    held[0]!.end(rest.join('\n\n'));
    for (const response of held.slice(1)) finish(response);
    expect((await Promise.all(replies)).map(({ status }) => status)).toEqual(Array(6).fill(200));
    expect(users().slice(0, 3)).toEqual(['leader', 'other tenant', 'other beginning']);
    // What is warm needs nobody to go ahead.
    const warm = [post(burst('d')), post(burst('e'))];
    await engine.until('request', 8);
    for (const response of held.slice(6)) finish(response);
    await Promise.all(warm);
  });

  it('follow the next one if the first fails, and none waits for a client that left', async () => {
    const { both, engine, held, users, post } = await told({ upstream: { dialect } });
    const leader = post(burst('leader'));
    await engine.until('request', 1);
    const leaving = openRequest(both.gateway.url + PATH, burst('leaving')).on('error', () => {});
    await untilMetric(both.gateway, 'warmpath_queue_depth', 1);
    const next = post(burst('next'));
    await untilMetric(both.gateway, 'warmpath_queue_depth', 2);
    const last = post(burst('last'));
    await untilMetric(both.gateway, 'warmpath_queue_depth', 3);
    leaving.destroy();
    await untilMetric(both.gateway, 'warmpath_queue_depth', 2);
    held[0]!.writeHead(500).end('{}');
    expect((await leader).status).toBe(500);
    await engine.until('request', 2);
    expect(await metricOf(both.gateway, 'warmpath_queue_depth')).toBe(1);
    finish(held[1]!);
    await engine.until('request', 3);
    finish(held[2]!);
    expect([(await next).status, (await last).status]).toEqual([200, 200]);
    expect(users()).toEqual(['leader', 'next', 'last']);
  });

  it('follow the first one where nothing is arranged in them, too', async () => {
    const { both, engine, held, users, post } = await told({ upstream: { dialect } });
    const plain = (user: string, stream = true) => {
      const { documents: _, ...body } = burst(user) as { readonly documents?: unknown };
      return { ...body, user: undefined, model: 'm', stream, metadata: undefined, messages: messagesOf(user) };
    };
    const messagesOf = (user: string) => [
      { role: 'system', content: system },
      { role: 'user', content: user },
    ];
    const asked = () => engine.received.map(({ body }) => /"user","content":"([^"]*)"/.exec(body)?.[1]);
    const failing = post(plain('fails'));
    await engine.until('request', 1);
    const replies = [post(plain('leader'))];
    await untilMetric(both.gateway, 'warmpath_queue_depth', 1);
    for (const [place, user] of ['a', 'b'].entries()) {
      replies.push(post(plain(user)));
      await untilMetric(both.gateway, 'warmpath_queue_depth', place + 2);
    }
    // Others are not held up.
    replies.push(post(plain('other tenant'), { authorization: 'Bearer two' }));
    await engine.until('request', 2);
    held[0]!.writeHead(500).end('{}');
    expect((await failing).status).toBe(500);
    // The next one leads.
    await engine.until('request', 3);
    expect(await metricOf(both.gateway, 'warmpath_queue_depth')).toBe(2);
    const [role, content, ...rest] = CHAT_STREAM.split('\n\n');
    startStream(held[2]!).write(`${role}\n\n`);
    expect(await metricOf(both.gateway, 'warmpath_queue_depth')).toBe(2);
    held[2]!.write(`${content}\n\n`);
    await engine.until('request', 5);
    held[2]!.end(rest.join('\n\n'));
    for (const place of [1, 3, 4]) finish(held[place]!);
    expect((await Promise.all(replies)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(asked()).toEqual(['fails', 'other tenant', 'leader', 'a', 'b']);
    expect(users()).toEqual(Array(5).fill(undefined));
    // What is warm needs nobody to go ahead.
    const warm = [post(plain('c')), post(plain('d', false))];
    await engine.until('request', 7);
    for (const response of held.slice(5)) finish(response);
    await Promise.all(warm);
  });

  it('go together where the engine computes their beginning once by itself', async () => {
    const { engine, held, post } = await told({ upstream: { dialect: 'vllm' } });
    const replies = ['a', 'b', 'c'].map((user) => post(burst(user)));
    await engine.until('request', 3);
    for (const response of held) finish(response);
    await Promise.all(replies);
  });
});

/** A prompt that stays in the engine. */
function prompt(): Dispatch {
  return {
    tenant: 'a',
    deadline: undefined,
    context: () => undefined,
    beginnings: () => [],
    urgency: () => 0,
    start: () => {},
    refuse: () => {},
    moved: () => {},
  };
}

describe('what an engine says of its own queue', () => {
  it('is read from its metrics, over all labels', () => {
    const text = [
      '# HELP vllm:num_requests_waiting Number of requests waiting.',
      '# TYPE vllm:num_requests_waiting gauge',
      'vllm:num_requests_waiting_by_reason{reason="x"} 99',
      'vllm:num_requests_waiting{engine="0",model_name="a}b c"} 3.0',
      'vllm:num_requests_waiting{engine="1"} 4 1700000000',
      'other vllm:num_requests_waiting 50',
    ].join('\n');
    expect(sumOfMetric(text, 'vllm:num_requests_waiting')).toBe(7);
    expect(sumOfMetric('llamacpp:requests_deferred 2\n', 'llamacpp:requests_deferred')).toBe(2);
    expect(sumOfMetric('vllm:num_requests_waiting NaN\n', 'vllm:num_requests_waiting')).toBeUndefined();
    expect(sumOfMetric('', 'vllm:num_requests_waiting')).toBeUndefined();
  });

  it.each([
    ['vllm', 'vllm:num_requests_waiting'],
    ['sglang', 'sglang:num_queue_reqs'],
    ['llama-server', 'llamacpp:requests_deferred'],
    ['embedded', 'vllm:num_requests_waiting'],
  ] as const)('sets the limit: %s', async (dialect, metric) => {
    let text = `${metric}{engine="0"} 6\n`;
    const paths: string[] = [];
    const limits: number[] = [];
    const queue = new DispatchQueue(8, resolveConfig({ upstream: { url: 'http://127.0.0.1' } }).queue, {
      now: () => 0,
      eventLoopBudget: new EventLoopBudget(() => 0),
      waited: () => {},
      needsLeader: () => false,
    });
    const upstream = {
      connectMs: 1_000,
      start: ({ path }: { readonly path: string }, listener: UpstreamListener) => {
        paths.push(path);
        listener.onHead(200, {});
        listener.onData(Buffer.from(text));
        listener.onEnd();
      },
    } as unknown as Upstream;
    let now = 0;
    const engine = {
      upstream,
      queue,
      dialect: configuredDialect({ dialect, url: 'http://127.0.0.1' }),
      headers: () => ({}),
    };
    const reports = new QueueReports(engine, () => now);
    const ask = async () => {
      await reports.ask();
      limits.push(queue.limit);
    };
    await ask();
    expect(paths).toEqual([]);
    for (let each = 0; each < 8; each++) queue.enter(prompt());
    await ask();
    text = 'nothing_else 1\n';
    await ask();
    text = `${metric} 6\n`;
    await ask();
    now = 60_000;
    await ask();
    reports.close();
    expect(paths).toEqual(Array(3).fill('/metrics'));
    expect(limits).toEqual([8, 4, 8, 8, 4]);
  });
});

describe('POST /v1/arrange', () => {
  it('knows of the calls that came with it, behind the same preamble and of the same tenant', async () => {
    // The budget of a turn of the event loop is never used up: all calls come in one turn.
    const clock = vi.spyOn(performance, 'now').mockReturnValue(0);
    onTestFinished(() => clock.mockRestore());
    const waitings: (string[][] | undefined)[] = [];
    const { gateway } = await stand(
      undefined,
      {},
      {
        arrange: (request, view, now) => {
          waitings.push(request.waiting?.map((documents) => documents.map(({ id }) => id)));
          return arrange(request, view, now);
        },
      },
    );
    const [velka, orsin, tamir] = DOCUMENTS;
    const calls: readonly [documents: readonly object[], preamble?: string, key?: string][] = [
      [[velka, orsin], 'p', 'one'],
      [[orsin, tamir], 'p', 'one'],
      [[velka], 'another', 'one'],
      [[velka, tamir], 'p', 'two'],
      [[tamir], undefined, 'one'],
      [[tamir, velka], 'p', 'one'],
    ];
    const written = calls.map(([documents, preamble, key], place) => {
      const body = JSON.stringify({ documents, preamble });
      const connection = place < calls.length - 1 ? 'keep-alive' : 'close';
      return `POST /v1/arrange HTTP/1.1\r\nhost: localhost\r\nconnection: ${connection}\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
    });
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
    // The server ends the connection. A client that ends its half has left, as far as a server can tell.
    socket.write(written.join(''));
    let answers = '';
    for await (const chunk of socket) answers += String(chunk);
    expect(answers.match(/HTTP\/1\.1 200/g)).toHaveLength(calls.length);
    expect(waitings).toHaveLength(calls.length);
    // In whichever turn each came, the last of its kind is told of nobody, and nobody is told of others' kinds.
    const told = waitings.filter((waiting) => waiting !== undefined);
    expect(told).toEqual([
      [
        ['orsin', 'tamir'],
        ['tamir', 'velka'],
      ],
      [['tamir', 'velka']],
    ]);
  });
});
