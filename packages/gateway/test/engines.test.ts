import { describe, expect, it } from 'vitest';
import type { GatewayParts } from '../src/assemble-gateway.js';
import type { GatewayConfigInput } from '../src/config/schema.js';
import { type RunningGateway, startGateway } from '../src/start-gateway.js';
import { type Answer, answerAsAsked, answerJson, answerStream, FakeEngine, startStream } from './fake-engine.js';
import { chat, closing, DOCUMENTS, errorOf, labelsIn, openRequest, send, told } from './harness.js';

const CHAT = '/v1/chat/completions';
/** No checks during a test, but where a test is about them. */
const HEALTH = { checkMs: 3_600_000, failures: 3, ejectMs: 1_000 };

const fails =
  (status: number): Answer =>
  (response) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end('{"error":{"message":"broken"}}');
const cut: Answer = (response) => response.destroy();

/** Prompts that an engine has and does not answer until it is told to. */
class HeldAnswers {
  readonly #held: Parameters<Answer>[] = [];
  #heard = (): void => {};

  readonly hold: Answer = (response, request) => {
    this.#held.push([response, request]);
    this.#heard();
  };

  /** Resolves when so many have come. */
  async until(count: number): Promise<void> {
    while (this.#held.length < count) {
      await new Promise<void>((resolve) => {
        this.#heard = resolve;
      });
    }
  }

  release(answer: Answer): void {
    for (const each of this.#held.splice(0)) answer(...each);
  }
}

interface Fleet {
  readonly engines: readonly FakeEngine[];
  readonly gateway: RunningGateway;
  /** The gateway's clock. */
  readonly clock: { ms: number };
  readonly config: GatewayConfigInput & { readonly engines: NonNullable<GatewayConfigInput['engines']> };
}

const LIST = JSON.stringify({ object: 'list', data: [{ id: 'm' }] });

/** Answers for models; for prompts, what is given. */
const asEngine =
  (answer: Answer): Answer =>
  (response, request) => {
    if (request.path === '/v1/models') response.writeHead(200, { 'content-type': 'application/json' }).end(LIST);
    else answer(response, request);
  };

/** A gateway in front of engines `a`, `b`, …, each with its answer. */
async function fleet(
  answers: readonly Answer[],
  { health = HEALTH, ...config }: Pick<GatewayParts, 'health'> & Partial<GatewayConfigInput> = {},
  each: readonly object[] = [],
): Promise<Fleet> {
  const engines: FakeEngine[] = [];
  for (const answer of answers) engines.push(closing(await FakeEngine.start(asEngine(answer))));
  const listed = engines.map(({ url }, i) => ({ name: 'abcdefgh'[i]!, url, ...each[i] }));
  const whole = { server: { port: 0 }, log: { level: 'silent' as const }, engines: listed, ...config };
  const clock = { ms: 0 };
  const parts: GatewayParts = { health, now: () => clock.ms };
  return { engines, clock, config: whole, gateway: closing(await startGateway(whole, parts)) };
}

/** Prompts that each engine got. */
const prompts = ({ engines }: Pick<Fleet, 'engines'>) =>
  engines.map(
    ({ received }) => received.filter(({ method, path }) => method === 'POST' && path !== '/tokenize').length,
  );

const ask = ({ gateway }: Pick<Fleet, 'gateway'>, fields: object = {}, documents: readonly object[] = DOCUMENTS) =>
  send(gateway.url + CHAT, chat(documents, fields));

async function sample({ gateway }: Pick<Fleet, 'gateway'>, name: string): Promise<number> {
  const { text } = await send(`${gateway.url}/metrics`);
  return Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${name} `))
      ?.split(' ')
      .at(-1),
  );
}

const passage = (id: string) => ({ id, content: `What is known of ${id}: ${`${id} `.repeat(60)}` });

describe('several engines', () => {
  it('get what they hold: a context goes where its documents were, others elsewhere', async () => {
    const stand = await fleet([answerJson, answerJson]);
    const one = ['x', 'y', 'z'].map(passage);
    const other = ['u', 'v', 'w'].map(passage);
    const names: (string | undefined)[] = [];
    for (const context of [one, other, one, other, one, other])
      names.push(told(await ask(stand, {}, context))['engine']);
    expect(names).toEqual(['a', 'b', 'a', 'b', 'a', 'b']);
    // In the order that this engine has, not that of the request.
    await ask(stand, {}, [one[2]!, one[0]!, one[1]!]);
    expect(labelsIn(stand.engines[0]!.last.body)).toEqual(['x', 'y', 'z']);
  });

  it('get a conversation without documents again that they had', async () => {
    const stand = await fleet([answerJson, answerJson, answerJson]);
    const turns = (who: string, count: number) =>
      Array.from({ length: count }, (_, i) => ({
        role: i % 2 === 0 ? 'user' : 'assistant',
        content: `${who} ${i} `.repeat(100),
      }));
    const engineOf = async (who: string, count: number) =>
      told(await send(stand.gateway.url + CHAT, { model: 'm', messages: turns(who, count) }))['engine'];
    const first = new Map<string, string | undefined>();
    for (const who of ['anna', 'berta', 'carla']) first.set(who, await engineOf(who, 3));
    expect([...first.values()].sort()).toEqual(['a', 'b', 'c']);
    for (const count of [5, 7]) {
      for (const who of ['carla', 'anna', 'berta']) expect(await engineOf(who, count)).toBe(first.get(who));
    }
  });

  it('say nothing about one tenant to another', async () => {
    const stand = await fleet([answerJson, answerJson]);
    const context = ['x', 'y', 'z'].map(passage);
    const engineOf = async (key: string) =>
      told(await send(stand.gateway.url + CHAT, chat(context), { headers: { authorization: `Bearer ${key}` } }))[
        'engine'
      ];
    // The second tenant's goes in turn, and not to where the same documents of the first are.
    expect([await engineOf('one'), await engineOf('two'), await engineOf('one'), await engineOf('two')]).toEqual([
      'a',
      'b',
      'a',
      'b',
    ]);
  });

  it('get work by their weight while it is under way', async () => {
    const held = new HeldAnswers();
    const stand = await fleet([held.hold, held.hold], {}, [{ weight: 1 }, { weight: 3 }]);
    const replies = [];
    for (let i = 0; i < 16; i++) {
      replies.push(ask(stand, {}, [passage(`single-${i}`)]));
      await held.until(i + 1);
    }
    expect(prompts(stand)[1]).toBeGreaterThan(10);
    expect(prompts(stand)[0]).toBeGreaterThan(1);
    held.release(answerJson);
    await Promise.all(replies);
    expect(await sample(stand, 'warmpath_engine_pending_tokens{engine="b"}')).toBe(0);
  });
});

describe('models', () => {
  it('are asked of the engines that serve them, and of nobody where none does', async () => {
    const stand = await fleet([answerJson, answerJson], {}, [
      { models: ['small', 'both'] },
      { models: ['large', 'both'] },
    ]);
    for (let i = 0; i < 2; i++) {
      expect(told(await ask(stand, { model: 'large' }))['engine']).toBe('b');
      expect(told(await send(stand.gateway.url + CHAT, { model: 'small', messages: [] }))['engine']).toBe('a');
    }
    const refused = await ask(stand, { model: 'huge' });
    expect(refused.status).toBe(404);
    expect(errorOf(refused)).toMatchObject({ code: 'WARMPATH_MODEL_NOT_FOUND', param: 'model' });
    expect(prompts(stand)).toEqual([2, 2]);
  });

  it('of any name go to an engine that lists none', async () => {
    const stand = await fleet([answerJson, answerJson], {}, [{ models: ['small'] }]);
    expect(told(await ask(stand, { model: 'huge' }))['engine']).toBe('b');
  });

  it('are listed together, each once, without those that an engine is not to serve', async () => {
    const list =
      (...ids: string[]): Answer =>
      (response) =>
        response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(JSON.stringify({ data: ids.map((id) => ({ id })) }));
    const stand = await fleet([cut, cut, cut], {}, [{ models: ['m1'] }]);
    const [a, b, c] = stand.engines;
    a!.answer = list('m1', 'hidden');
    b!.answer = list('m2', 'm1');
    c!.answer = cut;
    const { data } = JSON.parse((await send(`${stand.gateway.url}/v1/models`)).text) as { data: { id: string }[] };
    expect(data.map(({ id }) => id)).toEqual(['m1', 'm2']);
    for (const engine of [a, b]) engine!.answer = cut;
    expect(errorOf(await send(`${stand.gateway.url}/v1/models`)).code).toBe('WARMPATH_UPSTREAM_CUT');
  });
});

describe('an engine that fails', () => {
  it.each([
    ['before its first byte', cut],
    ['with 503', fails(503)],
    ['with 500', fails(500)],
  ])('%s is replaced by another one, and the client hears nothing of it', async (_, answer) => {
    const stand = await fleet([answer, answerJson]);
    const reply = await ask(stand);
    expect([reply.status, told(reply)['engine'], told(reply)['error']]).toEqual([200, 'b', undefined]);
    expect(prompts(stand)).toEqual([1, 1]);
    expect(labelsIn(stand.engines[1]!.last.body)).toEqual(['velka', 'orsin', 'tamir']);
    expect(await sample(stand, 'warmpath_engine_requests_total{engine="a",outcome="retriedElsewhere"}')).toBe(1);
    // What it failed to do is not believed to be there.
    expect(told(await ask(stand))['engine']).toBe('b');
  });

  it('is told to the client where a second one fails, too: a prompt that ends engines does not end all', async () => {
    const stand = await fleet([cut, cut, answerJson]);
    const reply = await ask(stand);
    expect([reply.status, errorOf(reply).code]).toEqual([502, 'WARMPATH_UPSTREAM_CUT']);
    expect(prompts(stand).reduce((sum, count) => sum + count)).toBe(2);
  });

  it('by its status is told as it said it, where no other engine is left', async () => {
    const stand = await fleet([fails(503), fails(502)]);
    const reply = await ask(stand);
    expect([reply.status, reply.text]).toEqual([502, '{"error":{"message":"broken"}}']);
  });

  it('to be reached at all is replaced by up to two others', async () => {
    const stand = await fleet([answerJson, answerJson, answerJson]);
    await stand.engines[0]!.close();
    await stand.engines[1]!.close();
    const reply = await ask(stand);
    expect([reply.status, told(reply)['engine']]).toEqual([200, 'c']);
  });

  it('is replaced for prompts that hold their documents, too', async () => {
    const stand = await fleet([cut, answerJson]);
    const text = ['x', 'y', 'z'].map((id) => `<document id="${id}">\n${passage(id).content}\n</document>`).join('\n');
    const messages = [
      { role: 'user', content: `<warmpath-documents>${text}</warmpath-documents>\n\nWhat is known of y?` },
    ];
    const reply = await send(stand.gateway.url + CHAT, { model: 'm', messages });
    expect([reply.status, told(reply)['engine'], told(reply)['documents']]).toEqual([200, 'b', '3']);
    expect(JSON.parse(stand.engines[1]!.last.body)).toEqual({ model: 'm', messages });
  });

  it('in the middle of a stream ends it with an error event, and nobody else is asked', async () => {
    const stand = await fleet([
      (response) => {
        startStream(response).write('data: {"choices":[{"delta":{"content":"The"}}]}\n\n', () => response.destroy());
      },
      answerStream,
    ]);
    const reply = await ask(stand, { stream: true });
    expect(reply.broken).toBe(true);
    expect(reply.text).toContain('"content":"The"');
    expect(reply.text).toContain('WARMPATH_UPSTREAM_CUT');
    expect(prompts(stand)).toEqual([1, 0]);
  });

  it('gets no requests for a while, is tried again by one, and returns', async () => {
    const stand = await fleet([fails(503), answerJson]);
    const one = passage('one');
    // Each has what no engine holds, so they go in turn; those for `a` go on to `b`.
    for (let i = 0; i < 6; i++) expect((await ask(stand, {}, [passage(`fresh-${i}`)])).status).toBe(200);
    expect(prompts(stand)[0]).toBe(3);
    expect(await sample(stand, 'warmpath_engine_up{engine="a"}')).toBe(0);
    expect(await sample(stand, 'warmpath_engine_ejections_total{engine="a"}')).toBe(1);
    for (let i = 6; i < 12; i++) await ask(stand, {}, [passage(`fresh-${i}`)]);
    expect(prompts(stand)[0]).toBe(3);
    stand.clock.ms += HEALTH.ejectMs;
    stand.engines[0]!.answer = asEngine(answerJson);
    for (let i = 12; i < 16; i++) await ask(stand, {}, [passage(`fresh-${i}`)]);
    expect(prompts(stand)[0]).toBeGreaterThan(3);
    expect(await sample(stand, 'warmpath_engine_up{engine="a"}')).toBe(1);
    expect((await ask(stand, {}, [one])).status).toBe(200);
  });

  it('gets requests all the same where every engine fails', async () => {
    const stand = await fleet([fails(503), fails(503)]);
    for (let i = 0; i < 12; i++) expect((await ask(stand, {}, [passage(`fresh-${i}`)])).status).toBe(503);
    const up = [
      await sample(stand, 'warmpath_engine_up{engine="a"}'),
      await sample(stand, 'warmpath_engine_up{engine="b"}'),
    ];
    expect(up.sort()).toEqual([0, 1]);
    for (const engine of stand.engines) engine.answer = asEngine(answerJson);
    expect((await ask(stand)).status).toBe(200);
  });

  it('gives away what waits for it', async () => {
    const [held, others] = [new HeldAnswers(), new HeldAnswers()];
    const stand = await fleet([held.hold, others.hold], {
      upstream: { maxConcurrent: 1 },
      health: { ...HEALTH, failures: 1 },
    });
    const replies = Array.from({ length: 6 }, (_, i) => ask(stand, {}, [passage(`fresh-${i}`)]));
    await Promise.all([held.until(1), others.until(1)]);
    while ((await sample(stand, 'warmpath_queue_depth')) < 4);
    expect(await sample(stand, 'warmpath_engine_queue_depth{engine="a"}')).toBeGreaterThan(0);
    held.release(cut);
    while ((await sample(stand, 'warmpath_engine_queue_depth{engine="b"}')) < 5);
    stand.engines[1]!.answer = asEngine(answerJson);
    others.release(answerJson);
    expect((await Promise.all(replies)).map(({ status }) => status)).toEqual(Array(6).fill(200));
    expect(prompts(stand)).toEqual([1, 6]);
    expect(await sample(stand, 'warmpath_engine_pending_tokens{engine="a"}')).toBe(0);
  });

  it('is found out by checks alone, and returns by them', async () => {
    const stand = await fleet([answerJson, answerJson], { health: { checkMs: 5, failures: 2, ejectMs: 1_000 } });
    const until = async (value: number) => {
      while ((await sample(stand, 'warmpath_engine_up{engine="a"}')) !== value);
    };
    stand.engines[0]!.answer = fails(503);
    await until(0);
    stand.engines[0]!.answer = asEngine(answerJson);
    const before = stand.engines[0]!.received.length;
    await stand.engines[0]!.until('request', before + 2);
    expect(await sample(stand, 'warmpath_engine_up{engine="a"}')).toBe(0);
    stand.clock.ms += 600_000;
    await until(1);
    expect(prompts(stand)).toEqual([0, 0]);
  });

  it('loses the request of a client that leaves to nobody', async () => {
    const held = new HeldAnswers();
    const stand = await fleet([held.hold, answerJson]);
    const request = openRequest(stand.gateway.url + CHAT, chat());
    request.on('error', () => {});
    await held.until(1);
    request.destroy();
    await stand.engines[0]!.until('abort', 1);
    expect(prompts(stand)).toEqual([1, 0]);
    expect(await sample(stand, 'warmpath_engine_pending_tokens{engine="a"}')).toBe(0);
    expect(await sample(stand, 'warmpath_engine_requests_total{engine="a",outcome="failed"}')).toBe(0);
  });
});

describe('a list of engines that changes', () => {
  it('takes new ones, and lets those that are gone finish what they have', async () => {
    const held = new HeldAnswers();
    const stand = await fleet([
      (response, request) => {
        startStream(response).write('data: {"choices":[{"delta":{"content":"The"}}]}\n\n');
        held.hold(response, request);
      },
    ]);
    const first = ask(stand, { stream: true });
    await held.until(1);
    const added = closing(await FakeEngine.start(asEngine(answerAsAsked)));
    await stand.gateway.reload({ ...stand.config, engines: [{ name: 'new', url: added.url }] });
    expect((await ask(stand)).status).toBe(200);
    expect(added.received.filter(({ method }) => method === 'POST')).toHaveLength(1);
    expect(await sample(stand, 'warmpath_engine_up{engine="a"}')).toBe(0);
    held.release((response) => response.end('data: [DONE]\n\n'));
    const reply = await first;
    expect([reply.broken, reply.text.endsWith('[DONE]\n\n')]).toEqual([false, true]);
    expect((await send(`${stand.gateway.url}/metrics`)).text).not.toContain('engine="a"');
    expect(prompts(stand)).toEqual([1]);
  });

  it('keeps what is known of those that stay, and changes their weight and models', async () => {
    const stand = await fleet([answerJson, answerJson]);
    const context = ['x', 'y', 'z'].map(passage);
    expect(told(await ask(stand, {}, context))['engine']).toBe('a');
    const [a, b] = stand.config.engines;
    await stand.gateway.reload({ ...stand.config, engines: [b!, { ...a!, weight: 2, models: ['m'] }] });
    const again = told(await ask(stand, {}, context));
    expect([again['engine'], Number(again['predicted']) > 90]).toEqual(['a', true]);
    expect(told(await ask(stand, { model: 'other' }, context))['engine']).toBe('b');
  });

  it('stays as it was where the new one is wrong', async () => {
    const stand = await fleet([answerJson]);
    const [a] = stand.config.engines;
    await expect(stand.gateway.reload({ ...stand.config, engines: [a!, a!] })).rejects.toThrow('engines.1.name');
    expect((await ask(stand)).status).toBe(200);
  });

  it('moves what waits for one that goes', async () => {
    const held = new HeldAnswers();
    const stand = await fleet([held.hold, answerJson], {
      upstream: { maxConcurrent: 1 },
    });
    const context = [passage('x')];
    const first = ask(stand, {}, context);
    await held.until(1);
    const [, b] = stand.config.engines;
    const second = ask(stand, {}, context);
    await stand.gateway.reload({ ...stand.config, engines: [b!] });
    expect((await second).status).toBe(200);
    held.release(answerJson);
    expect((await first).status).toBe(200);
    expect(prompts(stand)).toEqual([1, 1]);
  });
});

describe('what goes with several engines', () => {
  it('says which one an order is for, and takes one that the client names', async () => {
    const stand = await fleet([answerJson, answerJson]);
    const documents = ['x', 'y', 'z'].map(passage);
    const order = async (fields: object) => {
      const reply = await send(`${stand.gateway.url}/v1/arrange`, { model: 'm', documents, ...fields });
      return JSON.parse(reply.text) as { engine: string; predictedCachedTokens: number; error?: object };
    };
    const first = await order({});
    expect(first.engine).toBe('a');
    expect(await order({})).toMatchObject({ engine: 'a' });
    expect(await order({ engine: 'b' })).toMatchObject({ engine: 'b', predictedCachedTokens: 0 });
    expect((await order({ engine: 'b' })).predictedCachedTokens).toBeGreaterThan(100);
    expect((await order({ engine: 'nobody' })).error).toMatchObject({ param: 'engine' });
  });

  it('tells where a request went, and what was weighed', async () => {
    const stand = await fleet([fails(503), answerJson]);
    const reply = await ask(stand);
    const { text } = await send(`${stand.gateway.url}/v1/requests/${reply.headers['x-request-id']}`);
    expect(JSON.parse(text)).toMatchObject({
      engine: { name: 'b', candidates: 1, tried: 1, pendingTokens: 0, newTokens: expect.any(Number) },
    });
  });

  it('is ready while one of them answers, and says which do', async () => {
    const stand = await fleet([answerJson, answerJson]);
    await stand.engines[0]!.close();
    const reply = await send(`${stand.gateway.url}/readyz`);
    expect(reply.status).toBe(200);
    expect(JSON.parse(reply.text)).toMatchObject({
      engines: [
        { name: 'a', state: 'failing' },
        { name: 'b', state: 'ready' },
      ],
    });
    await stand.engines[1]!.close();
    expect((await send(`${stand.gateway.url}/readyz`)).status).toBe(503);
  });

  it('sends what it passes through to one that serves the model, and always to the same one', async () => {
    const stand = await fleet([answerJson, answerJson], {}, [{ models: ['m'] }, { models: ['embedder'] }]);
    for (let i = 0; i < 3; i++) await send(`${stand.gateway.url}/v1/embeddings`, { model: 'embedder', input: 'x' });
    for (let i = 0; i < 2; i++) await send(`${stand.gateway.url}/v1/files/file-1`);
    const paths = stand.engines.map(({ received }) =>
      received.map(({ path }) => path).filter((path) => path !== '/v1/models'),
    );
    expect(paths).toEqual([Array(2).fill('/v1/files/file-1'), Array(3).fill('/v1/embeddings')]);
  });

  it('gives each its own key', async () => {
    const stand = await fleet([answerJson, answerJson], { upstream: { apiKey: 'shared' } }, [{ apiKey: 'own' }]);
    await ask(stand, {}, [passage('x')]);
    await ask(stand, {}, [passage('y')]);
    expect(stand.engines.map(({ last }) => last.headers.authorization)).toEqual(['Bearer own', 'Bearer shared']);
  });

  it('sends a request where its beginning was warmed up', async () => {
    const stand = await fleet([answerJson, answerJson]);
    const system = { role: 'system', content: 'Answer from the documents. '.repeat(50) };
    const user = { role: 'user', content: 'What?' };
    // The next in turn would be `b`.
    expect(told(await ask(stand, {}, [passage('x')]))['engine']).toBe('a');
    expect(told(await ask(stand, {}, [passage('y')]))['engine']).toBe('b');
    await send(`${stand.gateway.url}/v1/warmup`, { model: 'm', messages: [system] });
    while ((await sample(stand, 'warmpath_warm_prefixes')) < 2);
    const reply = await send(stand.gateway.url + CHAT, {
      model: 'm',
      messages: [system, user],
      documents: [passage('z')],
    });
    expect(told(reply)['engine']).toBe('a');
    expect(Number(told(reply)['predicted'])).toBeGreaterThan(100);
  });
});

describe('a configuration of engines', () => {
  const refuse = (config: object, message: RegExp) =>
    expect(startGateway({ server: { port: 0 }, ...config } as GatewayConfigInput)).rejects.toThrow(message);
  const a = { name: 'a', url: 'http://127.0.0.1:1' };

  it.each([
    ['no engine', {}, /upstream\.url/],
    ['both ways', { upstream: { url: 'http://e' }, engines: [a] }, /upstream\.url.*does not go with `engines`/],
    ['an empty list', { engines: [] }, /engines/],
    ['a name twice', { engines: [a, { ...a, url: 'http://e' }] }, /engines\.1\.name.*engines\.0/],
    ['an address twice', { engines: [a, { ...a, name: 'b' }] }, /engines\.1\.url.*engines\.0/],
    ['a name for a label', { engines: [{ ...a, name: 'a"b' }] }, /engines\.0\.name/],
    ['no weight', { engines: [{ ...a, weight: 0 }] }, /engines\.0\.weight/],
    ['no models', { engines: [{ ...a, models: [] }] }, /engines\.0\.models/],
    ['events of nobody', { upstream: { kvEvents: { endpoint: 'tcp://e:1' } }, engines: [a] }, /upstream\.kvEvents/],
    ['an unknown key', { engines: [{ ...a, wieght: 1 }] }, /engines\.0\.wieght.*did you mean engines\.0\.weight/],
    ['a key for everybody', { server: { host: '0.0.0.0' }, engines: [{ ...a, apiKey: 'k' }] }, /server\.host/],
  ])('with %s is refused, with its place', async (_, config, message) => {
    await refuse(config, message);
  });
});
