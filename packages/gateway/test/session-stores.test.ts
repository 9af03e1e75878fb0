import { createClient } from '@redis/client';
import { MAX_ANSWERS, MAX_RENDERINGS } from '@warmpath/core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkConfig, resolveConfig } from '../src/config/load.js';
import { MemorySessionStore } from '../src/conversation/session-store.js';
import { probeSessionStore } from '../src/conversation/shared/open-sessions.js';
import { RedisSessionStore } from '../src/conversation/shared/redis-session-store.js';
import { StoreKeys } from '../src/conversation/shared/store-keys.js';
import { closing } from './harness.js';
import { RedisServer } from './redis-server.js';
import { LIMITS, SILENT, sessionStoreConformance, turnAt, turnsOf } from './session-store-conformance.js';

const NAME = { tenant: 'a', session: 's' };
/** A store whose requests wait as long as a loaded machine may need. */
const PATIENT = { timeoutMs: 20_000, memory: LIMITS };

let server: RedisServer;
let stores = 0;

beforeAll(async () => {
  server = await RedisServer.start();
});

afterAll(() => server.close());

async function openAt(prefix: string, options: object = {}): Promise<RedisSessionStore> {
  const store = closing(new RedisSessionStore({ url: server.url, prefix, ...PATIENT, ...options }));
  await store.open(SILENT);
  return store;
}

const freshPrefix = () => `test${++stores}:`;

async function ask(...command: string[]): Promise<unknown> {
  const client = createClient({ url: server.url, RESP: 2 });
  await client.connect();
  const reply: unknown = await client.sendCommand(command);
  await client.close();
  return reply;
}

sessionStoreConformance("a process's memory", async () => {
  const store = new MemorySessionStore(LIMITS);
  return { writer: store, reader: store };
});

sessionStoreConformance('a server', async () => {
  const store = await openAt(freshPrefix());
  return { writer: store, reader: store };
});

sessionStoreConformance('a server, seen by another gateway', async () => {
  const prefix = freshPrefix();
  return { writer: await openAt(prefix), reader: await openAt(prefix) };
});

describe('a server of sessions', { timeout: 180_000 }, () => {
  it('loses no rendering and no answer of gateways that write at the same time', async () => {
    const prefix = freshPrefix();
    const writers = await Promise.all([1, 2, 3, 4].map(() => openAt(prefix)));
    const shared = turnAt('1', 'shared');
    for (const [i, writer] of writers.entries()) {
      writer.sent(NAME, turnAt('1', `own${i}`), 0);
      writer.sent(NAME, shared, 0);
      writer.answered(NAME, shared, `a${i}`, 0);
    }
    for (const writer of writers) await writer.find(NAME, [], 0);
    const reader = await openAt(prefix);
    const turns = (await reader.find(NAME, ['1'], 0))('1');
    expect(turns.map(({ id }) => id).toSorted()).toEqual(['own0', 'own1', 'own2', 'own3', 'shared']);
    expect(turns.at(-1)!.answers.toSorted()).toEqual(['a0', 'a1', 'a2', 'a3']);
  });

  it('holds a few renderings of one request and a few answers of each', async () => {
    const prefix = freshPrefix();
    const store = await openAt(prefix);
    const ids = Array.from({ length: MAX_RENDERINGS + 8 }, (_, i) => `${i}`);
    const answers = Array.from({ length: MAX_ANSWERS + 8 }, (_, i) => `${i}`);
    for (const id of ids) {
      const turn = turnAt('1', id);
      store.sent(NAME, turn, 0);
      for (const answer of answers) store.answered(NAME, turn, answer, 0);
    }
    await store.find(NAME, [], 0);
    const key = `${new StoreKeys(prefix).startOf(NAME)}1`;
    // The renderings, the answers of each, and their order.
    expect(await ask('HLEN', key)).toBe(2 * MAX_RENDERINGS + 1);
    expect(await ask('HGET', key, 'order')).toBe(ids.slice(-MAX_RENDERINGS).join(' '));
    expect(await ask('HGET', key, `answers:${ids.at(-1)}`)).toBe(answers.slice(-MAX_ANSWERS).join(' '));
  });

  it('forgets what is not used, and keeps what a used turn stands on', async () => {
    const prefix = freshPrefix();
    const store = await openAt(prefix);
    const [first, second] = [turnAt('1'), turnAt('2', 'x', turnAt('1'))];
    const key = (link: string) => `${new StoreKeys(prefix).startOf(NAME)}${link}`;
    const left = async (link: string) => Number(await ask('PTTL', key(link)));
    store.sent(NAME, first, 0);
    await store.find(NAME, [], 0);
    expect(await left('1')).toBeLessThanOrEqual(LIMITS.maxAgeMs);
    await ask('PEXPIRE', key('1'), '30000');
    store.sent(NAME, second, 0);
    await store.find(NAME, [], 0);
    expect(await left('1')).toBeGreaterThan(30_000);
    for (const link of ['1', '2']) await ask('PEXPIRE', key(link), '30000');
    store.answered(NAME, second, 'a', 0);
    await store.find(NAME, [], 0);
    for (const link of ['1', '2']) expect(await left(link)).toBeGreaterThan(30_000);
  });

  it('is told again what it lost, answers included, with the next turn that stands on it', async () => {
    const prefix = freshPrefix();
    const writer = await openAt(prefix);
    const [first, second] = [turnAt('1'), turnAt('2', 'x', turnAt('1'))];
    writer.sent(NAME, first, 0);
    writer.answered(NAME, first, 'a', 0);
    await writer.find(NAME, [], 0);
    await ask('FLUSHALL');
    writer.sent(NAME, second, 0);
    // The first round brings what is missing to light, the second comes behind the repair.
    for (let round = 0; round < 2; round++) await writer.find(NAME, [], 0);
    const reader = await openAt(prefix);
    expect(await turnsOf({ writer, reader }, NAME, '1')).toEqual([{ ...first, answers: ['a'] }]);
    expect(await turnsOf({ writer, reader }, NAME, '2')).toEqual([second]);
  });

  it('holds nothing of names in its keys, and gives no one a foreign, broken or newer record', async () => {
    const prefix = freshPrefix();
    const writer = await openAt(prefix);
    const name = { tenant: 'tenant-in-the-clear', user: 'private user', session: 'private name' };
    writer.sent(name, turnAt('1'), 0);
    await writer.find(name, [], 0);
    const keys = (await ask('KEYS', `${prefix}*`)) as string[];
    expect(keys).toEqual([`${new StoreKeys(prefix).startOf(name)}1`]);
    expect(keys[0]).not.toMatch(/clear|private/);
    const record = String(await ask('HGET', keys[0]!, 'turn:id-1'));
    for (const bad of [
      '',
      '{',
      'null',
      '[]',
      record.replace('"version":2', '"version":3'),
      record.replace('"1"', '"2"'),
    ]) {
      await ask('HSET', keys[0]!, 'turn:id-1', bad);
      const reader = await openAt(prefix);
      expect((await reader.find(name, ['1'], 0))('1'), bad).toEqual([]);
    }
    await ask('HSET', keys[0]!, 'turn:id-1', record);
    expect((await (await openAt(prefix)).find(name, ['1'], 0))('1')).toHaveLength(1);
    // What one conversation sent is none of another's, even where somebody moved the record there.
    const other = { ...name, user: 'other' };
    await ask('RENAME', keys[0]!, `${new StoreKeys(prefix).startOf(other)}1`);
    expect((await (await openAt(prefix)).find(other, ['1'], 0))('1')).toEqual([]);
    await ask('SET', keys[0]!, 'a text');
    expect((await (await openAt(prefix)).find(name, ['1'], 0))('1')).toEqual([]);
  });

  it('sends only what the gateway does not hold, and no turn larger than 4 MiB', async () => {
    const prefix = freshPrefix();
    const writer = await openAt(prefix);
    const failures: string[] = [];
    const reader = closing(new RedisSessionStore({ url: server.url, prefix, ...PATIENT }));
    await reader.open({ ...SILENT, failed: (operation, reason) => failures.push(`${operation} ${reason}`) });
    const text = 'x'.repeat(1_000_000);
    writer.sent(NAME, { ...turnAt('1'), edits: [{ at: 0, add: 'text-before', text }] }, 0);
    const sentBytes = async () => Number(/total_net_output_bytes:(\d+)/.exec(String(await ask('INFO', 'stats')))![1]);
    expect(await turnsOf({ writer, reader }, NAME, '1')).toHaveLength(1);
    const before = await sentBytes();
    expect(await turnsOf({ writer, reader }, NAME, '1')).toHaveLength(1);
    expect((await sentBytes()) - before).toBeLessThan(100_000);
    reader.sent(NAME, { ...turnAt('2'), edits: [{ at: 0, add: 'text-before', text: text.repeat(5) }] }, 0);
    expect(failures).toEqual(['keep too-large']);
    expect(await turnsOf({ writer: reader, reader: writer }, NAME, '2')).toEqual([]);
  });

  it('says how it stands, without a secret', async () => {
    const at = (url: string) => {
      const session = { store: { kind: 'redis' as const, url } };
      return probeSessionStore(resolveConfig({ upstream: { url: 'http://127.0.0.1:1' }, session }));
    };
    expect(await at(server.url)).toEqual({ kind: 'redis', isUp: true, reason: 'connected' });
    const secured = closing(await RedisServer.start('--requirepass', 'right'));
    expect(await at(secured.url)).toEqual({ kind: 'redis', isUp: false, reason: 'NOAUTH' });
    const wrong = secured.url.replace('//', '//:secret@');
    expect(await at(wrong)).toEqual({ kind: 'redis', isUp: false, reason: 'WRONGPASS' });
    await secured.close();
    expect(await at(wrong)).toEqual({ kind: 'redis', isUp: false, reason: 'ECONNREFUSED' });
  });

  it('needs a URL, of a kind that it knows', () => {
    const problems = (store: string) =>
      checkConfig(`upstream: { url: 'http://h' }\nsession: { store: ${store} }`, {}).problems;
    expect(problems('{ kind: redis }')).toMatchObject([
      { path: 'session.store.url', message: 'is required where `kind` is `redis`' },
    ]);
    expect(problems("{ kind: redis, url: 'http://user:secret@h' }")).toMatchObject([
      { path: 'session.store.url', message: 'must be a redis://, rediss:// or unix:// URL' },
    ]);
    expect(problems('{ kind: redis, urll: x }')[0]!.message).toContain('did you mean session.store.url?');
    for (const url of ['rediss://user@h:6380/1', 'unix:///run/redis.sock?db=1']) {
      expect(problems(`{ kind: redis, url: '${url}' }`)).toEqual([]);
    }
  });
});
