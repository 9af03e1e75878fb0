import { createClient } from '@redis/client';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import type { ClientKey } from '../src/intake/authenticate.js';
import { RateLimits } from '../src/intake/rate-limits.js';
import type { RunningGateway } from '../src/start-gateway.js';
import { FakeEngine } from './fake-engine.js';
import {
  chat,
  closing,
  DOCUMENTS,
  gatewayAt,
  labelsIn,
  metricOf,
  OPERATOR_KEY,
  type StandConfig,
  send,
  untilMetric,
} from './harness.js';
import { RedisServer } from './redis-server.js';

const CHAT = '/v1/chat/completions';
const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
const KEY = 'the-key-of-a-client';
/** Servers and gateways are real processes, and two cores may be shared by many. */

let server: RedisServer;
let prefixes = 0;

beforeAll(async () => {
  server = await RedisServer.start();
});

afterAll(() => server.close());

interface Fleet {
  readonly engine: FakeEngine;
  readonly gateways: readonly RunningGateway[];
  readonly clock: { now: number };
  readonly prefix: string;
  /** Sends documents through one of the gateways; the labels in the order in which the engine got them. */
  order(gateway: number, documents: readonly object[], key?: string): Promise<string[]>;
}

/** Gateways in front of one engine and over one server, with a clock that only the test moves. */
async function fleet(count: number, config: StandConfig = {}, url = server.url): Promise<Fleet> {
  const engine = closing(await FakeEngine.start());
  const clock = { now: 1_000_000 };
  const prefix = `peers${++prefixes}:`;
  const session = { store: { url } };
  const sharedStore = { prefix, timeoutMs: 20_000 };
  const gateways: RunningGateway[] = [];
  for (let i = 0; i < count; i++) {
    const access = { ...config.server, operatorKey: { key: OPERATOR_KEY } };
    const settings: StandConfig = { arrange: { policy: 'exact' }, ...config, server: access, session };
    gateways.push(closing(await gatewayAt(engine.url, settings, { sharedStore, now: () => clock.now, drainMs: 0 })));
  }
  const order = async (gateway: number, documents: readonly object[], key = KEY) => {
    const headers = { authorization: `Bearer ${key}` };
    // Hints cost more than these short documents save.
    const fields = { warmpath: { hints: false } };
    const reply = await send(gateways[gateway]!.url + CHAT, chat(documents, fields), { headers });
    return reply.status === 200 ? labelsIn(engine.last.body) : [String(reply.status)];
  };
  return { engine, gateways, clock, prefix, order };
}

const heard = (gateway: RunningGateway, orders: number) =>
  untilMetric(gateway, 'warmpath_peer_orders_total{event="heard"', orders);

describe('gateways that share a store', () => {
  it('order by what the others sent, each tenant for itself', async () => {
    const { gateways, order } = await fleet(3);
    expect(await order(0, [VELKA, ORSIN])).toEqual(['velka', 'orsin']);
    for (const other of [1, 2]) await heard(gateways[other]!, 1);
    expect(await order(1, [TAMIR, ORSIN, VELKA])).toEqual(['velka', 'orsin', 'tamir']);
    await heard(gateways[2]!, 2);
    expect(await order(2, [ORSIN, TAMIR, VELKA])).toEqual(['velka', 'orsin', 'tamir']);
    expect(await order(2, [ORSIN, TAMIR, VELKA], 'the-key-of-another')).toEqual(['orsin', 'tamir', 'velka']);
    // Nobody hears of what it sent itself.
    await heard(gateways[0]!, 3);
    expect(await metricOf(gateways[0]!, 'warmpath_peer_orders_total{event="told"')).toBe(1);
    expect(await metricOf(gateways[0]!, 'warmpath_peer_orders_total{event="unreadable"')).toBe(0);
  });

  it('tell what a key did, so that its limits hold for all of them together', async () => {
    const keys = [{ name: 'limited', key: KEY, requestsPerMinute: 4 }];
    const { gateways, order, clock } = await fleet(2, { server: { keys } });
    for (let i = 0; i < 3; i++) expect(await order(0, [VELKA, ORSIN])).not.toEqual(['429']);
    // The note of a request's order tells of the request, too.
    await heard(gateways[1]!, 3);
    expect(await order(1, [VELKA, ORSIN])).not.toEqual(['429']);
    expect(await order(1, [VELKA, ORSIN])).toEqual(['429']);
    await heard(gateways[0]!, 1);
    expect(await order(0, [VELKA, ORSIN])).toEqual(['429']);
    // One is there again after a quarter of a minute, for one of them, and a little more for what rounding takes.
    clock.now += 15_100;
    expect(await order(0, [VELKA, ORSIN])).not.toEqual(['429']);
    await heard(gateways[1]!, 4);
    expect(await order(1, [VELKA, ORSIN])).toEqual(['429']);
  });

  it('hold what a key may have under way together, and forget one of them that says nothing more', async () => {
    const keys = [{ name: 'limited', key: KEY, maxConcurrent: 1 }];
    const { engine, gateways, order, clock } = await fleet(2, { server: { keys } });
    const answers: (() => void)[] = [];
    const { answer } = engine;
    engine.answer = (response, request) => answers.push(() => answer(response, request));
    const first = order(0, [VELKA, ORSIN]);
    await engine.until('request', 1);
    await heard(gateways[1]!, 1);
    expect(await order(1, [VELKA, ORSIN])).toEqual(['429']);
    answers.shift()!();
    expect(await first).toEqual(['velka', 'orsin']);
    engine.answer = answer;
    // That it is over is told without an order.
    while ((await order(1, [VELKA, ORSIN]))[0] === '429') clock.now += 1;
    engine.answer = (response, request) => answers.push(() => answer(response, request));
    const second = order(0, [VELKA, TAMIR]).catch(() => []);
    await engine.until('request', 3);
    await heard(gateways[1]!, 2);
    await gateways[0]!.close().catch(() => {});
    clock.now += 3_000;
    engine.answer = answer;
    expect(await order(1, [VELKA, ORSIN])).toEqual(['velka', 'orsin']);
    for (const each of answers) each();
    await second;
  });

  it('go on without the server, and tell what it missed when it is back', async () => {
    const own = closing(await RedisServer.start());
    const keys = [{ name: 'limited', key: KEY, requestsPerMinute: 4 }];
    const { gateways, order } = await fleet(2, { server: { keys } }, own.url);
    await own.kill();
    for (const gateway of gateways) await untilMetric(gateway, 'warmpath_session_store_up', 0);
    for (let i = 0; i < 3; i++) expect(await order(0, [VELKA, ORSIN])).toEqual(['velka', 'orsin']);
    // Nobody knows of the other: each has the whole limit, and its own order.
    expect(await order(1, [ORSIN, VELKA])).toEqual(['orsin', 'velka']);
    await own.restart();
    await heard(gateways[1]!, 3);
    await heard(gateways[0]!, 1);
    for (const gateway of [0, 1]) expect(await order(gateway, [TAMIR, ORSIN])).toEqual(['429']);
  });

  it('know what was sent before they began, and believe no note that none of them wrote', async () => {
    const { engine, gateways, order, prefix } = await fleet(1);
    expect(await order(0, [VELKA, ORSIN])).toEqual(['velka', 'orsin']);
    await untilMetric(gateways[0]!, 'warmpath_peer_orders_total{event="told"', 1);
    const client = createClient({ url: server.url, RESP: 2 });
    await client.connect();
    try {
      const valid = ['m', 't', 'm', null, [['a', 1]], [0]];
      const notes: unknown[] = [
        'no JSON',
        null,
        [],
        { version: 2, used: [], orders: [] },
        { version: 1, used: [['limited', -1, 0, 0]], orders: [] },
        { version: 1, used: [['limited', 1e300, 0, 0]], orders: [] },
        ...[
          [valid.slice(1)],
          [{ ...valid }],
          [[...valid.slice(0, 5), [1]]],
          [[...valid.slice(0, 5), [0, 0]]],
          [[...valid.slice(0, 4), [['a', 1.5]], [0]]],
          [[...valid.slice(0, 3), ['p', 1, [['s', 2]]], [['a', 1]], [0]]],
          [[...valid.slice(0, 4), [['a'.repeat(5_000), 1]], [0]]],
        ].map((orders) => ({ version: 1, used: [], orders })),
      ];
      for (const note of notes) {
        const text = typeof note === 'string' ? note : JSON.stringify(note);
        await client.sendCommand(['XADD', `${prefix}peers`, '*', 'somebody', text]);
      }
      // Of an engine that this gateway does not have.
      const elsewhere = JSON.stringify({
        version: 1,
        used: [['nobody', 1, 1, 1]],
        orders: [['gone', ...valid.slice(1)]],
      });
      await client.sendCommand(['XADD', `${prefix}peers`, '*', 'somebody', elsewhere]);
      await untilMetric(gateways[0]!, 'warmpath_peer_orders_total{event="unreadable"', notes.length);
    } finally {
      client.destroy();
    }
    const config = { arrange: { policy: 'exact' }, session: { store: { url: server.url } } } as const;
    const late = closing(await gatewayAt(engine.url, config, { sharedStore: { prefix, timeoutMs: 20_000 } }));
    await heard(late, 1);
    const headers = { authorization: `Bearer ${KEY}` };
    await send(late.url + CHAT, chat([TAMIR, ORSIN, VELKA], { warmpath: { hints: false } }), { headers });
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
  });
});

describe('limits of several gateways', () => {
  const LIMITS = { requestsPerMinute: 5, tokensPerMinute: 150, maxConcurrent: 4 };
  const key = { name: 'k', sha256: '', ...LIMITS } as ClientKey;
  const step = fc.record({
    at: fc.nat(2),
    kind: fc.constantFrom('enter', 'enter', 'enter', 'leave', 'leave', 'charge'),
    tokens: fc.nat(100),
    passedMs: fc.nat(2_000),
  });

  it('are those of one, where each hears at once of the others', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: 'max' }), (steps) => {
        const clock = { now: 1_000_000 };
        const one = new RateLimits(() => clock.now);
        const several = [0, 1, 2].map(() => new RateLimits(() => clock.now));
        const underWay = several.map(() => 0);
        for (const { at, kind, tokens, passedMs } of steps) {
          // Gateways with requests under way say so once a second.
          for (let ms = 0; ms < passedMs; ms += 1_000) {
            clock.now += Math.min(1_000, passedMs - ms);
            tellAll(several);
          }
          const own = several[at]!;
          if (kind === 'enter') {
            const isRefused = own.enter(key) !== undefined;
            expect(isRefused).toBe(one.enter(key) !== undefined);
            if (!isRefused) underWay[at]!++;
          } else if (kind === 'leave' && underWay[at]! > 0) {
            underWay[at]!--;
            for (const limits of [own, one]) limits.leave(key);
          } else if (kind === 'charge') for (const limits of [own, one]) limits.charge(key, tokens);
          tellAll(several);
        }
      }),
      { numRuns: runs(100) },
    );
  });

  it('let nothing in that one would refuse, however late they hear, once they have heard', () => {
    const clock = { now: 1_000_000 };
    const [a, b] = [new RateLimits(() => clock.now), new RateLimits(() => clock.now)];
    for (let i = 0; i < 5; i++) {
      expect(a.enter(key)).toBeUndefined();
      a.leave(key);
    }
    const told = a.takeUnpublished(8);
    clock.now += 600;
    // What was used then has been refilled since as much as it would have been there: a twentieth of a request.
    b.received(key, told.get(key.name)!, { from: 'a', ageMs: 600 });
    expect(b.enter(key)?.retryAfterS).toBe(12);
    // More than a minute's worth at once is a gateway that was cut off.
    const cut = new RateLimits(() => clock.now);
    cut.received(key, { requests: 1_000, tokens: 1e9, underWay: 0 }, { from: 'a', ageMs: 0 });
    clock.now += 60_000;
    expect(cut.enter(key)).toBeUndefined();
  });

  it('give back what could not be told', () => {
    const limits = new RateLimits(() => 0);
    limits.enter(key);
    limits.charge(key, 7);
    const taken = limits.takeUnpublished(1);
    expect(limits.takeUnpublished(1).size).toBe(0);
    limits.giveBack(taken);
    limits.charge(key, 1);
    expect([...limits.takeUnpublished(1).values()]).toEqual([{ requests: 1, tokens: 8, underWay: 1 }]);
    expect(limits.takeUnpublished(0).size).toBe(0);
  });

  /** Each tells the others what is unpublished. */
  function tellAll(gateways: readonly RateLimits[]): void {
    for (const [from, gateway] of gateways.entries()) {
      for (const usage of gateway.takeUnpublished(8).values()) {
        for (const other of gateways) if (other !== gateway) other.received(key, usage, { from: `${from}`, ageMs: 0 });
      }
    }
  }
});
