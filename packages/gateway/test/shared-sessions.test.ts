import { fingerprint } from '@warmpath/core/internal';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import type { RunningGateway } from '../src/start-gateway.js';
import { type Answer, FakeEngine } from './fake-engine.js';
import { chat, closing, DOCUMENTS, errorOf, gatewayAt, labelsIn, send, stand, told } from './harness.js';
import { RedisServer } from './redis-server.js';
import { SlowProxy } from './slow-proxy.js';

const CHAT = '/v1/chat/completions';
const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
/** Requests wait as long as a loaded machine may need. */
const PATIENT = 20_000;
/** Servers and gateways are real processes, and two cores may be shared by many. */

type Message = { readonly role: string; readonly content: string };

const OPENING: readonly Message[] = [
  { role: 'system', content: 'Answer from the documents.' },
  { role: 'user', content: 'What is the weight of Velka?' },
];

/** Says something else to every other prompt. */
const telling: Answer = (response, { body }) => {
  const message = { role: 'assistant', content: `Answer ${fingerprint([body])}.` };
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ choices: [{ index: 0, message }] }));
};

let server: RedisServer;

beforeAll(async () => {
  server = await RedisServer.start();
});

afterAll(() => server.close());

let prefixes = 0;

interface Shared {
  readonly engine: FakeEngine;
  readonly gateways: readonly RunningGateway[];
}

/** Gateways in front of one engine and over one server, with a part of it of their own. */
async function sharing(
  count: number,
  { url = server.url, timeoutMs = PATIENT, policy = 'exact' as 'exact' | 'retrieval' } = {},
): Promise<Shared> {
  const engine = closing(await FakeEngine.start(telling));
  const prefix = `gateways${++prefixes}:`;
  const session = { store: { url } };
  const sharedStore = { prefix, timeoutMs };
  const gateways: RunningGateway[] = [];
  for (let i = 0; i < count; i++)
    gateways.push(closing(await gatewayAt(engine.url, { session, arrange: { policy } }, { sharedStore })));
  return { engine, gateways };
}

interface Asked {
  readonly question: string;
  readonly documents: readonly object[] | undefined;
}

const ASKED: readonly Asked[] = [
  { question: 'Q1', documents: [VELKA, ORSIN] },
  { question: 'Q2', documents: [ORSIN, TAMIR] },
  { question: 'Q3', documents: undefined },
  { question: 'Q4', documents: [TAMIR, VELKA] },
  { question: 'Q5', documents: undefined },
];

/** Has a conversation, each turn through the gateway that `choose` says; answers what the engine was sent. */
async function converse(
  { engine, gateways }: Shared,
  choose: (turn: number) => number,
  {
    fields = {},
    headers = {},
    asked = ASKED,
  }: { fields?: object; headers?: Record<string, string>; asked?: readonly Asked[] } = {},
): Promise<string[]> {
  const bodies: string[] = [];
  let messages: Message[] = [OPENING[0]!];
  for (const [turn, { question, documents }] of asked.entries()) {
    messages = [...messages, { role: 'user', content: question }];
    const reply = await send(gateways[choose(turn)]!.url + CHAT, chat(documents, { ...fields, messages }), { headers });
    expect(reply.status).toBe(200);
    bodies.push(engine.last.body);
    messages = [...messages, answerOf(reply.text)];
  }
  return bodies;
}

function answerOf(text: string): Message {
  return (JSON.parse(text) as { choices: [{ message: Message }] }).choices[0].message;
}

async function metricsOf({ url }: RunningGateway): Promise<string> {
  return (await send(`${url}/metrics`)).text;
}

function totalOf(metrics: string, name: string): number {
  return metrics
    .split('\n')
    .filter((line) => line.startsWith(name))
    .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

/** Asks until the store is there, or away. */
async function until(gateway: RunningGateway, isUp: boolean): Promise<void> {
  while (!(await metricsOf(gateway)).includes(`warmpath_session_store_up ${Number(isUp)}\n`));
}

describe('gateways that share a store', () => {
  it.each([
    ['named in the body', { warmpath: { session: 's' } }, {}],
    ['named in a header', {}, { 'x-warmpath-session': 's' }],
  ])('send a conversation, %s, as one of them alone would', async (_, fields, headers) => {
    const one = await sharing(1);
    const alone = await converse(one, () => 0, { fields, headers });
    const both = await sharing(2);
    expect(await converse(both, (turn) => turn % 2, { fields, headers })).toEqual(alone);
    // Each document stands in the last prompt once, and the later mentions are references.
    expect(labelsIn(alone.at(-1)!).toSorted()).toEqual(['orsin', 'tamir', 'velka']);
    const metrics = await Promise.all(both.gateways.map(metricsOf));
    for (const text of metrics) {
      expect(totalOf(text, 'warmpath_fail_open_total')).toBe(0);
      expect(totalOf(text, 'warmpath_session_store_failures_total')).toBe(0);
      expect(totalOf(text, 'warmpath_session_store_seconds_count{operation="find"}')).toBeGreaterThan(0);
      expect(totalOf(text, 'warmpath_session_store_seconds_count{operation="keep"}')).toBeGreaterThan(0);
    }
    expect(totalOf(metrics[1]!, 'warmpath_replayed_turns_total')).toBeGreaterThan(0);
  });

  it('know nothing of another tenant', async () => {
    const shared = await sharing(2);
    const { engine, gateways } = shared;
    const fields = { warmpath: { session: 's' } };
    const mine = { authorization: 'Bearer mine' };
    const first = await send(gateways[0]!.url + CHAT, chat([VELKA], fields), { headers: mine });
    const messages = [...OPENING, answerOf(first.text), { role: 'user', content: 'And now?' }];
    for (const gateway of gateways) {
      for (const headers of [{ authorization: 'Bearer theirs' }, undefined]) {
        const reply = await send(gateway.url + CHAT, { model: 'm', ...fields, messages }, headers && { headers });
        expect([reply.status, errorOf(reply).code]).toEqual([409, 'WARMPATH_CONVERSATION_FORGOTTEN']);
      }
    }
    await send(gateways[1]!.url + CHAT, { model: 'm', ...fields, messages }, { headers: mine });
    expect(engine.last.body).toContain('42 kg');
  });

  it('leave a first request without documents unread', async () => {
    const { engine, gateways } = await sharing(1);
    const body = ' {"messages": [ {"role":"user", "content":"Q"} ]}';
    const reply = await send(gateways[0]!.url + CHAT, body);
    expect([engine.last.body, reply.status]).toEqual([body, 200]);
    for (const operation of ['find', 'keep']) {
      const asked = `warmpath_session_store_seconds_count{operation="${operation}"}`;
      expect(totalOf(await metricsOf(gateways[0]!), asked)).toBe(0);
    }
  });

  it('go on without the server, each by itself, and share again when it is back', async () => {
    const own = closing(await RedisServer.start());
    const shared = await sharing(2, { url: own.url });
    const { engine, gateways } = shared;
    const fields = { warmpath: { session: 's' } };
    const ask = (gateway: number, messages: readonly Message[], documents?: readonly object[]) =>
      send(gateways[gateway]!.url + CHAT, chat(documents, { ...fields, messages }));
    const first = await ask(0, OPENING, [VELKA]);
    const sent = engine.last.body;
    const second = [...OPENING, answerOf(first.text), { role: 'user', content: 'And now?' }];
    await own.kill();
    await Promise.all(gateways.map((gateway) => until(gateway, false)));
    // The gateway that served the first turn knows it; the other says that it cannot know, or brings the document anew.
    expect((await ask(0, second, [VELKA])).status).toBe(200);
    expect(engine.last.body).toContain('Given earlier');
    expect(engine.last.body.slice(0, sent.indexOf('}]'))).toBe(sent.slice(0, sent.indexOf('}]')));
    const served = engine.received.length;
    const refused = await ask(1, second, [VELKA]);
    expect([refused.status, errorOf(refused).code]).toEqual([503, 'WARMPATH_STORE_UNAVAILABLE']);
    expect(engine.received.length).toBe(served);
    const marked = chat([VELKA], { warmpath: { session: 's', forgotten: 'mark' }, messages: second });
    const reply = await send(gateways[1]!.url + CHAT, marked);
    expect(told(reply)).toMatchObject({ conversation: 'forgotten', fallback: 'conversation' });
    const record = await send(`${gateways[1]!.url}/v1/requests/${String(reply.headers['x-request-id'])}`);
    expect(JSON.parse(record.text)).toMatchObject({ failedOpen: [{ fallback: 'conversation', reason: 'store down' }] });
    expect([reply.status, labelsIn(engine.last.body)]).toEqual([200, ['velka']]);
    for (const [place, gateway] of gateways.entries()) {
      await until(gateway, false);
      const metrics = await metricsOf(gateway);
      expect(totalOf(metrics, 'warmpath_fail_open_total{fallback="conversation"}')).toBe(place + 1);
      expect((await send(`${gateway.url}/readyz`)).text).toBe('{"status":"ready","sessionStore":"down"}');
    }
    await own.restart();
    for (const gateway of gateways) await until(gateway, true);
    // What was sent before the crash is told to the server again by whoever knows it.
    const third = [...second, answerOf((await ask(0, second, [VELKA])).text), { role: 'user', content: 'And then?' }];
    await ask(0, third, [ORSIN]);
    const fourth = [...third, { role: 'assistant', content: 'R' }, { role: 'user', content: 'At last?' }];
    await ask(1, fourth, [VELKA, ORSIN, TAMIR]);
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
    expect(engine.last.body.match(/Given earlier/g)).toHaveLength(2);
  });

  it('wait for a server that hangs a few times, then not at all, and find it again', async () => {
    const own = closing(await RedisServer.start());
    const { gateways } = await sharing(1, { url: own.url, timeoutMs: 20 });
    const gateway = gateways[0]!;
    own.stall();
    const fields = { warmpath: { session: 's' } };
    for (let i = 0; i < 6; i++) expect((await send(gateway.url + CHAT, chat([VELKA], fields))).status).toBe(200);
    const metrics = await metricsOf(gateway);
    const failures = (reason: string) =>
      totalOf(metrics, `warmpath_session_store_failures_total{operation="find",reason="${reason}"}`);
    expect([failures('timeout'), failures('down')]).toEqual([3, 3]);
    expect(totalOf(metrics, 'warmpath_fail_open_total{fallback="conversation"}')).toBe(6);
    own.go();
    await until(gateway, true);
  });

  it('start without a server, and find it when it comes', async () => {
    const own = closing(await RedisServer.start());
    await own.kill();
    const { gateways } = await sharing(1, { url: own.url });
    const fields = { warmpath: { session: 's' } };
    expect((await send(gateways[0]!.url + CHAT, chat([VELKA], fields))).status).toBe(200);
    await own.restart();
    await until(gateways[0]!, true);
  });

  it('let in whoever knows the password, and no one else', async () => {
    const own = closing(await RedisServer.start('--requirepass', 'p@ss/word'));
    const engine = closing(await FakeEngine.start(telling));
    const at = (store: object) =>
      gatewayAt(engine.url, { session: { store: { url: own.url, ...store } } }).then(closing);
    expect(await metricsOf(await at({ url: own.url.replace('//', '//:p%40ss%2Fword@') }))).toContain('store_up 1\n');
    expect(await metricsOf(await at({ url: own.url.replace('//', '//:wrong@') }))).toContain(
      'warmpath_session_store_up 0\n',
    );
    expect(await metricsOf(await at({}))).toContain('warmpath_session_store_up 0\n');
  });
});

/** Passages of one tenant, told from those of all others by their text. */
const passagesOf = (tenant: string) =>
  ['a', 'b', 'c', 'd'].map((id) => ({ id, content: `Passage ${id} of ${tenant}, and of nobody else.` }));

interface Move {
  readonly gateway: number;
  readonly documents: readonly number[];
  /** Goes on from the latest turn, asks it again, or goes on from an earlier one. */
  readonly way: 'on' | 'again' | 'back';
}

const move: fc.Arbitrary<Move> = fc.record({
  gateway: fc.nat(2),
  documents: fc.uniqueArray(fc.nat(3), { maxLength: 3 }),
  way: fc.constantFrom('on', 'on', 'on', 'again', 'back'),
});
/** Fields that name a conversation, and what becomes of it where the store does not answer. */
const FIELDS: Readonly<Record<string, object>> = {
  refused: { warmpath: { session: 's' } },
  marked: { warmpath: { session: 's', forgotten: 'mark' } },
  'of an end user': { user: 'ann', warmpath: { session: 's' } },
};
const talk = fc.record({
  naming: fc.constantFrom(...Object.keys(FIELDS)),
  moves: fc.array(move, { minLength: 2, maxLength: 8 }),
});

/**
 * Has a conversation that goes back and repeats itself; answers what the engine was sent, turn by turn. A turn is
 * refused only where the store did not answer, or has not heard of the turn before.
 */
async function wander(
  { engine, gateways }: Shared,
  { naming, moves }: { readonly naming: string; readonly moves: readonly Move[] },
  tenant: string,
): Promise<string[]> {
  const passages = passagesOf(tenant);
  const headers = { authorization: `Bearer ${tenant}` };
  const fields = FIELDS[naming]!;
  const turns: { readonly messages: readonly Message[]; readonly body: object }[] = [];
  const bodies: string[] = [];
  for (const [i, { gateway, documents, way }] of moves.entries()) {
    const latest = turns.at(way === 'back' ? Math.floor(turns.length / 2) : -1);
    const isRepeat = way === 'again' && latest !== undefined;
    const messages = [...(latest?.messages ?? [OPENING[0]!]), { role: 'user', content: `Question ${i}?` }];
    const supplied = documents.map((place) => passages[place]!);
    const body = isRepeat ? latest.body : chat(supplied, { ...fields, messages });
    const reply = await send(gateways[gateway % gateways.length]!.url + CHAT, body, { headers });
    if (reply.status !== 200) {
      expect(['WARMPATH_STORE_UNAVAILABLE', 'WARMPATH_CONVERSATION_FORGOTTEN']).toContain(errorOf(reply).code);
      bodies.push('refused');
      continue;
    }
    const sent = engine.last.body;
    bodies.push(sent);
    for (const { content } of (body as { documents: readonly { content: string }[] }).documents) {
      expect(sent.split(content).length - 1, `${content} stands in the prompt once`).toBe(1);
    }
    expect(sent.match(/Passage . of (.*?),/g)?.every((text) => text.includes(` of ${tenant},`)) ?? true).toBe(true);
    if (!isRepeat) turns.push({ messages: [...messages, answerOf(reply.text)], body });
  }
  return bodies;
}

describe('any conversation, over any of three gateways', () => {
  it.each(isFull ? [0, 12] : [0])(
    'is sent as one gateway would send it, with up to %i ms to the store',
    async (longestMs) => {
      const alone = await stand(telling, { arrange: { policy: 'retrieval' } });
      const one: Shared = { engine: alone.engine, gateways: [alone.gateway] };
      const { url } = longestMs === 0 ? server : closing(await SlowProxy.start(server.port, { seed: 5, longestMs }));
      const three = await sharing(3, { url, policy: 'retrieval' });
      let tenants = 0;
      await fc.assert(
        fc.asyncProperty(talk, async (conversation) => {
          const tenant = `tenant-${++tenants}`;
          expect(await wander(three, conversation, tenant)).toEqual(await wander(one, conversation, tenant));
        }),
        { seed: 21, numRuns: 30 },
      );
    },
  );

  it('holds every document once, however slow the store is', async () => {
    const proxy = closing(await SlowProxy.start(server.port, { seed: 7, longestMs: 12 }));
    const three = await sharing(3, { url: proxy.url, timeoutMs: 10 });
    let tenants = 0;
    await fc.assert(
      fc.asyncProperty(talk, async (conversation) => {
        await wander(three, conversation, `slow-${++tenants}`);
      }),
      { seed: 22, numRuns: 25 },
    );
    const metrics = (await Promise.all(three.gateways.map(metricsOf))).join('');
    expect(totalOf(metrics, 'warmpath_session_store_failures_total{operation="find"')).toBeGreaterThan(0);
    expect(totalOf(metrics, 'warmpath_replayed_turns_total')).toBeGreaterThan(0);
  });
});
