import type { ConversationName } from '@warmpath/core/internal';
import { MAX_ANSWERS, MAX_RENDERINGS } from '@warmpath/core/internal';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  conversationStoreCases,
  LIMITS,
  SILENT,
  turnAt,
  turnsOf,
} from '../../core/test/conformance/conversation-store.cases.js';
import { RedisServer } from '../../gateway/test/redis-server.js';
import type { RedisConversationStore } from '../src/redis-conversation-store.js';
import { StoredTurns } from '../src/stored-turns.js';
import { ask as askAt, openStore } from './stores.js';

const NAME = { tenant: 'a', session: 's' };
let server: RedisServer;
let stores = 0;

beforeAll(async () => {
  server = await RedisServer.start();
});

afterAll(() => server.close());

const openAt = (prefix: string): Promise<RedisConversationStore> => openStore({ url: server.url, prefix });

const freshPrefix = () => `test${++stores}:`;

const ask = (...command: readonly string[]) => askAt(server.url, ...command);

const keyOf = (prefix: string, name: ConversationName, link: string) => new StoredTurns(prefix).keyOf(name, link);

conversationStoreCases('a server', async () => {
  const store = await openAt(freshPrefix());
  return { writer: store, reader: store };
});

conversationStoreCases('a server, seen by another gateway', async () => {
  const prefix = freshPrefix();
  return { writer: await openAt(prefix), reader: await openAt(prefix) };
});

describe('a server of conversations', () => {
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
    const key = keyOf(prefix, NAME, '1');
    // The renderings, the answers of each, and their order.
    expect(await ask('HLEN', key)).toBe(2 * MAX_RENDERINGS + 1);
    expect(await ask('HGET', key, 'order')).toBe(ids.slice(-MAX_RENDERINGS).join(' '));
    expect(await ask('HGET', key, `answers:${ids.at(-1)}`)).toBe(answers.slice(-MAX_ANSWERS).join(' '));
  });

  it('forgets what is not used, and keeps what a used turn stands on', async () => {
    const prefix = freshPrefix();
    const store = await openAt(prefix);
    const [first, second] = [turnAt('1'), turnAt('2', 'x', turnAt('1'))];
    const key = (link: string) => keyOf(prefix, NAME, link);
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
    expect(keys).toEqual([keyOf(prefix, name, '1')]);
    expect(keys[0]).not.toMatch(/clear|private/);
    const record = String(await ask('HGET', keys[0]!, 'turn:id-1'));
    for (const bad of [
      '',
      '{',
      'null',
      '[]',
      record.replace('"version":3', '"version":2'),
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
    await ask('RENAME', keys[0]!, keyOf(prefix, other, '1'));
    expect((await (await openAt(prefix)).find(other, ['1'], 0))('1')).toEqual([]);
    await ask('SET', keys[0]!, 'a text');
    expect((await (await openAt(prefix)).find(name, ['1'], 0))('1')).toEqual([]);
  });

  it('sends only what the gateway does not hold, and no turn larger than 4 MiB', async () => {
    const prefix = freshPrefix();
    const writer = await openAt(prefix);
    const failures: string[] = [];
    const failed = (operation: string, reason: string) => failures.push(`${operation} ${reason}`);
    const reader = await openStore({ url: server.url, prefix }, { ...SILENT, failed });
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

  it('tells each gateway once, in order, what the others told, and no one what it told itself', async () => {
    const prefix = freshPrefix();
    const [one, other] = [await openAt(prefix), await openAt(prefix)];
    const textsOf = async (store: RedisConversationStore, note = '') =>
      (await store.exchange(note))!.map(({ text }) => text);
    expect(await textsOf(one)).toEqual([]);
    for (const note of ['a', 'b', 'c\n"{\0🦀']) expect(await textsOf(one, note)).toEqual([]);
    expect(await textsOf(other, 'd')).toEqual(['a', 'b', 'c\n"{\0🦀']);
    expect([await textsOf(other), await textsOf(one), await textsOf(one)]).toEqual([[], ['d'], []]);
    expect(await textsOf(await openAt(freshPrefix()))).toEqual([]);
    // One that begins later hears of the last minute, and how long ago it was.
    const late = await (await openAt(prefix)).exchange('');
    expect(late!.map(({ text }) => text)).toEqual(['a', 'b', 'c\n"{\0🦀', 'd']);
    expect(new Set(late!.map(({ from }) => from)).size).toBe(2);
    for (const { ageMs } of late!) expect(ageMs).toBeGreaterThanOrEqual(0);
    const left = Number(await ask('PTTL', `${prefix}peers`));
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(60_000);
  });

  it('goes on telling after the server lost everything, and bounds what it keeps and answers', async () => {
    const prefix = freshPrefix();
    const [one, other] = [await openAt(prefix), await openAt(prefix)];
    await one.exchange('a');
    expect(await other.exchange('')).toHaveLength(1);
    await ask('FLUSHALL');
    await one.exchange('b');
    expect((await other.exchange(''))!.map(({ text }) => text)).toEqual(['b']);
    // A server whose clock is far behind that of the one before.
    await ask('DEL', `${prefix}peers`);
    await ask('XADD', `${prefix}peers`, '1-1', 'gone', 'long ago');
    await one.exchange('c');
    expect((await other.exchange(''))!.map(({ text }) => text)).toEqual(['c']);
    for (let i = 0; i < 600; i++) void one.exchange(`${i}`);
    await one.exchange('');
    let told = 0;
    for (let notes = await other.exchange(''); notes!.length > 0; notes = await other.exchange('')) {
      expect(notes!.length).toBeLessThanOrEqual(256);
      told += notes!.length;
    }
    expect(told).toBe(600);
  });

  it('says that nobody was told while the server is away', async () => {
    const store = await openStore({ url: 'redis://127.0.0.1:1' });
    expect(await store.exchange('a')).toBeUndefined();
  });
});
