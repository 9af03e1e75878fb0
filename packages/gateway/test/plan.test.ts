import { planBatch } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { readPlanRequest } from '../src/plan/plan-request.js';
import { errorOf, openRequest, type Stand, send, stand } from './harness.js';

const LIMITS = { contexts: 100, documents: 10 };

interface Step {
  readonly index: number;
  readonly documents: readonly string[];
  readonly sharedDocuments: number;
}

const plansCounted = async ({ gateway }: Stand, outcome: string) =>
  Number(
    new RegExp(`^warmpath_plans_total\\{outcome="${outcome}"\\} (\\d+)$`, 'm').exec(
      (await send(`${gateway.url}/metrics`)).text,
    )?.[1] ?? 0,
  );

const waiting = async ({ gateway }: Stand) =>
  Number(/^warmpath_plans_waiting (\d+)$/m.exec((await send(`${gateway.url}/metrics`)).text)?.[1]);

/** Takes seconds to plan, and megabytes. */
const large = JSON.stringify({
  contexts: Array.from({ length: 20_000 }, (_, context) =>
    Array.from({ length: 15 }, (_, place) => `document-${(context * (place + 7) * 2_654_435_761) % 4_001}`),
  ),
});

describe('POST /v1/plan', () => {
  it('answers with orders, execution order and figures, as core plans them', async () => {
    const { gateway, engine } = await stand();
    const contexts = [['a', 'b'], { documents: [{ id: 'c', tokens: 3 }, 'b'] }, { documents: ['b', 'a'] }, []];
    const reply = await send(`${gateway.url}/v1/plan`, { contexts });
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toContain('application/json');
    const { steps, ms, rssMiB, ...figures } = JSON.parse(reply.text) as Record<string, unknown> & { steps: Step[] };
    const { steps: expected, ...summary } = planBatch([['a', 'b'], ['c', 'b'], ['b', 'a'], []]);
    expect(figures).toEqual({ object: 'plan', contexts: 4, ...summary });
    expect(steps).toEqual(expected);
    expect([typeof ms, typeof rssMiB]).toEqual(['number', 'number']);
    expect(engine.received).toEqual([]);
  });

  it('counts tokens if all are known, and takes a capacity', async () => {
    const { gateway } = await stand();
    const documents = (ids: string) => ({ documents: [...ids].map((id) => ({ id, tokens: id === 'b' ? 100 : 1 })) });
    const contexts = [documents('abc'), documents('acd'), documents('bce')];
    const reply = await send(`${gateway.url}/v1/plan`, { contexts, capacity: 1_000 });
    const plan = JSON.parse(reply.text) as { trieTokens: number; trieNodes: number };
    // By tokens b is worth more than a and c together.
    expect(plan).toMatchObject({ tokens: 207, trieTokens: 105 });
  });

  it('names what is wrong, and plans on', async () => {
    const { gateway } = await stand();
    const reply = await send(`${gateway.url}/v1/plan`, { contexts: [['a'], ['b', 7]] });
    expect(reply.status).toBe(400);
    expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', param: 'contexts[1][1]' });
    expect(errorOf(reply).message).toContain('contexts[1][1]: an id or an object with an id was expected');
    const unknown = await send(`${gateway.url}/v1/plan`, { contexts: [], method: 'retrieval' });
    expect(errorOf(unknown)).toMatchObject({ param: 'method' });
    expect(errorOf(await send(`${gateway.url}/v1/plan`, 'no json'))).toMatchObject({ code: 'WARMPATH_INVALID_JSON' });
    expect((await send(`${gateway.url}/v1/plan`, { contexts: [['a']] })).status).toBe(200);
  });

  it('answers others while it plans, and refuses more than may wait', async () => {
    const both = await stand();
    const first = send(`${both.gateway.url}/v1/plan`, large);
    const leaving = [1, 2, 3].map(() => openRequest(`${both.gateway.url}/v1/plan`, large).on('error', () => {}));
    while ((await waiting(both)) < 3);
    const last = send(`${both.gateway.url}/v1/plan`, large);
    while ((await waiting(both)) < 4);
    const third = await send(`${both.gateway.url}/v1/plan`, { contexts: [] });
    expect(third.status).toBe(429);
    expect(errorOf(third)).toMatchObject({ code: 'WARMPATH_OVERLOADED' });
    // Both are still at it: the event loop was free to answer all this.
    expect(await plansCounted(both, 'planned')).toBe(0);
    for (const request of leaving) request.destroy();
    const [one, other] = await Promise.all([first, last]);
    expect([one.status, other.status]).toEqual([200, 200]);
    expect(await plansCounted(both, 'planned')).toBe(2);
  });

  it('stops when the client leaves, while it plans and while it waits', async () => {
    const both = await stand();
    const running = openRequest(`${both.gateway.url}/v1/plan`, large).on('error', () => {});
    const queued = openRequest(`${both.gateway.url}/v1/plan`, large).on('error', () => {});
    while ((await waiting(both)) < 1);
    queued.destroy();
    while ((await waiting(both)) > 0);
    const next = send(`${both.gateway.url}/v1/plan`, { contexts: [['a']] });
    while ((await waiting(both)) < 1);
    running.destroy();
    expect((await next).status).toBe(200);
    expect(await plansCounted(both, 'WARMPATH_CLIENT_CLOSED')).toBe(2);
    expect(await plansCounted(both, 'planned')).toBe(1);
  });

  it('is bounded in time and contexts', async () => {
    const { gateway } = await stand(undefined, { upstream: { timeoutMs: 1 } });
    const late = await send(`${gateway.url}/v1/plan`, large);
    expect(late.status).toBe(422);
    expect(errorOf(late)).toMatchObject({ code: 'WARMPATH_PLAN_LIMIT' });
    const many = { contexts: Array.from({ length: 100_001 }, () => []) };
    const reply = await send(`${(await stand()).gateway.url}/v1/plan`, many);
    expect(errorOf(reply).message).toContain('contexts: there are 100001; at most 100000 are accepted');
  });

  it('gives up with the memory that it may have', async () => {
    const { gateway } = await stand(undefined, { limits: { memoryBytes: 16_777_216 } });
    const reply = await send(`${gateway.url}/v1/plan`, large);
    expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_PLAN_LIMIT' });
    expect(errorOf(reply).message).toContain('16 MiB');
  });
});

describe('readPlanRequest', () => {
  it.each([
    ['too many contexts', `{"contexts":[${'[],'.repeat(400_000)}[]]}`, 'contexts'],
    ['an unknown field', `{"messages":[${'{},'.repeat(400_000)}{}]}`, 'messages'],
    ['fields that come again', `{${'"contexts":[],'.repeat(4)}"contexts":["${'x'.repeat(2e6)}"]}`, 'contexts'],
    ['more values than anybody plans', `{"contexts":[[${'1,'.repeat(5_000_000)}1]]}`, undefined],
  ])('refuses a large body with %s before it is parsed', (_, text, path) => {
    const parse = vi.spyOn(JSON, 'parse');
    try {
      const code = path === undefined ? 'WARMPATH_BODY_TOO_COMPLEX' : 'WARMPATH_INVALID_REQUEST';
      const error = expect.objectContaining(path === undefined ? { code } : { code, path });
      expect(() => readPlanRequest(Buffer.from(text), LIMITS)).toThrow(error);
      expect(parse).not.toHaveBeenCalled();
    } finally {
      parse.mockRestore();
    }
  });

  it('reads ids and objects alike, or says where they are wrong', () => {
    const document = fc.oneof(
      fc.string(),
      fc.record({ id: fc.string(), tokens: fc.option(fc.nat(), { nil: undefined }) }, { requiredKeys: ['id'] }),
      fc.oneof(fc.integer(), fc.constant(null), fc.record({ tokens: fc.nat() })),
    );
    const list = fc.array(document, { maxLength: 12 });
    const context = fc.oneof(list, fc.record({ documents: list }), fc.constant('none'));
    fc.assert(
      fc.property(fc.array(context, { maxLength: 6 }), (contexts) => {
        let read: ReturnType<typeof readPlanRequest>;
        try {
          read = readPlanRequest(Buffer.from(JSON.stringify({ contexts })), LIMITS);
        } catch (error) {
          expect(error).toMatchObject({ path: expect.stringMatching(/^contexts\[\d+\]/) });
          return;
        }
        const ids = contexts.map((each) =>
          (Array.isArray(each) ? each : (each as { documents: unknown[] }).documents).map((one) =>
            typeof one === 'string' ? one : (one as { id: string }).id,
          ),
        );
        expect(read.contexts).toEqual(ids);
        if (read.options.tokens !== undefined) for (const id of ids.flat()) read.options.tokens(id);
      }),
      { seed: 41 },
    );
  });

  it.each([
    ['no contexts', {}, 'contexts'],
    ['a field that there is not', { contexts: [], capacity: 1, colour: 1 }, 'colour'],
    ['a capacity below 0', { contexts: [], capacity: -1 }, 'capacity'],
    ['a method: batches are planned in one way', { contexts: [], method: 'combined' }, 'method'],
    ['a field of a context', { contexts: [{ documents: [], text: '' }] }, 'contexts[0].text'],
    ['a field of a document', { contexts: [[{ id: 'a', content: '' }]] }, 'contexts[0][0].content'],
    [
      'tokens that are no count',
      { contexts: [{ documents: [{ id: 'a', tokens: 1.5 }] }] },
      'contexts[0].documents[0].tokens',
    ],
    ['too many documents', { contexts: [Array(11).fill('a')] }, 'contexts[0]'],
  ])('refuses %s', (_, body, path) => {
    expect(() => readPlanRequest(Buffer.from(JSON.stringify(body)), LIMITS)).toThrow(expect.objectContaining({ path }));
  });
});
