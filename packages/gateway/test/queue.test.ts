import type { ClientRequest } from 'node:http';
import { type ArrangeRequest, arrange } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { runs } from '../../../test/suite.js';
import { resolveConfig } from '../src/config/load.js';
import { type Dispatch, DispatchQueue, type EnginePlace, type Waiting } from '../src/engines/dispatch-queue.js';
import { EventLoopBudget } from '../src/limits/load.js';
import {
  chat,
  DOCUMENTS,
  errorOf,
  labelsIn,
  metricOf,
  openRequest,
  type Reply,
  type StandConfig,
  send,
  stand,
  untilMetric,
} from './harness.js';

const PATH = '/v1/chat/completions';

/** An engine that answers when it is told to, in front of which one prompt at a time is let through. */
async function oneAtATime(config: Partial<StandConfig> = {}, waitings: ArrangeRequest['waiting'][] = []) {
  const held: (() => void)[] = [];
  const both = await stand(
    (response) => held.push(() => response.end('{}')),
    { ...config, upstream: { maxConcurrent: 1, ...config.upstream } },
    {
      arrange: (request, view, now) => {
        waitings.push(request.waiting);
        return arrange(request, view, now);
      },
    },
  );
  /** Sends requests, each when the one before has reached the engine or the queue; the first reaches the engine. */
  const arrive = async (bodies: readonly (readonly [body: object, authorization?: string])[]) => {
    const replies: Promise<Reply>[] = [];
    for (const [place, [body, authorization]] of bodies.entries()) {
      const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
      replies.push(send(both.gateway.url + PATH, body, { headers }));
      if (place === 0) await both.engine.until('request', 1);
      else await untilMetric(both.gateway, 'warmpath_queue_depth', place);
    }
    return replies;
  };
  let answered = 0;
  /** Waits until the engine has the next request, and lets it answer. */
  const answer = async () => {
    await both.engine.until('request', ++answered);
    held[answered - 1]!();
  };
  const users = () => both.engine.received.map(({ body }) => (JSON.parse(body) as { user?: string }).user);
  return { ...both, both, arrive, answer, users };
}

const asked = (user: string, documents: readonly object[] = DOCUMENTS) => chat(documents, { user });
const ids = (waiting: ArrangeRequest['waiting']) => waiting?.map((documents) => documents.map(({ id }) => id));
const [velka, orsin, tamir] = DOCUMENTS;

interface ArrangeAnswer {
  readonly order: readonly number[];
}

describe('a limit of prompts in the engine', () => {
  it('lets the others wait, and dispatches them in order of arrival', async () => {
    const { both, arrive, answer, users, engine } = await oneAtATime();
    const replies = await arrive([[asked('a')], [asked('b')], [asked('c')]]);
    expect(engine.received).toHaveLength(1);
    expect(await metricOf(both.gateway, 'warmpath_upstream_in_flight')).toBe(1);
    for (let i = 0; i < 3; i++) await answer();
    expect((await Promise.all(replies)).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(users()).toEqual(['a', 'b', 'c']);
    expect(await metricOf(both.gateway, 'warmpath_queue_wait_seconds_count')).toBe(2);
    expect(await metricOf(both.gateway, 'warmpath_upstream_in_flight')).toBe(0);
  });

  it('tells the policy of the prompts that wait: same tenant, model and preamble', async () => {
    const waitings: ArrangeRequest['waiting'][] = [];
    const { arrive, answer } = await oneAtATime({}, waitings);
    const fields = { messages: [{ role: 'user', content: 'Another preamble.' }] };
    const all: readonly [object, string][] = [
      [asked('first', [velka]), 'Bearer one'],
      [asked('second', [orsin, velka]), 'Bearer one'],
      [asked('third', [tamir, velka]), 'Bearer one'],
      [asked('other tenant', [velka, tamir]), 'Bearer two'],
      [chat([tamir], { model: 'other' }), 'Bearer one'],
      [chat([tamir], { messages: [{ role: 'system', content: 'Else.' }, ...fields.messages] }), 'Bearer one'],
      [asked('last', [tamir]), 'Bearer one'],
    ];
    const replies = await arrive(all);
    for (let i = 0; i < all.length; i++) await answer();
    await Promise.all(replies);
    expect(ids(waitings[0])).toBeUndefined();
    const told = waitings.map((waiting) => ids(waiting));
    // The second request's turn comes with the third and the last still waiting; the other tenant hears of nobody.
    expect(told[1]).toEqual([['tamir', 'velka'], ['tamir']]);
    expect(told[2]).toBeUndefined();
    expect(told[3]).toEqual([['tamir']]);
    expect(told.slice(4)).toEqual([undefined, undefined, undefined]);
  });

  it('tells calls of /v1/arrange of the prompts that wait, and these of the order they were given', async () => {
    const waitings: ArrangeRequest['waiting'][] = [];
    const { both, engine, arrive, answer } = await oneAtATime({ arrange: { hints: false } }, waitings);
    const system = 'Answer from the documents.';
    const orderOf = async (fields: object, authorization = 'Bearer one') => {
      const body = { model: 'm', preamble: system, documents: DOCUMENTS, ...fields };
      const { text } = await send(`${both.gateway.url}/v1/arrange`, body, { headers: { authorization } });
      return (JSON.parse(text) as { documents: { id: string }[] }).documents.map(({ id }) => id);
    };
    const retrieved = DOCUMENTS.map(({ id }) => id);
    expect(await orderOf({}, 'Bearer zero')).toEqual(retrieved);
    const replies = await arrive([
      [chat([], { documents: undefined }), 'Bearer one'],
      [asked('a', [tamir, orsin]), 'Bearer one'],
      [asked('b', [orsin, tamir]), 'Bearer one'],
    ]);
    waitings.length = 0;
    // Others' prompts, and those of another model or behind another text, are nobody's here.
    expect(await orderOf({}, 'Bearer two')).toEqual(retrieved);
    expect(await orderOf({ model: 'other' })).toEqual(retrieved);
    expect(await orderOf({ preamble: 'Be brief.' })).toEqual(retrieved);
    expect(await orderOf({ preamble: undefined })).toEqual(retrieved);
    expect(waitings.map((waiting) => ids(waiting))).toEqual([undefined, undefined, undefined, undefined]);
    const order = await orderOf({});
    expect(ids(waitings[4])).toEqual([
      ['tamir', 'orsin'],
      ['orsin', 'tamir'],
    ]);
    expect(order.at(-1)).toBe('velka');
    for (let i = 0; i < replies.length; i++) await answer();
    await Promise.all(replies);
    for (const { body } of engine.received.slice(1)) expect(labelsIn(body)).toEqual(order.slice(0, 2));
  });

  it('changes no order of /v1/arrange where what waits shares nothing with it', async () => {
    const calls = [[velka, orsin], [orsin, tamir], DOCUMENTS];
    const ordersBeside = async (waiting: readonly (readonly object[])[]) => {
      const { both, arrive, answer } = await oneAtATime();
      const replies = await arrive([
        [asked('first', [])],
        ...waiting.map((documents) => [asked('', documents)] as const),
      ]);
      const orders: unknown[] = [];
      for (const documents of calls) {
        const body = { model: 'm', preamble: 'Answer from the documents.', documents };
        orders.push((JSON.parse((await send(`${both.gateway.url}/v1/arrange`, body)).text) as ArrangeAnswer).order);
      }
      for (let i = 0; i < replies.length; i++) await answer();
      await Promise.all(replies);
      return orders;
    };
    const other = (id: string) => ({ id, content: `${id} is told of in its own book, on the first page.` });
    const alone = await ordersBeside([]);
    expect(await ordersBeside([[other('a'), other('b')], [other('b')]])).toEqual(alone);
    expect(await ordersBeside([])).toEqual(alone);
  });

  it('tells the policy of documents that stand in the prompts that wait', async () => {
    const waitings: ArrangeRequest['waiting'][] = [];
    const { arrive, answer } = await oneAtATime({}, waitings);
    const passages = (...names: string[]) =>
      names
        .map((id) => `<document id="${id}">The weight of ${id} is told in its own book, on the first page.</document>`)
        .join('\n');
    const inPrompt = (system: string, ...names: string[]) => ({
      model: 'm',
      messages: [
        { role: 'system', content: system },
        { role: 'user', content: `<warmpath-documents>${passages(...names)}</warmpath-documents>\n\nHow heavy?` },
      ],
    });
    const replies = await arrive([
      [inPrompt('Answer.', 'velka', 'orsin')],
      [inPrompt('Answer.', 'orsin', 'velka')],
      [inPrompt('Answer.', 'tamir', 'velka')],
      [inPrompt('Ask.', 'tamir', 'orsin')],
    ]);
    for (let i = 0; i < replies.length; i++) await answer();
    await Promise.all(replies);
    expect(waitings.map((waiting) => ids(waiting))).toEqual([undefined, [['tamir', 'velka']], undefined, undefined]);
  });

  it('arranges at dispatch: the order knows what was served meanwhile', async () => {
    const { arrive, answer, engine } = await oneAtATime({ arrange: { policy: 'exact' } });
    const third = asked('c', [velka, tamir, orsin]);
    const replies = await arrive([[asked('a', [velka])], [asked('b', [orsin, tamir])], [third]]);
    for (let i = 0; i < 3; i++) await answer();
    await Promise.all(replies);
    // When the third came, only velka had been sent; by its turn the path orsin, tamir is the longer one.
    expect(labelsIn(engine.last.body)).toEqual(['orsin', 'tamir', 'velka']);
  });

  it('a client that leaves while it waits never reaches the engine, and its documents are told to nobody', async () => {
    const waitings: ArrangeRequest['waiting'][] = [];
    const { both, arrive, answer, users } = await oneAtATime({}, waitings);
    const replies = await arrive([[asked('first')], [asked('second')]]);
    const leaving: ClientRequest = openRequest(both.gateway.url + PATH, asked('leaving')).on('error', () => {});
    await untilMetric(both.gateway, 'warmpath_queue_depth', 2);
    leaving.destroy();
    await untilMetric(both.gateway, 'warmpath_queue_depth', 1);
    for (let i = 0; i < 2; i++) await answer();
    await Promise.all(replies);
    expect(users()).toEqual(['first', 'second']);
    expect(waitings).toEqual([undefined, undefined]);
    expect(await metricOf(both.gateway, 'warmpath_client_aborts_total')).toBe(1);
  });

  it('gives the place of a client that leaves during its answer to the next one', async () => {
    const { both, answer, engine } = await oneAtATime();
    const leaving = openRequest(both.gateway.url + PATH, asked('leaving')).on('error', () => {});
    await engine.until('request', 1);
    const next = send(both.gateway.url + PATH, asked('next'));
    await untilMetric(both.gateway, 'warmpath_queue_depth', 1);
    leaving.destroy();
    await engine.until('request', 2);
    for (let i = 0; i < 2; i++) await answer();
    expect((await next).status).toBe(200);
  });

  it('answers 429 when the queue is full, to whoever has most in it', async () => {
    const { both, answer, engine } = await oneAtATime({ queue: { capacity: 2 } });
    const as = (tenant: string) =>
      send(both.gateway.url + PATH, asked(tenant), { headers: { authorization: `Bearer ${tenant}` } });
    const first = as('one');
    await engine.until('request', 1);
    const second = as('one');
    await untilMetric(both.gateway, 'warmpath_queue_depth', 1);
    const givesWay = as('one');
    await untilMetric(both.gateway, 'warmpath_queue_depth', 2);
    const tooMany = await as('one');
    expect(tooMany.status).toBe(429);
    expect(errorOf(tooMany)).toMatchObject({ code: 'WARMPATH_OVERLOADED' });
    expect(errorOf(tooMany).message).toContain('Queue full: this tenant already has 2 requests waiting (limit 2).');
    expect(tooMany.headers).toMatchObject({ 'retry-after': '1', 'x-warmpath': 'error=gateway' });
    const third = as('two');
    expect(errorOf(await givesWay).message).toContain(
      'Queue full: this tenant has 1 request waiting, other tenants 1 (limit 2 in all).',
    );
    expect(errorOf(await as('three')).message).toContain('this tenant has 0 requests waiting, other tenants 2');
    for (let i = 0; i < 3; i++) await answer();
    expect((await Promise.all([first, second, third])).map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  it('answers 429 to a prompt that waited too long', async () => {
    const { both, answer, engine } = await oneAtATime({ queue: { maxWaitMs: 5 } });
    const first = send(both.gateway.url + PATH, asked('first'));
    await engine.until('request', 1);
    const late = await send(both.gateway.url + PATH, asked('late'));
    expect(errorOf(late)).toMatchObject({ code: 'WARMPATH_OVERLOADED' });
    expect(errorOf(late).message).toContain('within 5 ms');
    await answer();
    expect((await first).status).toBe(200);
    expect(engine.received).toHaveLength(1);
  });

  it('tenants take turns', async () => {
    const { arrive, answer, users } = await oneAtATime();
    const all = ['a0', 'a1', 'a2', 'a3', 'b1', 'b2'];
    const replies = await arrive(all.map((user) => [asked(user), `Bearer ${user[0]}`]));
    for (let i = 0; i < 6; i++) await answer();
    await Promise.all(replies);
    expect(users()).toEqual(['a0', 'a1', 'b1', 'a2', 'b2', 'a3']);
  });

  it('cache-aware: what the engine holds goes first', async () => {
    const { arrive, answer, users } = await oneAtATime({ queue: { discipline: 'cache-aware' } });
    const bodies = [asked('held', [velka, orsin]), asked('new', [tamir]), asked('again', [orsin, velka])];
    const replies = await arrive(bodies.map((body) => [body]));
    for (let i = 0; i < 3; i++) await answer();
    await Promise.all(replies);
    expect(users()).toEqual(['held', 'again', 'new']);
  });
});

const PARTS = {
  now: () => 0,
  eventLoopBudget: new EventLoopBudget(() => 0),
  waited: () => {},
  needsLeader: () => false,
};

describe('DispatchQueue', () => {
  it('never has more under way than its limit, loses nobody, and keeps the order within a tenant', () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant('enter' as const), tenant: fc.integer({ min: 0, max: 2 }) }),
      fc.record({ kind: fc.constant('end' as const), which: fc.nat() }),
      fc.record({ kind: fc.constant('leave' as const), which: fc.nat() }),
    );
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 3 }), fc.array(step, { maxLength: 60 }), (limit, steps) => {
        const { queue: settings } = resolveConfig({
          upstream: { url: 'http://127.0.0.1' },
          queue: { capacity: 8 },
        });
        const queue = new DispatchQueue(limit, settings, PARTS);
        const running: (() => void)[] = [];
        const started: [tenant: string, number: number][] = [];
        const waiting: { dispatch: Dispatch; waits: Waiting | undefined; entry: [string, number] }[] = [];
        let number = 0;
        for (const each of steps) {
          if (each.kind === 'enter') {
            const entry: [string, number] = [`t${each.tenant}`, number++];
            const dispatch: Dispatch = {
              tenant: entry[0],
              deadline: undefined,
              context: () => undefined,
              beginnings: () => [],
              urgency: () => 0,
              start: (_, room) => {
                started.push(entry);
                running.push(() => room.release(true));
                const place = waiting.findIndex((other) => other.dispatch === dispatch);
                if (place >= 0) waiting.splice(place, 1);
              },
              refuse: () => {
                const place = waiting.findIndex((other) => other.dispatch === dispatch);
                const [gone] = waiting.splice(place, 1);
                // Only the latest of the tenant that has most gives way.
                const of = (tenant: string) => waiting.filter((other) => other.entry[0] === tenant);
                const own = of(gone!.entry[0]);
                expect(own.every((other) => other.entry[1] < gone!.entry[1])).toBe(true);
                for (const tenant of ['t0', 't1', 't2']) expect(of(tenant).length).toBeLessThanOrEqual(own.length + 1);
              },
              moved: () => {},
            };
            const countOf = (tenant: string) => waiting.filter((other) => other.entry[0] === tenant).length;
            const most = Math.max(...['t0', 't1', 't2'].map(countOf));
            const isRefused = waiting.length >= 8 && most <= countOf(entry[0]) + 1;
            const before = started.length;
            if (isRefused) expect(() => queue.enter(dispatch)).toThrow(/Queue full/);
            else {
              const waits = queue.enter(dispatch);
              if (started.length === before) waiting.push({ dispatch, waits, entry });
            }
          } else if (each.kind === 'end' && running.length > 0) {
            const [release] = running.splice(each.which % running.length, 1);
            release!();
            // Once is all that counts.
            release!();
          } else if (each.kind === 'leave' && waiting.length > 0) {
            const [left] = waiting.splice(each.which % waiting.length, 1);
            expect(queue.leave(left!.waits!)).toBe(true);
            expect(queue.leave(left!.waits!)).toBe(false);
          }
          expect(queue.underWay).toBe(running.length);
          expect(queue.depth).toBe(waiting.length);
          expect(running.length).toBeLessThanOrEqual(limit);
          if (waiting.length > 0) expect(running.length).toBe(limit);
        }
        for (const tenant of ['t0', 't1', 't2']) {
          const numbers = started.filter(([of]) => of === tenant).map(([, place]) => place);
          expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
        }
        const left = waiting.map(({ dispatch }) => dispatch);
        expect(queue.takeAll()).toEqual(left);
        expect(queue.depth).toBe(0);
        for (const { waits } of waiting) expect(queue.leave(waits!)).toBe(false);
      }),
      { seed: 31, numRuns: runs(300) },
    );
  });

  const settings = resolveConfig({ upstream: { url: 'http://127.0.0.1' } }).queue;

  function dispatch(tenant: string, given: Partial<Dispatch> = {}): Dispatch & { readonly room: () => EnginePlace } {
    let room: EnginePlace | undefined;
    return {
      tenant,
      deadline: undefined,
      context: () => undefined,
      beginnings: () => [],
      urgency: () => 0,
      refuse: () => {},
      moved: () => {},
      start: (_, place) => {
        room = place;
      },
      room: () => room!,
      ...given,
    };
  }

  it('gives tenants that wait the same share of the engine, whatever ends first', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { minLength: 30, maxLength: 30 }), (ends) => {
        const queue = new DispatchQueue(6, settings, PARTS);
        const tenants = ['a', 'b', 'c'];
        const running: { readonly tenant: string; readonly end: () => void }[] = [];
        // Each has more than enough waiting; the first one came with all of it before the others.
        for (const tenant of tenants) {
          for (let each = 0; each < 60; each++) {
            const start = (_: number, place: EnginePlace) => {
              running.push({ tenant, end: () => place.release(true) });
            };
            queue.enter(dispatch(tenant, { start }));
          }
        }
        const shares = () => tenants.map((tenant) => running.filter((each) => each.tenant === tenant).length);
        expect(shares()).toEqual([6, 0, 0]);
        for (let each = 0; each < 4; each++) running.shift()!.end();
        expect(shares()).toEqual([2, 2, 2]);
        for (const which of ends) {
          running.splice(which % running.length, 1)[0]!.end();
          expect(shares()).toEqual([2, 2, 2]);
        }
        for (const left of queue.takeAll()) expect(tenants).toContain(left.tenant);
      }),
      { numRuns: runs(50) },
    );
  });

  it('agrees with a naive twin: no prompt lost or sent twice, tenants in turn, priority within a tenant', () => {
    const step = fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({ tenant: fc.constantFrom(...'aaabc'), urgency: fc.integer({ min: -1, max: 1 }) }),
      },
      { weight: 3, arbitrary: fc.record({ end: fc.nat() }) },
      { weight: 1, arbitrary: fc.record({ leave: fc.nat() }) },
      { weight: 1, arbitrary: fc.record({ inside: fc.option(fc.integer({ min: 0, max: 6 }), { nil: undefined }) }) },
    );
    interface Prompt {
      readonly tenant: string;
      readonly urgency: number;
      readonly number: number;
    }
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.array(step, { maxLength: 120, size: 'max' }), (max, steps) => {
        const queue = new DispatchQueue(max, settings, PARTS);
        const running: { readonly prompt: Prompt; readonly end: () => void }[] = [];
        const started: number[] = [];
        const waits = new Map<number, Waiting>();
        // The twin: lists, and the rules read off one after the other.
        let twinWaiting: Prompt[] = [];
        let turns: string[] = [];
        const twinRunning: string[] = [];
        const twinStarted: number[] = [];
        const countOf = (tenant: string) => twinRunning.filter((each) => each === tenant).length;
        const twinFill = () => {
          while (twinWaiting.length > 0 && twinRunning.length < queue.limit) {
            const fewest = Math.min(...turns.map(countOf));
            const tenant = turns.find((each) => countOf(each) === fewest)!;
            const own = twinWaiting.filter((each) => each.tenant === tenant);
            const urgent = Math.max(...own.map(({ urgency }) => urgency));
            const next = own.find(({ urgency }) => urgency === urgent)!;
            twinWaiting = twinWaiting.filter((each) => each !== next);
            turns = turns.filter((each) => each !== tenant);
            if (own.length > 1) turns.push(tenant);
            twinRunning.push(tenant);
            twinStarted.push(next.number);
          }
        };
        let number = 0;
        for (const each of steps) {
          if ('tenant' in each) {
            const prompt: Prompt = { ...each, number: number++ };
            const start = (_: number, place: EnginePlace) => {
              started.push(prompt.number);
              running.push({ prompt, end: () => place.release(true) });
            };
            const waiting = queue.enter(dispatch(prompt.tenant, { start, urgency: () => prompt.urgency }));
            if (waiting !== undefined) waits.set(prompt.number, waiting);
            twinWaiting.push(prompt);
            if (!turns.includes(prompt.tenant)) turns.push(prompt.tenant);
          } else if ('end' in each && running.length > 0) {
            const [ended] = running.splice(each.end % running.length, 1);
            twinRunning.splice(twinRunning.indexOf(ended!.prompt.tenant), 1);
            ended!.end();
          } else if ('leave' in each && twinWaiting.length > 0) {
            const left = twinWaiting[each.leave % twinWaiting.length]!;
            expect(queue.leave(waits.get(left.number)!)).toBe(true);
            twinWaiting = twinWaiting.filter((other) => other !== left);
            if (!twinWaiting.some(({ tenant }) => tenant === left.tenant))
              turns = turns.filter((tenant) => tenant !== left.tenant);
          } else if ('inside' in each) queue.reported(each.inside);
          twinFill();
          expect(started).toEqual(twinStarted);
          expect([queue.depth, queue.underWay]).toEqual([twinWaiting.length, running.length]);
          expect(queue.limit).toBeGreaterThanOrEqual(1);
          expect(queue.limit).toBeLessThanOrEqual(max);
        }
        queue.reported(undefined);
        twinFill();
        while (running.length > 0) {
          const ended = running.shift()!;
          twinRunning.splice(twinRunning.indexOf(ended.prompt.tenant), 1);
          ended.end();
          twinFill();
        }
        expect(started).toEqual(twinStarted);
        expect(new Set(started).size).toBe(started.length);
        expect([queue.depth, queue.underWay]).toEqual([0, 0]);
      }),
      { seed: 35, numRuns: runs(300) },
    );
  });

  describe('the limit', () => {
    /** A queue of one tenant before an engine that computes `slots` prompts and lets the others wait inside. */
    function engineWith(slots: number, max = 64) {
      const queue = new DispatchQueue(max, settings, PARTS);
      const running: EnginePlace[] = [];
      const start = (_: number, place: EnginePlace) => {
        running.push(place);
      };
      const waiting: (Waiting | undefined)[] = [];
      for (let each = 0; each < 1_000; each++) waiting.push(queue.enter(dispatch('a', { start })));
      /** The engine ends what it computes and reports. */
      const step = () => {
        for (const place of running.splice(0, slots)) place.release(true);
        queue.reported(Math.max(0, running.length - slots));
      };
      return { queue, running, step, close: () => queue.takeAll() };
    }

    it.each([1, 2, 4, 8, 16])('falls to what an engine with %d slots computes, and some headroom', (slots) => {
      const { queue, step, close } = engineWith(slots, 32);
      for (let each = 0; each < 40; each++) step();
      expect(queue.limit).toBeGreaterThanOrEqual(slots);
      expect(queue.limit).toBeLessThanOrEqual(2 * slots + 1);
      close();
    });

    it('falls by half at most for one report: other gateways may have sent what waits inside', () => {
      const { queue, close } = engineWith(8, 64);
      queue.reported(1_000);
      expect(queue.limit).toBe(32);
      expect(queue.waitingInside).toBe(1_000);
      close();
    });

    it('rises while it is reached and nothing waits inside, and starts what waited', () => {
      const { queue, running, close } = engineWith(8, 64);
      for (let each = 0; each < 9; each++) {
        queue.reported(1_000);
        for (const place of running.splice(0)) place.release(true);
      }
      expect(queue.limit).toBe(1);
      queue.reported(0);
      expect([queue.limit, queue.underWay]).toEqual([2, 2]);
      queue.reported(0);
      expect([queue.limit, queue.underWay]).toEqual([4, 4]);
      for (const place of running.splice(0, 1)) place.release(true);
      close();
    });

    it('stays where it is while the engine has fewer prompts than it may have', () => {
      const queue = new DispatchQueue(8, settings, PARTS);
      queue.enter(dispatch('a'));
      queue.reported(0);
      expect(queue.limit).toBe(8);
    });

    it('is the fixed one again when the engine reports no more', () => {
      const { queue, close } = engineWith(8, 64);
      queue.reported(50);
      expect(queue.limit).toBeLessThan(64);
      queue.reported(undefined);
      expect([queue.limit, queue.waitingInside]).toEqual([64, 0]);
      close();
    });
  });

  /** A request that computes what those with the same context begin with, on its way. */
  function led(queue: DispatchQueue) {
    const preamble = { key: 'p', tokens: 500 };
    const context = () => ({
      preamble,
      documents: [],
      reuse: () => ({ cachedTokens: 0, computeTokens: 1 }),
    });
    const leader = dispatch('a', { context });
    queue.enter(leader);
    leader.room().leads({ preamble, documents: [] });
    return { leader, context };
  }

  it.each([
    ['first token', (place: EnginePlace) => place.began()],
    ['success', (place: EnginePlace) => place.release(true)],
    ['failure', (place: EnginePlace) => place.release(false)],
  ] as const)("starts followers at their leader's %s, and none before; those that left are not sent", (_, end) => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('stays', 'leaves'), { maxLength: 12 }), (kinds) => {
        const queue = new DispatchQueue(64, settings, { ...PARTS, needsLeader: () => true });
        const { leader, context } = led(queue);
        const started: number[] = [];
        const followers = kinds.map((_kind, number) => {
          const start = () => {
            started.push(number);
          };
          return queue.enter(dispatch('a', { context, start }))!;
        });
        for (const [place, kind] of kinds.entries()) if (kind === 'leaves') queue.leave(followers[place]!);
        const staying = [...kinds.keys()].filter((place) => kinds[place] === 'stays');
        expect([started, queue.depth]).toEqual([[], staying.length]);
        end(leader.room());
        expect([started, queue.depth]).toEqual([staying, 0]);
      }),
      { seed: 34, numRuns: runs(50) },
    );
  });

  it('starts those that followed the same one over turns of the event loop', async () => {
    let now = 0;
    const eventLoopBudget = new EventLoopBudget(() => now);
    const queue = new DispatchQueue(64, settings, {
      ...PARTS,
      now: () => now,
      eventLoopBudget,
      needsLeader: () => true,
    });
    const { leader, context } = led(queue);
    const started: number[] = [];
    for (let number = 0; number < 7; number++) {
      const start = () => {
        started.push(number);
        now += 4;
      };
      queue.enter(dispatch('a', { context, start }));
    }
    expect(queue.depth).toBe(7);
    leader.room().began();
    const counts = [started.length];
    while (queue.depth > 0) {
      await new Promise((resolve) => setImmediate(resolve));
      counts.push(started.length);
    }
    expect(counts).toEqual([3, 6, 7]);
    expect(started).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });

  it('lets followers go before their equals, and behind more urgent prompts', () => {
    const queue = new DispatchQueue(2, settings, { ...PARTS, needsLeader: () => true });
    const { leader, context } = led(queue);
    const started: string[] = [];
    const places: EnginePlace[] = [];
    const enter = (name: string, given: Partial<Dispatch>) => {
      const start = (_: number, place: EnginePlace) => {
        started.push(name);
        places.push(place);
      };
      queue.enter(dispatch('a', { start, ...given }));
    };
    enter('first follower', { context });
    enter('second follower', { context });
    enter('beside the leader', {});
    enter('equal', {});
    enter('urgent', { urgency: () => 1 });
    expect([started, queue.depth]).toEqual([['beside the leader'], 4]);
    leader.room().began();
    queue.reported(undefined);
    expect(started).toHaveLength(1);
    leader.room().release(true);
    expect(started).toEqual(['beside the leader', 'urgent']);
    expect(queue.waitingBehind({ key: 'p', tokens: 500 }, 'a')).toHaveLength(2);
    for (let place = places.shift(); place !== undefined; place = places.shift()) place.release(true);
    expect(started.slice(2)).toEqual(['first follower', 'second follower', 'equal']);
  });

  it('shares the budget of a turn with other work on requests', async () => {
    let now = 0;
    const eventLoopBudget = new EventLoopBudget(() => now);
    const queue = new DispatchQueue(2, settings, { ...PARTS, now: () => now, eventLoopBudget });
    const first = dispatch('a');
    queue.enter(first);
    queue.enter(dispatch('a'));
    const waiting = dispatch('a');
    queue.enter(waiting);
    eventLoopBudget.run(() => {
      now += 10;
    });
    first.room().release(true);
    expect([queue.depth, queue.underWay]).toEqual([1, 1]);
    await new Promise((resolve) => setImmediate(resolve));
    expect([queue.depth, queue.underWay]).toEqual([0, 2]);
  });

  it('lets no prompt follow for longer than ten seconds', () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const queue = new DispatchQueue(8, settings, { ...PARTS, needsLeader: () => true });
      const { leader, context } = led(queue);
      const follower = dispatch('a', { context });
      queue.enter(follower);
      const stranger = dispatch('b', { context });
      queue.enter(stranger);
      expect([queue.depth, queue.underWay]).toEqual([1, 2]);
      vi.advanceTimersByTime(9_999);
      expect(queue.depth).toBe(1);
      vi.advanceTimersByTime(1);
      expect([queue.depth, queue.underWay]).toEqual([0, 3]);
      for (const each of [leader, follower, stranger]) each.room().release(true);
      expect(queue.underWay).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });
});
