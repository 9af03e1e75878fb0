import { hash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningGateway, startGateway } from '../src/start-gateway.js';
import { answerJson, FakeEngine } from './fake-engine.js';
import { chat, closing, DOCUMENTS, errorOf, gatewayAt, type Reply, type StandConfig, send } from './harness.js';
import { RedisServer } from './redis-server.js';

const CHAT = '/v1/chat/completions';
const [VELKA] = DOCUMENTS;
const ALICE = { authorization: 'Bearer alice' };
/** As an export names it. */
const TENANT_OF_ALICE = `anonymous:${hash('sha256', JSON.stringify([['authorization', ALICE.authorization]]))}`;
const BOB = { authorization: 'Bearer bob' };
const HEAD = '{"format":"warmpath-sessions","version":1}\n';

let folder: string;
let server: RedisServer;
let stands = 0;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-admin-'));
  server = await RedisServer.start();
});

afterAll(async () => {
  await server.close();
  await rm(folder, { recursive: true, force: true });
});

interface Stood {
  readonly engine: FakeEngine;
  readonly gateway: RunningGateway;
  readonly socket: string;
}

const freshPrefix = () => `admin${++stands}:`;

/** A gateway with a socket for its operator. */
async function standing(kind: 'memory' | 'redis', prefix = freshPrefix(), config: StandConfig = {}): Promise<Stood> {
  const engine = closing(await FakeEngine.start());
  const socket = join(folder, `${++stands}.sock`);
  const store = kind === 'memory' ? {} : { url: server.url };
  const sharedStore = { prefix, timeoutMs: 20_000 };
  const settings = { session: { store }, admin: { socket }, ...config };
  const gateway = closing(await gatewayAt(engine.url, settings, { sharedStore }));
  return { engine, gateway, socket };
}

/** Asks as the operator. */
function operate(socket: string, method: string, path: string, body = ''): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/x-ndjson' };
    const request = httpRequest({ socketPath: socket, method, path, ...(body !== '' && { headers }) }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('close', () => {
        const whole = Buffer.concat(chunks);
        const { statusCode: status = 0, headers: answered, complete } = response;
        resolve({ status, headers: answered, body: whole, text: whole.toString('utf8'), broken: !complete });
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}

const exported = async ({ socket }: Stood, query = ''): Promise<string> =>
  (await operate(socket, 'GET', `/sessions${query}`)).text;

const entriesOf = (text: string) => text.trimEnd().split('\n').slice(1, -1);

const imported = async ({ socket }: Stood, text: string): Promise<unknown> =>
  JSON.parse((await operate(socket, 'POST', '/sessions', text)).text);

const ask = ({ gateway }: Stood, fields: object, headers: Record<string, string>) =>
  send(gateway.url + CHAT, chat([VELKA], fields), { headers });

const FIRST = [{ role: 'user', content: 'Q1' }];
const SECOND = [...FIRST, { role: 'assistant', content: 'The weight is 42 kg.' }, { role: 'user', content: 'Q2' }];

/** Has the first turn of a conversation of each client, and one of an end user of the first. */
async function converse(stood: Stood): Promise<void> {
  for (const headers of [ALICE, BOB]) await ask(stood, { messages: FIRST, warmpath: { session: 's' } }, headers);
  await ask(stood, { messages: FIRST, user: 'ann', warmpath: { session: 's' } }, ALICE);
}

/** What the engine is sent for the second turn; nothing where the first is forgotten. */
async function goesOn(stood: Stood, headers: Record<string, string>, fields: object = {}): Promise<string | undefined> {
  const reply = await ask(stood, { messages: SECOND, warmpath: { session: 's' }, ...fields }, headers);
  if (reply.status !== 200) expect(errorOf(reply).code).toBe('WARMPATH_CONVERSATION_FORGOTTEN');
  return reply.status === 200 ? stood.engine.last.body : undefined;
}

const KINDS = ['memory', 'redis'] as const;
const WAYS = KINDS.flatMap((from) => KINDS.map((to) => [from, to] as const));

describe('conversations', () => {
  it.each(WAYS)('exported from %s go on in %s as if nothing had happened', async (from, to) => {
    const one = await standing(from);
    await converse(one);
    const text = await exported(one);
    expect(text.startsWith(HEAD)).toBe(true);
    expect(entriesOf(text)).toHaveLength(3);
    const two = await standing(to);
    const none = await standing(to);
    const result = { object: 'session_import', imported: 3, expired: 0, refused: [], refusedCount: 0, complete: true };
    expect(await imported(two, text)).toEqual(result);
    // Once more changes nothing.
    expect(await imported(two, text)).toEqual(result);
    expect(entriesOf(await exported(two))).toHaveLength(3);
    for (const [headers, fields] of [
      [ALICE, {}],
      [BOB, {}],
      [ALICE, { user: 'ann' }],
    ] as const) {
      const expected = await goesOn(one, headers, fields);
      expect(expected).toContain('Given earlier');
      expect(await goesOn(two, headers, fields)).toBe(expected);
      expect(await goesOn(none, headers, fields)).toBeUndefined();
    }
  });

  it.each(KINDS)('are exported and forgotten by tenant, end user and name: %s', async (kind) => {
    const stood = await standing(kind);
    await converse(stood);
    await ask(stood, { messages: FIRST, user: 'ann', warmpath: { session: 't' } }, ALICE);
    const tenant = `tenant=${TENANT_OF_ALICE}`;
    const namesIn = async (query: string) =>
      entriesOf(await exported(stood, query))
        .map((line) => {
          const { user, session } = JSON.parse(line) as { user: string | null; session: string };
          return `${user ?? ''} ${session}`;
        })
        .toSorted();
    expect(await namesIn(`?${tenant}`)).toEqual([' s', 'ann s', 'ann t']);
    expect(await namesIn(`?${tenant}&session=s`)).toEqual([' s']);
    expect(await namesIn(`?${tenant}&user=ann`)).toEqual(['ann s', 'ann t']);
    expect(await namesIn(`?${tenant}&user=ann&session=s`)).toEqual(['ann s']);
    expect(await namesIn(`?${tenant}&user=`)).toEqual([' s']);
    const forget = async (query: string) =>
      JSON.parse((await operate(stood.socket, 'DELETE', `/sessions${query}`)).text);
    expect(await forget(`?${tenant}&user=ann`)).toEqual({ object: 'sessions', forgotten: 2 });
    expect(await namesIn('')).toEqual([' s', ' s']);
    for (const query of ['', '?session=s', '?user=ann', '?all=yes', '?tenant=a&tenant=b']) {
      expect(await forget(query)).toMatchObject({ error: { code: 'WARMPATH_INVALID_REQUEST' } });
    }
    expect(await forget('?all=true')).toEqual({ object: 'sessions', forgotten: 2 });
    expect(await exported(stood)).toBe(`${HEAD}{"end":true,"entries":0}\n`);
    expect(await goesOn(stood, ALICE)).toBeUndefined();
  });

  it.each(KINDS)('are forgotten for their own client alone: %s', async (kind) => {
    const stood = await standing(kind);
    await converse(stood);
    const forget = (headers: Record<string, string>, name = 's') =>
      send(`${stood.gateway.url}/v1/sessions/${name}`, undefined, { method: 'DELETE', headers });
    expect(JSON.parse((await forget({})).text)).toEqual({ object: 'session', session: 's', forgotten: 0 });
    const reply = await forget(ALICE);
    expect([reply.status, JSON.parse(reply.text)]).toEqual([200, { object: 'session', session: 's', forgotten: 1 }]);
    expect(errorOf(await forget(ALICE, 'x'.repeat(257))).code).toBe('WARMPATH_INVALID_REQUEST');
    expect(await goesOn(stood, ALICE)).toBeUndefined();
    expect(await goesOn(stood, BOB)).toContain('Given earlier');
  });

  it('are forgotten by every gateway that holds them, and not told to the store again', async () => {
    const prefix = freshPrefix();
    const one = await standing('redis', prefix);
    const two = await standing('redis', prefix);
    await converse(one);
    expect(await goesOn(two, ALICE)).toContain('Given earlier');
    await send(`${one.gateway.url}/v1/sessions/s`, undefined, { method: 'DELETE', headers: ALICE });
    const held = async () => /^warmpath_session_turns (\d+)/m.exec((await send(`${two.gateway.url}/metrics`)).text)![1];
    // It asks once a second what others have forgotten.
    while ((await held()) !== '0');
    expect(await goesOn(two, ALICE)).toBeUndefined();
    expect(entriesOf(await exported(one, `?tenant=${TENANT_OF_ALICE}&session=s`))).toEqual([]);
  });
});

describe('conversations of end users that a trusted proxy names', () => {
  it('are forgotten for their own alone', async () => {
    const trustedHeaders = { tenant: 'x-tenant', endUser: 'x-user' };
    const stood = await standing('memory', '', { server: { trustedHeaders } });
    const as = (user: string) => ({ 'x-tenant': 't', 'x-user': user });
    for (const user of ['ann', 'bob']) {
      await ask(stood, { messages: FIRST, warmpath: { session: 's' } }, as(user));
    }
    const reply = await send(`${stood.gateway.url}/v1/sessions/s`, undefined, { method: 'DELETE', headers: as('ann') });
    expect(JSON.parse(reply.text)).toEqual({ object: 'session', session: 's', forgotten: 1 });
    expect(await goesOn(stood, as('ann'))).toBeUndefined();
    expect(await goesOn(stood, as('bob'))).toContain('Given earlier');
  });
});

describe('an import', () => {
  it.each(KINDS)('refuses what no export wrote, by line and path, and loses nothing else: %s', async (kind) => {
    const stood = await standing(kind);
    await converse(stood);
    const [a, b, c] = entriesOf(await exported(stood)) as [string, string, string];
    const fresh = await standing(kind);
    const bad = b.replace(/"at":\d+/, '"at":"0"');
    expect(bad).not.toBe(b);
    const old = c.replace(/"idleMs":[\d.e+-]+/, '"idleMs":1e12');
    const lines = [a, bad, '{"torn', 'null', old, b, ''].join('\n');
    const no = 'This is no exported session entry.';
    expect(await imported(fresh, `${HEAD}${lines}{"end":true,"entries":6}\n`)).toEqual({
      object: 'session_import',
      imported: 2,
      expired: 1,
      refused: [
        { line: 3, path: 'turns[0].edits[0].at', detail: no },
        { line: 4, path: 'session', detail: no },
        { line: 5, path: 'session', detail: no },
      ],
      refusedCount: 3,
      complete: true,
    });
    expect(entriesOf(await exported(fresh))).toHaveLength(2);
  });

  it('knows a file that was cut off, and one that is none', async () => {
    const stood = await standing('memory');
    await converse(stood);
    const text = await exported(stood);
    const cut = text.slice(0, text.lastIndexOf('{"end"') - 10);
    const fresh = await standing('memory');
    expect(await imported(fresh, cut)).toMatchObject({ imported: 2, refusedCount: 1, complete: false });
    for (const foreign of ['{}\n', 'x', HEAD.replace('1', '2'), text.slice(HEAD.length)]) {
      const reply = await operate(fresh.socket, 'POST', '/sessions', foreign);
      expect([reply.status, errorOf(reply).param], foreign.slice(0, 60)).toEqual([400, 'line 1']);
    }
    expect(entriesOf(await exported(fresh))).toHaveLength(2);
  });

  it('and an export say that the store is away', async () => {
    const own = closing(await RedisServer.start());
    const engine = closing(await FakeEngine.start());
    const socket = join(folder, 'away.sock');
    const store = { url: own.url };
    const gateway = closing(await gatewayAt(engine.url, { session: { store }, admin: { socket } }));
    await own.kill();
    while (!(await send(`${gateway.url}/metrics`)).text.includes('warmpath_session_store_up 0\n'));
    const entry = { version: 3, tenant: 't', user: null, session: 's', link: 'l', idleMs: 0, turns: [] };
    const turn = {
      link: 'l',
      id: 'i',
      length: 1,
      supplied: '',
      order: [],
      edits: [],
      documents: [],
      steps: [],
      tail: 0,
    };
    const whole = JSON.stringify({ ...entry, turns: [{ ...turn, answers: [] }] });
    const reply = await operate(socket, 'POST', '/sessions', `${HEAD}${whole}\n`);
    expect([reply.status, errorOf(reply).code, errorOf(reply).param]).toEqual([
      503,
      'WARMPATH_STORE_UNAVAILABLE',
      'line 2',
    ]);
    await send(gateway.url + CHAT, chat([VELKA], { warmpath: { session: 's' } }));
    const held = async () => /^warmpath_session_turns (\d+)/m.exec((await send(`${gateway.url}/metrics`)).text)![1];
    expect(await held()).toBe('1');
    expect((await operate(socket, 'DELETE', '/sessions?all=true')).status).toBe(503);
    // What this gateway holds itself is forgotten all the same.
    expect(await held()).toBe('0');
    // The answer had begun: it breaks off, and has no end.
    const cut = await operate(socket, 'GET', '/sessions');
    expect([cut.broken, cut.text.includes('"end"')]).toEqual([true, false]);
  });
});

describe("the operator's socket", () => {
  it('is for the user of the process alone, and is gone with it', async () => {
    const { gateway, socket } = await standing('memory');
    expect((await stat(socket)).mode & 0o777).toBe(0o600);
    expect((await operate(socket, 'GET', '/metrics')).status).toBe(404);
    expect((await send(`${gateway.url}/sessions`)).status).toBe(404);
    await gateway.close();
    await expect(stat(socket)).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('is taken over from a process that crashed, and from nobody else', async () => {
    const { engine, socket } = await standing('memory');
    const at = (path: string) => gatewayAt(engine.url, { admin: { socket: path } });
    await expect(at(socket)).rejects.toMatchObject({ code: 'WARMPATH_CONFIG_INVALID', path: 'admin.socket' });
    expect((await operate(socket, 'GET', '/sessions')).status).toBe(200);
    const file = join(folder, 'a-file');
    await writeFile(file, 'text');
    await expect(at(file)).rejects.toMatchObject({ path: 'admin.socket' });
    await expect(at(join(folder, 'nowhere', 'x.sock'))).rejects.toMatchObject({ path: 'admin.socket' });
    const left = join(folder, 'left.sock');
    await leaveBehind(left);
    closing(await at(left));
    expect((await operate(left, 'GET', '/sessions')).status).toBe(200);
  });
});

/** A socket at which nobody answers any more. */
async function leaveBehind(path: string): Promise<void> {
  const { link } = await import('node:fs/promises');
  const gone = createServer();
  await new Promise<void>((resolve) => gone.listen(`${path}.draft`, resolve));
  await link(`${path}.draft`, path);
  await new Promise((resolve) => gone.close(resolve));
}

describe("the operator's way to engines", () => {
  it('takes one out of service without cutting what it answers, and back', async () => {
    const [one, other] = [closing(await FakeEngine.start()), closing(await FakeEngine.start())];
    const socket = join(folder, `${++stands}.sock`);
    const engines = [one, other].map(({ url }, i) => ({ name: `e${i}`, url }));
    const gateway = closing(
      await startGateway({ server: { port: 0 }, log: { level: 'silent' }, admin: { socket }, engines }),
    );
    const ask = async () => (await send(gateway.url + CHAT, chat())).status;
    const prompts = () => [one, other].map(({ received }) => received.filter(({ path }) => path === CHAT).length);
    const state = async (method: string, path: string) => JSON.parse((await operate(socket, method, path)).text);

    let answer = (): void => {};
    one.answer = (response, request) => {
      if (request.path !== CHAT) return answerJson(response);
      answer = () => answerJson(response);
      one.events.emit('held');
    };
    const held = once(one.events, 'held');
    const first = ask();
    await held;
    expect(await state('POST', '/engines/e0/drain')).toMatchObject({ name: 'e0', state: 'draining' });
    for (let i = 0; i < 3; i++) expect(await ask()).toBe(200);
    expect(prompts()).toEqual([1, 3]);
    answer();
    expect(await first).toBe(200);
    const { engines: listed } = await state('GET', '/engines');
    expect(listed).toMatchObject([
      { name: 'e0', state: 'draining' },
      { name: 'e1', state: 'up', queued: 0, weight: 1, models: null },
    ]);

    await state('POST', '/engines/e1/drain');
    expect(errorOf(await send(gateway.url + CHAT, chat())).code).toBe('WARMPATH_UPSTREAM_UNREACHABLE');
    one.answer = answerJson;
    expect(await state('POST', '/engines/e0/resume')).toMatchObject({ state: 'up' });
    expect(await ask()).toBe(200);
    expect(prompts()).toEqual([2, 3]);
    expect((await operate(socket, 'POST', '/engines/nobody/drain')).status).toBe(404);
  });
});
