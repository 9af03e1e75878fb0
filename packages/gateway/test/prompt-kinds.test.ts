import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { GatewayParts } from '../src/assemble-gateway.js';
import { OPERATIONS } from '../src/routes/openapi.js';
import { closing, errorOf, OPERATOR_KEY, type Reply, type StandConfig, send, stand } from './harness.js';
import { learnedKinds, numbered, passagesOf, questionFirst, questionLast } from './learned-kinds.js';
import { RedisServer } from './redis-server.js';

interface Kind {
  readonly id: string;
  readonly tenant: string;
  readonly parts: readonly { readonly kind: string; readonly text?: string }[];
  readonly notices: readonly { readonly name: string; readonly preventsGain: boolean }[];
  readonly state: string;
  readonly labels: string;
}

interface List {
  readonly data: readonly Kind[];
  readonly mayChange: boolean;
  readonly survivesRestart: boolean;
}

const operator = { authorization: `Bearer ${OPERATOR_KEY}` };
const keyOf = (tenant: string) => ({ authorization: `Bearer the-key-of-tenant-${tenant}` });
/** Keys for two tenants and for the operator. */
const KEYS = {
  server: {
    keys: ['acme', 'other'].map((name) => ({ name, key: `the-key-of-tenant-${name}` })),
    operatorKey: { key: OPERATOR_KEY },
  },
};

async function gatewayWith(config: StandConfig = {}, parts: GatewayParts = {}): Promise<string> {
  const { gateway } = await stand(undefined, config, parts);
  return gateway.url.replace('0.0.0.0', '127.0.0.1');
}

async function list(url: string, headers: Record<string, string> = {}, query = ''): Promise<List> {
  const reply = await send(`${url}/v1/prompts${query}`, undefined, { headers });
  expect(reply.status, reply.text).toBe(200);
  return OPERATIONS['/v1/prompts']!['get']!.answers[200]!.parse(JSON.parse(reply.text)) as List;
}

const decide = (url: string, id: string, body: string | object, headers: Record<string, string> = {}): Promise<Reply> =>
  send(`${url}/v1/prompts/${id}`, body, { headers });

describe('the list of prompt kinds', () => {
  it('shows the text of programs with the places of the documents, and nothing else of a prompt', async () => {
    const url = await gatewayWith({}, { promptKinds: learnedKinds(['anonymous', questionLast]) });
    const { data, mayChange, survivesRestart } = await list(url);
    expect([mayChange, survivesRestart]).toEqual([true, false]);
    expect(data).toEqual([
      {
        object: 'prompt_kind',
        id: expect.stringMatching(/^[0-9a-f]{16}$/),
        tenant: 'anonymous',
        role: 'user',
        parts: [
          { kind: 'text', text: 'Use the following context.\nBe brief.' },
          { kind: 'documents' },
          { kind: 'text', text: 'Question:' },
          { kind: 'changing' },
          { kind: 'text', text: 'Helpful Answer:' },
        ],
        prompts: expect.any(Number),
        withDocuments: expect.any(Number),
        notices: [],
        state: 'asking',
        labels: 'kept',
        gain: null,
        gainIfMapped: null,
      },
    ]);
    for (const passage of passagesOf(1)) expect(JSON.stringify(data)).not.toContain(passage);
  });

  it('says why a kind gains nothing', async () => {
    const url = await gatewayWith(
      {},
      { promptKinds: learnedKinds(['anonymous', numbered], ['anonymous', questionFirst]) },
    );
    const reasons = (await list(url)).data.flatMap((kind) => kind.notices.filter(({ preventsGain }) => preventsGain));
    expect(reasons.map(({ name }) => name).toSorted()).toEqual(['changing-text-first', 'labels-by-position']);
    const { id } = (await list(url)).data.find(({ notices }) => notices[0]!.name === 'labels-by-position')!;
    const mapped = JSON.parse((await decide(url, id, { state: 'allowed' })).text) as Kind;
    expect(mapped.labels).toBe('mapped');
    expect(mapped.notices.map(({ name }) => name)).toEqual(['program-text']);
  });
});

describe('a choice', () => {
  it('counts at once, and can be changed and taken back', async () => {
    const url = await gatewayWith({}, { promptKinds: learnedKinds(['anonymous', questionLast]) });
    const { id } = (await list(url)).data[0]!;
    for (const [body, state, labels] of [
      [{ state: 'allowed' }, 'allowed', 'kept'],
      [{ state: 'allowed', labels: 'mapped' }, 'allowed', 'mapped'],
      [{ state: 'refused' }, 'refused', 'kept'],
      [{ state: 'asking' }, 'asking', 'kept'],
      [{ state: 'asking' }, 'asking', 'kept'],
    ] as const) {
      const reply = await decide(url, id, body);
      expect([reply.status, JSON.parse(reply.text)]).toMatchObject([200, { id, state, labels }]);
      OPERATIONS['/v1/prompts/{id}']!['post']!.answers[200]!.parse(JSON.parse(reply.text));
      expect((await list(url)).data).toMatchObject([{ id, state, labels }]);
    }
  });

  it.each([
    [{}, 'state'],
    [{ state: 'automatic' }, 'state'],
    [{ state: true }, 'state'],
    [{ state: 'allowed', labels: 'other' }, 'labels'],
    [{ state: 'allowed', tenant: 'acme' }, 'tenant'],
    [{ state: ['allowed'] }, 'state'],
    [{ state: 'ALLOWED' }, 'state'],
    [{ state: 'allowed', labels: null }, 'labels'],
    [{ __proto__: null, state: null }, 'state'],
  ])('that is not one is refused: %j', async (body, path) => {
    const url = await gatewayWith({}, { promptKinds: learnedKinds(['anonymous', questionLast]) });
    const { id } = (await list(url)).data[0]!;
    const reply = await decide(url, id, body);
    expect([reply.status, errorOf(reply).code, errorOf(reply).param]).toEqual([400, 'WARMPATH_INVALID_REQUEST', path]);
  });

  it.each(['', 'null', '[]', '"allowed"', '{"state":"allowed"', '{"state":"allowed"}{}'])(
    'that is no JSON object is refused: %s',
    async (body) => {
      const url = await gatewayWith({}, { promptKinds: learnedKinds(['anonymous', questionLast]) });
      const { id } = (await list(url)).data[0]!;
      const reply = await decide(url, id, body);
      expect([reply.status, errorOf(reply).type]).toEqual([400, 'invalid_request_error']);
      expect((await list(url)).data[0]!.state).toBe('asking');
    },
  );

  it.each(['unknown', '__proto__', '..%2f..%2fv1', 'x'.repeat(150), '%00', '%F0%9F%98%80'])(
    'about the kind %s, which there is not, is refused',
    async (id) => {
      const url = await gatewayWith({}, { promptKinds: learnedKinds(['anonymous', questionLast]) });
      const reply = await decide(url, id, { state: 'allowed' });
      expect([reply.status, errorOf(reply).code, errorOf(reply).param]).toEqual([404, 'WARMPATH_NOT_FOUND', 'id']);
    },
  );

  it('survives a restart, before a prompt of the kind has come again', async () => {
    const stateFolder = await mkdtemp(join(tmpdir(), 'warmpath-kinds-'));
    onTestFinished(() => rm(stateFolder, { recursive: true }));
    const first = await gatewayWith({}, { stateFolder, promptKinds: learnedKinds(['anonymous', questionLast]) });
    const { id } = (await list(first)).data[0]!;
    await decide(first, id, { state: 'allowed', labels: 'mapped' });
    const second = await gatewayWith({}, { stateFolder });
    const { data, survivesRestart } = await list(second);
    expect(survivesRestart).toBe(true);
    expect(data).toMatchObject([{ id, state: 'allowed', labels: 'mapped', prompts: 0 }]);
    await decide(first, id, { state: 'asking' });
    await expect.poll(async () => (await list(second)).data[0]?.state ?? 'asking').toBe('asking');
  });
});

describe('gateways that share a server', () => {
  it('follow a choice that one of them was told', async () => {
    const server = closing(await RedisServer.start());
    const config = { session: { store: { url: server.url } } };
    const sharedStore = { prefix: 'kinds:', timeoutMs: 20_000 };
    const learned = () => learnedKinds(['anonymous', questionLast]);
    const here = await gatewayWith(config, { sharedStore, promptKinds: learned() });
    const there = await gatewayWith(config, { sharedStore });
    const { id } = (await list(here)).data[0]!;
    expect((await list(there)).data).toEqual([]);
    await decide(here, id, { state: 'allowed', labels: 'mapped' });
    const choices = async () => (await list(there)).data.map(({ state, labels }) => [state, labels]);
    await expect.poll(choices).toEqual([['allowed', 'mapped']]);
    await decide(there, id, { state: 'refused' });
    await expect.poll(async () => (await list(here)).data[0]!.state).toBe('refused');
  });
});

describe('with keys', () => {
  const kinds = () => learnedKinds(['acme', questionLast], ['other', numbered], ['other', questionLast]);

  it('a tenant sees its own kinds only, and changes none', async () => {
    const url = await gatewayWith(KEYS, { promptKinds: kinds() });
    const { data, mayChange } = await list(url, keyOf('acme'));
    expect([data.map(({ tenant }) => tenant), mayChange]).toEqual([['acme'], false]);
    expect((await list(url, keyOf('acme'), '?tenant=acme')).data).toEqual(data);
    const foreign = await send(`${url}/v1/prompts?tenant=other`, undefined, { headers: keyOf('acme') });
    expect([foreign.status, errorOf(foreign).code]).toEqual([403, 'WARMPATH_FORBIDDEN']);
    const others = await list(url, keyOf('other'));
    for (const { id } of [...data, ...others.data]) {
      const reply = await decide(url, id, { state: 'allowed' }, keyOf('acme'));
      expect([reply.status, errorOf(reply).code]).toEqual([403, 'WARMPATH_FORBIDDEN']);
    }
    expect((await list(url, operator)).data.every(({ state }) => state === 'asking')).toBe(true);
  });

  it('the operator sees all tenants, and names one where several have the kind', async () => {
    const url = await gatewayWith(KEYS, { promptKinds: kinds() });
    const { data, mayChange } = await list(url, operator);
    expect([data.map(({ tenant }) => tenant).toSorted(), mayChange]).toEqual([['acme', 'other', 'other'], true]);
    const { id } = (await list(url, operator, '?tenant=acme')).data[0]!;
    const unclear = await decide(url, id, { state: 'allowed' }, operator);
    expect([unclear.status, errorOf(unclear).param]).toEqual([400, 'tenant']);
    expect((await decide(url, `${id}?tenant=acme`, { state: 'allowed' }, operator)).status).toBe(200);
    const states = (await list(url, operator)).data.map(({ tenant, state }) => `${tenant} ${state}`);
    expect(states.toSorted()).toEqual(['acme allowed', 'other asking', 'other asking']);
    expect((await decide(url, `${id}?tenant=nobody`, { state: 'allowed' }, operator)).status).toBe(404);
    expect((await list(url, operator, '?tenant=nobody')).data).toEqual([]);
    const twice = await send(`${url}/v1/prompts?tenant=acme&tenant=other`, undefined, { headers: operator });
    expect([twice.status, errorOf(twice).param]).toEqual([400, 'tenant']);
  });

  it('nobody sees or changes anything without a key, or changes it where there is no operator', async () => {
    const url = await gatewayWith(KEYS, { promptKinds: kinds() });
    expect((await send(`${url}/v1/prompts`)).status).toBe(401);
    const { id } = (await list(url, keyOf('acme'))).data[0]!;
    expect((await decide(url, id, { state: 'allowed' })).status).toBe(401);
    const without = await gatewayWith({ server: { keys: KEYS.server.keys } }, { promptKinds: kinds() });
    const refused = await decide(without, id, { state: 'allowed' }, keyOf('acme'));
    expect([refused.status, errorOf(refused).message]).toEqual([403, expect.stringContaining('server.operatorKey')]);
  });
});

describe('without keys', () => {
  const tenant = learnedKinds(['anonymous', questionLast]);

  it('where other machines can ask, strangers see nothing and change nothing', async () => {
    const url = await gatewayWith({ server: { host: '0.0.0.0', open: true } }, { promptKinds: tenant });
    expect((await send(`${url}/v1/prompts`)).status).toBe(403);
    expect((await list(url, { authorization: 'Bearer made-up' })).data).toEqual([]);
    const { id } = tenant.list('anonymous')[0]!;
    expect((await decide(url, id, { state: 'allowed' })).status).toBe(403);
  });

  it('an operator’s key is needed for a change where one is configured', async () => {
    const config = { server: { operatorKey: { key: OPERATOR_KEY } } };
    const url = await gatewayWith(config, { promptKinds: learnedKinds(['anonymous', questionLast]) });
    const { data, mayChange } = await list(url);
    expect([data.length, mayChange]).toEqual([1, false]);
    expect((await decide(url, data[0]!.id, { state: 'allowed' })).status).toBe(403);
    expect((await decide(url, data[0]!.id, { state: 'allowed' }, operator)).status).toBe(200);
  });

  it('web pages of other origins see nothing and change nothing, whatever `server.cors` allows', async () => {
    for (const server of [{}, { cors: ['*'] }, { cors: ['https://app.example'] }]) {
      const url = await gatewayWith({ server }, { promptKinds: learnedKinds(['anonymous', questionLast]) });
      const { id } = (await list(url)).data[0]!;
      const origin = { origin: 'https://app.example' };
      const read = await send(`${url}/v1/prompts`, undefined, { headers: origin });
      expect([read.status, read.headers['access-control-allow-origin']]).toEqual([403, undefined]);
      expect((await decide(url, id, { state: 'allowed' }, origin)).status).toBe(403);
      const form = await decide(url, id, '{"state":"allowed"}', { 'content-type': 'text/plain' });
      expect(form.status).toBe(415);
      const rebound = await decide(url, id, { state: 'allowed' }, { host: 'rebound.example' });
      expect(rebound.status).toBe(403);
      expect((await list(url)).data[0]!.state).toBe('asking');
      expect((await decide(url, id, { state: 'allowed' }, { origin: url })).status).toBe(200);
    }
  });
});
