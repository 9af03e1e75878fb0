import fc from 'fast-check';
import { expect, it } from 'vitest';
import { BREAK_CAUSES } from '../../core/src/internal.js';
import { RequestLog, type RequestRecord } from '../src/observe/request-log.js';
import { answerAsAsked } from './fake-engine.js';
import { chat, DOCUMENTS, errorOf, type Stand, type StandConfig, send, stand } from './harness.js';

interface Told {
  readonly id: string;
  readonly status: number;
  readonly cachedTokens: number | null;
  readonly blocks: readonly { format: string; order: number[]; decided: string }[];
  readonly prefix: {
    comparedWith: string | null;
    break: { cause: string; piece: string; remedy: string } | null;
  } | null;
}

const COMPARED: StandConfig = { explain: { prompts: 'all' } };
const SYSTEM = 'You are the keeper of the archive of Velmora. Answer in one sentence. ';
const plain = (system: string, ...texts: string[]) => ({
  model: 'm',
  messages: [
    { role: 'system', content: SYSTEM + system },
    ...texts.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content })),
  ],
});

async function ask({ gateway }: Stand, id: string, body: object, headers: object = {}): Promise<void> {
  await send(`${gateway.url}/v1/chat/completions`, body, { headers: { 'x-request-id': id, ...headers } });
}

async function recordOf({ gateway }: Stand, id: string, headers = {}): Promise<Told> {
  const { status, text } = await send(`${gateway.url}/v1/requests/${id}`, undefined, { headers });
  expect(status).toBe(200);
  return JSON.parse(text) as Told;
}

it('tells counts and orders of a request just served, and no text', async () => {
  const gateway = await stand(answerAsAsked);
  await ask(gateway, 'one', chat([DOCUMENTS[0], DOCUMENTS[1]]));
  await ask(gateway, 'two', chat([DOCUMENTS[2], DOCUMENTS[1], DOCUMENTS[0]]));
  const record = await recordOf(gateway, 'two');
  expect(record).toMatchObject({
    object: 'request',
    id: 'two',
    route: '/v1/chat/completions',
    status: 200,
    promptTokens: 120,
    cachedTokens: 96,
    blocks: [{ format: 'documents', decided: 'arranged', order: [2, 1, 0] }],
    prefix: null,
  });
  expect(JSON.stringify(record)).not.toMatch(/Velka|Orsin|weight/);
});

it('is the same tenant alone that may read it', async () => {
  const gateway = await stand(answerAsAsked);
  const mine = { authorization: 'Bearer mine' };
  await ask(gateway, 'secret', plain('', 'Why?'), mine);
  expect((await recordOf(gateway, 'secret', mine)).id).toBe('secret');
  const others: Readonly<Record<string, string>>[] = [{}, { authorization: 'Bearer theirs' }];
  for (const headers of others) {
    const reply = await send(`${gateway.gateway.url}/v1/requests/secret`, undefined, { headers });
    expect(reply.status).toBe(404);
    expect(errorOf(reply).code).toBe('WARMPATH_NOT_FOUND');
  }
});

it('names why a prefix broke, against the earlier prompt that shares most', async () => {
  const gateway = await stand(answerAsAsked, COMPARED);
  await ask(gateway, 'a', plain('It is 2026-11-21T08:31:07Z.', 'Why?'));
  await ask(gateway, 'other', { model: 'm', messages: [{ role: 'user', content: 'Something else.' }] });
  await ask(gateway, 'b', plain('It is 2026-11-21T08:34:55Z.', 'Why?'));
  expect((await recordOf(gateway, 'a')).prefix).toEqual({ comparedWith: null, break: null });
  expect((await recordOf(gateway, 'b')).prefix).toMatchObject({
    comparedWith: 'a',
    break: { cause: 'timestamp', piece: 'messages[0].content', exact: false, remedy: BREAK_CAUSES.timestamp },
  });
  await ask(gateway, 'c', plain('It is 2026-11-21T08:34:55Z.', 'Why?', 'So.', 'And?'));
  expect((await recordOf(gateway, 'c')).prefix).toEqual({ comparedWith: 'b', break: null });
  await ask(gateway, 'd', { ...plain('It is 2026-11-21T08:34:55Z.', 'How?') });
  expect((await recordOf(gateway, 'd')).prefix!.break!.cause).toBe('question');
  const text = (await send(`${gateway.gateway.url}/v1/requests/b`)).text;
  expect(text).not.toMatch(/keeper|Velmora|2026-11/);
});

it('does not compare tenants or models with each other', async () => {
  const gateway = await stand(answerAsAsked, COMPARED);
  await ask(gateway, 'a', plain('', 'Why?'), { authorization: 'Bearer one' });
  await ask(gateway, 'b', plain('', 'Why?'), { authorization: 'Bearer two' });
  expect((await recordOf(gateway, 'b', { authorization: 'Bearer two' })).prefix!.comparedWith).toBeNull();
  await ask(gateway, 'c', { ...plain('', 'Why?'), model: 'n' }, { authorization: 'Bearer two' });
  expect((await recordOf(gateway, 'c', { authorization: 'Bearer two' })).prefix!.comparedWith).toBeNull();
});

it('remembers so many, and none where told so', async () => {
  const log = new RequestLog(30_000);
  const record = { blocks: [], failedOpen: [] } as unknown as RequestRecord;
  for (let i = 0; i < 40; i++) log.add(i < 3 ? 'quiet' : 'loud', { ...record, id: `${i}` }, i);
  expect(log.find('loud', '3')).toBeUndefined();
  expect(log.find('loud', '39')?.id).toBe('39');
  for (const id of ['0', '1', '2']) expect(log.find('quiet', id)?.id).toBe(id);
  expect(log.bytes).toBeLessThan(40_000);
});

it('the latest requests are those that fit, whatever they hold', () => {
  const order = fc.array(fc.nat(), { maxLength: 60, size: 'max' });
  const blocks = fc.array(fc.record({ order, references: order, shortened: order }), { maxLength: 3 });
  const asked = fc.record({ blocks, back: fc.nat(60), limit: fc.nat(60) });
  const bytesOf = (held: readonly { order: unknown[]; references: unknown[]; shortened: unknown[] }[]) =>
    512 + held.reduce((sum, each) => sum + 256 + 8 * Object.values(each).flat().length, 0);
  fc.assert(
    fc.property(fc.array(asked, { maxLength: 60, size: 'max' }), (rounds) => {
      const log = new RequestLog(30_000);
      const kept: { id: string; bytes: number; sequence: number }[] = [];
      for (const [i, { blocks, back, limit }] of rounds.entries()) {
        const after = Math.max(0, i - back);
        log.add('mine', { id: `${i}`, blocks, failedOpen: [] } as unknown as RequestRecord, i);
        const bytes = bytesOf(blocks);
        while (kept.length > 0 && kept.reduce((sum, each) => sum + each.bytes, bytes) > 10_000) kept.shift();
        kept.push({ id: `${i}`, bytes, sequence: i + 1 });
        const expected = kept.filter(({ sequence }) => sequence > after).slice(limit === 0 ? kept.length : -limit);
        const told = log.latest(after, limit).map(({ id, sequence, arrivedAt }) => [id, sequence, arrivedAt]);
        expect(told).toEqual(expected.map(({ id, sequence }) => [id, sequence, Number(id)]));
        expect(log.bytes).toBeLessThan(40_000);
      }
    }),
  );
});

it('a prompt that cannot be read is served all the same', async () => {
  const gateway = await stand(answerAsAsked, COMPARED);
  await ask(gateway, 'a', '{"messages":[,]}' as unknown as object);
  expect(gateway.engine.last.body).toBe('{"messages":[,]}');
  expect((await recordOf(gateway, 'a')).prefix).toBeNull();
});
