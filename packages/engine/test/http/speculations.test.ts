import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Answer, EventLog, someTokens, TestEngine, textOf } from '../support/engine.js';

const PLAIN = '/v1/completions';

describe('speculative generations', () => {
  let engine: TestEngine;
  let log: EventLog;
  beforeEach(async () => {
    log = new EventLog();
    engine = await TestEngine.start({ speculationTokens: 8, speculationLimit: 2 });
  });
  afterEach(async () => {
    log.close();
    await engine.close();
  });

  const prompt = someTokens(120);
  const body = (id: string, fields: object = {}) => ({
    prompt,
    temperature: 0,
    max_tokens: 24,
    ignore_eos: true,
    ...fields,
    speculation: { id, ...(fields as { speculation?: object }).speculation },
  });
  const send = (fields: object) => engine.call(PLAIN, fields);
  const confirm = (id: string, fields: object = {}) => engine.call(`/v1/speculations/${id}/confirm`, fields);
  const cancel = (id: string, fields: object = {}) => engine.call(`/v1/speculations/${id}/cancel`, fields);
  const code = (reply: { body: unknown }) => (reply.body as { error: { code: string } }).error.code;
  const outcomes = (outcome: string) => engine.metric('warmpath_engine_speculations_total', `outcome="${outcome}"`);
  /** Waits until a generation has made what it may make without being confirmed, and has given its cells back. */
  const untilHeld = async (count = 1) => {
    while (engine.server.stats().held !== count || engine.server.stats().running > 0) {
      await engine.get('/health');
    }
  };

  it('keep their answer back until they are confirmed, and then answer as if they had not', async () => {
    let isAnswered = false;
    const speculated = send(body('a')).then((reply) => {
      isAnswered = true;
      return reply;
    });
    await untilHeld();
    expect(log.steps.at(-1)!.generating).toBe(1);
    expect(isAnswered).toBe(false);
    expect(engine.server.stats()).toMatchObject({ leases: 0, waiting: 0 });
    expect(await engine.metric('warmpath_engine_speculations')).toBe(1);
    expect(await engine.metric('warmpath_engine_held_requests')).toBe(1);
    expect(await confirm('a')).toMatchObject({ status: 200, body: { id: 'a', state: 'confirmed', generation: 0 } });
    const { choices, usage, timings } = (await speculated).body as Answer;
    expect(usage).toMatchObject({ prompt_tokens: 120, completion_tokens: 24 });
    expect(timings.cached).toBe(0);
    const plain = await engine.complete(prompt, { max_tokens: 24, ignore_eos: true });
    expect(choices).toEqual(plain.choices);
    // Safe to repeat, and counted once.
    expect(await confirm('a')).toMatchObject({ status: 200, body: { state: 'confirmed', generation: null } });
    expect(await outcomes('confirmed')).toBe(1);
    expect(code(await cancel('a'))).toBe('WARMPATH_SPECULATION_ENDED');
    expect(await engine.metric('warmpath_engine_speculations')).toBe(0);
  });

  it('count as one use, however often they gave their cells away, and not at all when they are cancelled', async () => {
    const speculated = send(body('a'));
    await untilHeld();
    await confirm('a');
    await speculated;
    const cancelled = send(body('b', { prompt: someTokens(90, 5) }));
    await untilHeld();
    await cancel('b');
    await cancelled;
    const { paths } = JSON.parse(await engine.get('/kv')) as { paths: { uses: number }[] };
    expect(paths.map(({ uses }) => uses).sort()).toEqual([0, 1]);
  });

  it('take their turn behind the one that runs when they are confirmed, in the order of their confirmations', async () => {
    await engine.close();
    engine = await TestEngine.start({ speculationTokens: 8, speculationLimit: 2, maxRunning: 1, schedule: 'fifo' });
    const order: string[] = [];
    const noted = (id: string, reply: Promise<unknown>) => reply.then(() => order.push(id));
    const first = noted('first', send(body('first')));
    await untilHeld(1);
    const second = noted('second', send(body('second')));
    await untilHeld(2);
    const stream = engine.stream(PLAIN, { prompt: someTokens(30), max_tokens: 4000, ignore_eos: true });
    await stream.next();
    const plain = noted('plain', engine.complete(someTokens(40, 7)));
    while (engine.server.stats().waiting < 1) await engine.get('/health');
    await confirm('first');
    await confirm('second');
    stream.destroy();
    await Promise.all([first, second, plain]);
    expect(order).toEqual(['plain', 'first', 'second']);
  });

  it('stream what was kept back in one go, then on', async () => {
    const stream = engine.stream(PLAIN, { ...body('a'), temperature: 0 });
    await untilHeld();
    await confirm('a', { generation: 0 });
    const chunks = await stream.rest();
    const plain = await engine.complete(prompt, { max_tokens: 24, ignore_eos: true });
    expect(textOf(chunks)).toBe(plain.choices[0]!.text);
    expect(chunks.length).toBeLessThanOrEqual(24 - 8 + 2);
  });

  it('that have ended before they are confirmed answer at once when they are', async () => {
    const speculated = send(body('a', { max_tokens: 4 }));
    await log.until(() => log.ends.length === 1);
    await confirm('a');
    expect(((await speculated).body as Answer).usage.completion_tokens).toBe(4);
  });

  it('end when a newer one of their id comes, which goes on behind what both have in common', async () => {
    const older = send(body('a'));
    await untilHeld();
    const newer = send(body('a', { prompt: [...prompt.slice(0, 90), ...someTokens(40, 5)] }));
    expect(await older).toMatchObject({ status: 409 });
    expect(code(await older)).toBe('WARMPATH_SPECULATION_SUPERSEDED');
    await untilHeld();
    expect(await confirm('a', { generation: 1 })).toMatchObject({ body: { generation: 1 } });
    const { usage } = (await newer).body as Answer;
    expect(usage).toMatchObject({ prompt_tokens: 130, prompt_tokens_details: { cached_tokens: 90 } });
    expect(await outcomes('superseded')).toBe(1);
  });

  it('end while their prompt is still computed, after the current step', async () => {
    const long = someTokens(3000, 9);
    const older = send(body('a', { prompt: long }));
    await log.until(() => log.steps.some(({ promptTokens }) => promptTokens > 0));
    const newer = send(body('a', { prompt: [...long.slice(0, 20), ...someTokens(40, 6)], max_tokens: 2 }));
    expect(code(await older)).toBe('WARMPATH_SPECULATION_SUPERSEDED');
    await log.until(() => log.ends.length === 2);
    expect(log.ends[0]).toMatchObject({ outcome: 'aborted' });
    expect(log.ends[0]!.computedTokens).toBeLessThan(3000);
    await confirm('a');
    expect(((await newer).body as Answer).usage.prompt_tokens_details.cached_tokens).toBe(20);
  });

  it('give way to the final documents, whose answer is not kept back', async () => {
    const older = send(body('a'));
    await untilHeld();
    const final = await send(body('a', { prompt: someTokens(50, 4), speculation: { confirmed: true } }));
    expect((final.body as Answer).usage.completion_tokens).toBe(24);
    expect(code(await older)).toBe('WARMPATH_SPECULATION_SUPERSEDED');
    // What arrives late is refused: the user has an answer.
    expect(code(await send(body('a')))).toBe('WARMPATH_SPECULATION_ENDED');
  });

  it('are refused when a newer generation of theirs has overtaken them on the way', async () => {
    const newer = send(body('a', { speculation: { generation: 5 } }));
    await untilHeld();
    expect(code(await send(body('a', { speculation: { generation: 4 } })))).toBe('WARMPATH_SPECULATION_SUPERSEDED');
    expect(code(await confirm('a', { generation: 4 }))).toBe('WARMPATH_SPECULATION_SUPERSEDED');
    await confirm('a', { generation: 5 });
    expect(await newer).toMatchObject({ status: 200 });
  });

  it('can be cancelled, and what they computed stays cached', async () => {
    const speculated = send(body('a'));
    await untilHeld();
    expect(await cancel('a')).toMatchObject({ status: 200, body: { id: 'a', state: 'cancelled', generation: 0 } });
    expect(await speculated).toMatchObject({ status: 409 });
    expect(code(await speculated)).toBe('WARMPATH_SPECULATION_ENDED');
    await log.until(() => log.ends.length === 1);
    expect(engine.server.stats()).toMatchObject({ held: 0, running: 0, waiting: 0, leases: 0 });
    expect(code(await send(body('a')))).toBe('WARMPATH_SPECULATION_ENDED');
    expect((await cancel('a')).status).toBe(200);
    expect((await engine.complete(prompt)).usage.prompt_tokens_details.cached_tokens).toBe(119);
  });

  it.each([
    ['cache salt', { cache_salt: 'theirs' }, {}],
    ['key', {}, { authorization: 'Bearer theirs' }],
    ['key, as Anthropic writes it', {}, { 'x-api-key': 'theirs' }],
  ])('are their caller’s alone: another %s means another speculation', async (_, fields, headers) => {
    const mine = send(body('a'));
    await untilHeld();
    const theirs = engine.call(PLAIN, body('a', fields), headers);
    await untilHeld(2);
    // None superseded the other, and each is ended by its own caller.
    expect(await outcomes('superseded')).toBe(0);
    expect(code(await engine.call('/v1/speculations/b/cancel', fields, headers))).toBe('WARMPATH_SPECULATION_UNKNOWN');
    expect(await engine.call('/v1/speculations/a/cancel', fields, headers)).toMatchObject({ status: 200 });
    expect(code(await theirs)).toBe('WARMPATH_SPECULATION_ENDED');
    expect(await confirm('a')).toMatchObject({ body: { id: 'a', generation: 0 } });
    expect(await mine).toMatchObject({ status: 200 });
    expect(code(await engine.call('/v1/speculations/a/confirm', fields, headers))).toBe('WARMPATH_SPECULATION_ENDED');
  });

  it('are forgotten when their client goes away', async () => {
    const stream = engine.stream(PLAIN, body('a'));
    await untilHeld();
    stream.destroy();
    await log.until(() => log.ends.length === 1);
    expect(await outcomes('closed')).toBe(1);
    expect(engine.server.stats().held).toBe(0);
    expect(code(await confirm('a'))).toBe('WARMPATH_SPECULATION_ENDED');
    // The search goes on, so a newer one may come.
    const next = send(body('a'));
    await untilHeld();
    await confirm('a');
    expect((await next).status).toBe(200);
  });

  it('are no more than the limit', async () => {
    const held = ['a', 'b'].map((id) => send(body(id)));
    await untilHeld(2);
    expect(await send(body('c'))).toMatchObject({ status: 429 });
    await Promise.all([cancel('a'), cancel('b')]);
    await Promise.all(held);
  });

  it.each([
    [{ id: '' }, 'speculation.id'],
    [{ id: 'a/b' }, 'speculation.id'],
    [{ id: 'a', generation: -1 }, 'speculation.generation'],
    ['a', 'speculation'],
  ])('are refused as %j', async (speculation, param) => {
    const reply = await engine.error(PLAIN, { prompt: 'a', speculation });
    expect(reply).toMatchObject({ status: 400, code: 'WARMPATH_INVALID_REQUEST', param });
  });

  it('that nobody knows cannot be confirmed or cancelled', async () => {
    for (const reply of [await confirm('nobody'), await cancel('nobody')]) {
      expect(reply.status).toBe(404);
      expect(code(reply)).toBe('WARMPATH_SPECULATION_UNKNOWN');
    }
    expect(await confirm('nobody', { generation: 'x' })).toMatchObject({ status: 400 });
  });

  it('end at shutdown', async () => {
    const speculated = send(body('a'));
    await untilHeld();
    await engine.close();
    expect(code(await speculated)).toBe('WARMPATH_SHUTTING_DOWN');
  });
});

describe('a speculation that is never confirmed', () => {
  it('ends, and its id may be used again', async () => {
    const engine = await TestEngine.start({ speculationTimeoutMs: 1 });
    const request = { prompt: someTokens(20), max_tokens: 2, speculation: { id: 'a' } };
    const first = await engine.error(PLAIN, request);
    expect(first).toMatchObject({ status: 409, code: 'WARMPATH_SPECULATION_ENDED' });
    expect(first.message).toContain('not confirmed within 1 ms');
    expect(await engine.metric('warmpath_engine_speculations_total', 'outcome="expired"')).toBe(1);
    const again = await engine.call(PLAIN, { ...request, speculation: { id: 'a', confirmed: true } });
    expect(again.status).toBe(200);
    await engine.close();
  });
});
