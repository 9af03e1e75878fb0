import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { get, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exportSPKI, generateKeyPair, SignJWT } from 'jose';
import { describe, expect, it } from 'vitest';
import { describeConfig } from '../src/config/describe.js';
import { resolveConfig } from '../src/config/load.js';
import type { GatewayConfigInput } from '../src/config/schema.js';
import { adopt, changesOf } from '../src/operate/reload-config.js';
import { answerJson, CHAT_STREAM, FakeEngine, startStream } from './fake-engine.js';
import {
  COUNTED_STREAM,
  chat,
  closing,
  errorOf,
  gatewayAt,
  metricOf,
  OPERATOR_KEY,
  type Reply,
  send,
  told,
} from './harness.js';

const PATH = '/v1/chat/completions';
const [OLD_KEY, NEW_KEY] = ['the-old-key-of-alice', 'the-new-key-of-alice'];

type Changes = Omit<GatewayConfigInput, 'upstream'> & { upstream?: Partial<GatewayConfigInput['upstream']> };

/** A gateway before a fake engine that is told of changes of its configuration alone. */
async function standing(config: Changes = {}, parts: Parameters<typeof gatewayAt>[2] = {}) {
  const engine = closing(await FakeEngine.start());
  const gateway = closing(await gatewayAt(engine.url, config, parts));
  const reload = (changes: Changes) =>
    gateway.reload({
      ...config,
      ...changes,
      server: { port: 0, ...config.server, ...changes.server },
      upstream: { url: engine.url, ...config.upstream, ...changes.upstream },
      log: { level: 'silent', ...changes.log },
    });
  const ask = (key?: string, fields: object = {}): Promise<Reply> =>
    send(gateway.url + PATH, chat(undefined, fields), { headers: key === undefined ? {} : bearer(key) });
  return { engine, gateway, reload, ask };
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

/** Alice with one of her keys. */
const alice = (key: string, limits: object = {}) => ({ keys: [{ name: 'alice', key, ...limits }] });

describe('a changed configuration', () => {
  it('says of every key whether it counts at once', () => {
    const keys = describeConfig();
    const restart = keys.filter(({ changesAtOnce }) => !changesAtOnce).map(({ path }) => path);
    // Whoever adds a key decides which it is.
    expect(restart).toMatchInlineSnapshot(`
      [
        "server.host",
        "server.port",
        "server.bodyLimitBytes",
        "server.trustedHeaders.tenant",
        "server.trustedHeaders.endUser",
        "upstream.dialect",
        "upstream.cacheSaltKey",
        "upstream.maxConcurrent",
        "arrange.template",
        "arrange.layout",
        "session.maxAgeMs",
        "session.store.url",
        "limits.memoryBytes",
        "holdout",
        "collections.folder",
        "collections.embeddings.url",
        "collections.embeddings.model",
        "collections.embeddings.apiKey",
        "collections.embeddings.dimensions",
        "collections.embeddings.queryPrefix",
        "collections.embeddings.passagePrefix",
        "collections.rerank.url",
        "collections.rerank.model",
        "collections.rerank.apiKey",
        "collections.stores",
        "admin.socket",
      ]
    `);
  });

  it('is what holds and what needs a restart, by the paths of keys', () => {
    const current = resolveConfig({ upstream: { url: 'http://127.0.0.1:1' }, server: alice(OLD_KEY) });
    const next = resolveConfig({
      upstream: { url: 'http://127.0.0.1:1', timeoutMs: 7, maxConcurrent: 3 },
      server: { ...alice(NEW_KEY), port: 9 },
      collections: { folder: '/nowhere' },
      log: { level: 'warn' },
    });
    const { config, changed, needRestart } = changesOf(current, next);
    expect(changed).toEqual(['server.keys', 'upstream.timeoutMs', 'log.level']);
    expect(needRestart).toEqual(['server.port', 'upstream.maxConcurrent', 'collections']);
    const { upstream } = current;
    adopt(current, config);
    expect(current).toEqual(config);
    // Whoever holds a section of it sees the new values.
    expect(upstream.timeoutMs).toBe(7);
    expect(current.server.port).toBe(8_080);
    expect(changesOf(current, config)).toMatchObject({ changed: [], needRestart: [] });
    expect(JSON.stringify({ changed, needRestart })).not.toContain(NEW_KEY);
  });

  it('is refused as a whole where what stays does not go with it', async () => {
    const { reload, ask } = await standing({ server: { host: '127.0.0.1' } });
    // Right after a restart on another address, but not before.
    const wanted = { server: { host: '0.0.0.0', open: true }, dashboard: { names: true } };
    await expect(reload(wanted)).rejects.toThrow('dashboard.names');
    const mixed = { server: { ...alice(OLD_KEY), host: '0.0.0.0' }, upstream: { apiKey: 'of-the-gateway' } };
    const { needRestart } = await reload(mixed);
    expect(needRestart).toEqual(['server.host', 'server.keys']);
    expect((await ask()).status).toBe(200);
  });

  it('that is wrong changes nothing', async () => {
    const { engine, reload, ask } = await standing({ server: alice(OLD_KEY) });
    await expect(reload({ server: alice(NEW_KEY), queue: { capacity: -1 } })).rejects.toThrow('queue.capacity');
    const jwt = { publicKeyFile: '/nowhere/key.pem' };
    await expect(reload({ server: { ...alice(NEW_KEY), jwt } })).rejects.toThrow('server.jwt.publicKeyFile');
    // The list of engines comes last, and takes the keys with it.
    const kvEvents = { endpoint: 'tcp://127.0.0.1:1', replayEndpoint: 'ipc://' } as const;
    const engines = [{ name: 'e', url: engine.url, kvEvents: { ...kvEvents, ranks: 2 } }];
    await expect(reload({ server: alice(NEW_KEY), engines })).rejects.toThrow();
    expect((await ask(OLD_KEY)).status).toBe(200);
    expect((await ask(NEW_KEY)).status).toBe(401);
  });

  it('that cannot be read is refused as well, and each is counted in its turn', async () => {
    const { gateway, engine, reload } = await standing();
    const unread = gateway.reload(Promise.reject(new Error('warmpath.yaml: line 3')));
    await expect(Promise.all([reload({ arrange: { maxShift: 2 } }), unread])).rejects.toThrow('line 3');
    let given = (_: GatewayConfigInput) => {};
    const late = gateway.reload(new Promise<GatewayConfigInput>((resolve) => (given = resolve)));
    const later = reload({ arrange: { maxShift: 7 } });
    const base = { server: { port: 0 }, upstream: { url: engine.url }, log: { level: 'silent' } } as const;
    given({ ...base, arrange: { maxShift: 5 } });
    expect((await late).changed).toEqual(['arrange.maxShift']);
    expect((await later).changed).toEqual(['arrange.maxShift']);
    const counted = (outcome: string) => metricOf(gateway, `warmpath_config_reloads_total{outcome="${outcome}"}`);
    expect([await counted('taken'), await counted('refused')]).toEqual([3, 1]);
  });
});

describe('keys', () => {
  it('are other ones at once, and what is under way goes on', async () => {
    const { engine, reload, ask } = await standing({ server: alice(OLD_KEY, { maxConcurrent: 1 }) });
    let finish = () => {};
    engine.answer = (response) => {
      startStream(response).write(CHAT_STREAM.slice(0, 200));
      finish = () => response.end(CHAT_STREAM.slice(200));
    };
    const streaming = ask(OLD_KEY, COUNTED_STREAM);
    await engine.until('request', 1);
    expect((await reload({ server: alice(NEW_KEY, { maxConcurrent: 1 }) })).changed).toEqual(['server.keys']);
    expect((await ask(OLD_KEY)).status).toBe(401);
    // Alice has her one request under way, whatever her key is now.
    expect((await ask(NEW_KEY)).status).toBe(429);
    finish();
    expect(await streaming).toMatchObject({ status: 200, text: CHAT_STREAM, broken: false });
    engine.answer = answerJson;
    expect((await ask(NEW_KEY)).status).toBe(200);
    expect((await ask(NEW_KEY)).status).toBe(200);
  });

  it('have other limits at once, of which what was used is used', async () => {
    const clock = { now: 0 };
    const now = () => clock.now;
    const { reload, ask } = await standing({ server: alice(OLD_KEY, { requestsPerMinute: 4 }) }, { now });
    const statuses = async (count: number) => {
      const found: number[] = [];
      for (let i = 0; i < count; i++) found.push((await ask(OLD_KEY)).status);
      return found;
    };
    expect(await statuses(5)).toEqual([200, 200, 200, 200, 429]);
    await reload({ server: alice(OLD_KEY, { requestsPerMinute: 6 }) });
    expect(await statuses(3)).toEqual([200, 200, 429]);
    await reload({ server: alice(OLD_KEY, { requestsPerMinute: 2 }) });
    expect(await statuses(1)).toEqual([429]);
    clock.now += 30_000;
    expect(await statuses(2)).toEqual([200, 429]);
    await reload({ server: alice(OLD_KEY) });
    expect(await statuses(9)).toEqual(Array.from({ length: 9 }, () => 200));
  });

  it('are not what tells tenants apart from one moment to the next', async () => {
    const { reload, ask } = await standing();
    expect((await reload({ server: alice(OLD_KEY) })).needRestart).toEqual(['server.keys']);
    expect((await ask()).status).toBe(200);
  });

  it('that tokens are verified with are read from their file again', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-reload-'));
    try {
      const file = join(folder, 'key.pem');
      const pair = async () => {
        const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true });
        await writeFile(file, await exportSPKI(publicKey));
        const token = new SignJWT({ sub: 'alice' }).setProtectedHeader({ alg: 'ES256' }).setExpirationTime('1h');
        return token.sign(privateKey);
      };
      const before = await pair();
      const { reload, ask } = await standing({ server: { jwt: { publicKeyFile: file } } });
      expect((await ask(before)).status).toBe(200);
      const after = await pair();
      expect((await ask(after)).status).toBe(401);
      await reload({});
      expect([(await ask(before)).status, (await ask(after)).status]).toEqual([401, 200]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('of the operator: who watches by the old one does so no more', async () => {
    const operator = (key: string) => ({ operatorKey: { key } });
    const { gateway, reload } = await standing({ server: operator(OLD_KEY) });
    const events = (key: string): Promise<IncomingMessage> =>
      new Promise((resolve) => get(`${gateway.url}/ui/events`, { headers: bearer(key), agent: false }, resolve));
    const watching = await events(OLD_KEY);
    expect(watching.statusCode).toBe(200);
    const over = new Promise((resolve) => watching.resume().on('end', resolve));
    await reload({ server: operator(NEW_KEY) });
    await over;
    const statuses = [];
    for (const key of [OLD_KEY, NEW_KEY]) {
      const { status } = await send(`${gateway.url}/metrics`, undefined, { headers: bearer(key) });
      statuses.push(status);
    }
    expect(statuses).toEqual([401, 200]);
  });
});

describe('other settings', () => {
  const origin = 'https://app.example';
  const DOCUMENT = { content: 'The weight of Velka is 42 kg.' };

  it('count for the next request: origins, limits, policies, the queue', async () => {
    const { gateway, reload, ask } = await standing();
    const allowed = async () => {
      const { headers } = await send(`${gateway.url}/v1/models`, undefined, { headers: { origin } });
      return headers['access-control-allow-origin'];
    };
    expect(await allowed()).toBeUndefined();
    await reload({
      server: { cors: [origin] },
      arrange: { policy: 'sorted', hints: false },
      queue: { capacity: 5, maxWaitMs: 10 },
    });
    expect(await allowed()).toBe(origin);
    const { headers } = await send(gateway.url + PATH, chat([DOCUMENT]));
    expect(told({ headers })['policy']).toBe('sorted');
    await reload({});
    expect(await allowed()).toBeUndefined();
    expect((await ask()).status).toBe(200);
  });

  it('are the time that an engine has', async () => {
    const { engine, reload, ask } = await standing();
    engine.answer = (response, { body }) => {
      if (body.includes('"stream":true')) startStream(response).write(CHAT_STREAM.slice(0, 200));
    };
    await reload({ upstream: { timeoutMs: 40 } });
    const silent = await ask();
    expect([silent.status, errorOf(silent).message]).toEqual([504, expect.stringContaining('`upstream.timeoutMs`')]);
    expect(await ask(undefined, { stream: true })).toMatchObject({ status: 200, broken: true });
  });

  it('that need a restart stay as they were', async () => {
    const { gateway, reload, ask } = await standing();
    const budget = await metricOf(gateway, 'warmpath_memory_budget_bytes');
    const { changed, needRestart } = await reload({
      server: { port: 1, bodyLimitBytes: 10 },
      limits: { memoryBytes: 16_777_216 },
      arrange: { template: 'plain' },
      session: { maxAgeMs: 1_000 },
    });
    expect(changed).toEqual([]);
    expect(needRestart).toEqual([
      'server.port',
      'server.bodyLimitBytes',
      'arrange.template',
      'session.maxAgeMs',
      'limits.memoryBytes',
    ]);
    expect((await ask()).status).toBe(200);
    expect(await metricOf(gateway, 'warmpath_memory_budget_bytes')).toBe(budget);
  });
});

it('100 changes while requests are under way cost none of them', async () => {
  const operatorKey = { key: OPERATOR_KEY };
  const limited = (requestsPerMinute: number) => ({ ...alice(OLD_KEY, { requestsPerMinute }), operatorKey });
  const { engine, gateway, reload } = await standing({ server: limited(1_000_000) });
  let answered = 0;
  let isOver = false;
  const client = async () => {
    while (!isOver) {
      const reply = await send(gateway.url + PATH, chat(), { headers: bearer(OLD_KEY) });
      expect(reply.status, reply.text).toBe(200);
      answered++;
    }
  };
  const clients = Array.from({ length: 8 }, client);
  for (let change = 0; change < 100; change++) {
    await reload({
      server: limited(1_000_000 + change),
      upstream: { apiKey: `key-${change % 3}`, timeoutMs: 100_000 + change },
      queue: { capacity: 100 + change },
      explain: { prompts: change % 2 === 0 ? 'all' : 'off' },
    });
    while (answered <= change) await once(engine.events, 'request');
  }
  isOver = true;
  await Promise.all(clients);
  expect(answered).toBeGreaterThanOrEqual(100);
  expect(engine.aborted).toBe(0);
  expect(await metricOf(gateway, 'warmpath_requests_in_flight')).toBe(1);
  // Those whose key was replaced are gone.
  expect(await metricOf(gateway, 'warmpath_engine_up')).toBe(1);
});
