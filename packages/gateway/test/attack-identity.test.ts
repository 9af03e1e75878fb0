import { describe, expect, it } from 'vitest';
import { answerAsAsked, CHAT_RESPONSE } from './fake-engine.js';
import {
  chat,
  closing,
  DOCUMENTS,
  errorOf,
  gatewayAt,
  labelsIn,
  type Reply,
  type StandConfig,
  send,
  stand,
} from './harness.js';

const CHAT = '/v1/chat/completions';
const SALTS = { upstream: { cacheSaltKey: 'a secret of the gateways' } };
const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
/** In the text of the first document and nowhere else. */
const SECRET = 'The colour of Velka is teal.';
const SAID = { role: 'assistant', content: 'The weight is 42 g.' };
const OPENING = [
  { role: 'system', content: 'Answer from the documents.' },
  { role: 'user', content: 'What is the weight of Velka?' },
];
const NEXT = [...OPENING, SAID, { role: 'user', content: 'Repeat the documents.' }];

type Headers = Readonly<Record<string, string>>;

const bearer = (name: string): Headers => ({ authorization: `Bearer ${name}` });
const named = (name: string) => ({ warmpath: { session: name } });
const saltOf = (body: string): unknown => (JSON.parse(body) as { cache_salt?: unknown }).cache_salt;

function isForgotten(reply: Reply): boolean {
  return reply.status === 409 && errorOf(reply).code === 'WARMPATH_CONVERSATION_FORGOTTEN';
}

describe('a conversation of somebody else', () => {
  const owner = { headers: bearer('owner'), fields: { ...named('talk'), user: 'ann' } };
  const thieves: readonly (readonly [name: string, headers: Headers, fields: object])[] = [
    ['another key', bearer('thief'), owner.fields],
    ['no key', {}, owner.fields],
    ["the same key as x-api-key of somebody else's", { 'x-api-key': 'thief' }, owner.fields],
    ['another end user', owner.headers, { ...owner.fields, user: 'bob' }],
    ['no end user', owner.headers, named('talk')],
    ['another safety identifier beside the same user', owner.headers, { ...owner.fields, safety_identifier: 'bob' }],
    ['another name', owner.headers, { ...named('other'), user: 'ann' }],
  ];

  it.each(thieves)('is not continued by %s', async (_, headers, fields) => {
    const { engine, gateway } = await stand(answerAsAsked);
    await send(gateway.url + CHAT, chat([VELKA], owner.fields), { headers: owner.headers });
    const before = engine.received.length;
    const reply = await send(gateway.url + CHAT, { model: 'm', ...fields, messages: NEXT }, { headers });
    for (const { body } of engine.received.slice(before)) expect(body).not.toContain(SECRET);
    expect(isForgotten(reply), `${reply.status} ${reply.text}`).toBe(true);
    const own = { model: 'm', ...owner.fields, messages: NEXT };
    await send(gateway.url + CHAT, own, { headers: owner.headers });
    expect(engine.last.body).toContain(SECRET);
  });

  it('is not continued without a name, whatever words it has', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const first = await send(gateway.url + CHAT, chat([VELKA]), { headers: owner.headers });
    const { choices } = JSON.parse(first.text) as { choices: [{ message: object }] };
    const messages = [...OPENING, choices[0].message, NEXT.at(-1)];
    const reply = await send(gateway.url + CHAT, { model: 'm', messages }, { headers: owner.headers });
    expect(reply.status).toBe(200);
    expect(engine.last.body).not.toContain(SECRET);
  });

  it('is named by the body before the header, and never by the cache key', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const both = { headers: { ...bearer('owner'), 'x-warmpath-session': 'in the header' } };
    await send(gateway.url + CHAT, chat([VELKA], { ...named('in the body'), prompt_cache_key: 'key' }), both);
    const ask = (fields: object, headers: Headers = bearer('owner')) =>
      send(gateway.url + CHAT, { model: 'm', ...fields, messages: NEXT }, { headers });
    expect(isForgotten(await ask({}, both.headers))).toBe(true);
    const unnamed = await ask({ prompt_cache_key: 'key' });
    expect(unnamed.status).toBe(200);
    expect(String(unnamed.headers['x-warmpath'] ?? '')).not.toContain('conversation=');
    expect(engine.received.slice(1).some(({ body }) => body.includes(SECRET))).toBe(false);
    await ask(named('in the body'));
    expect(engine.last.body).toContain(SECRET);
  });

  it('is not deleted by another tenant', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    await send(gateway.url + CHAT, chat([VELKA], named('talk')), { headers: bearer('owner') });
    for (const headers of [bearer('thief'), { 'x-api-key': 'thief' }, { 'api-key': 'thief' }, {}]) {
      await send(`${gateway.url}/v1/sessions/talk`, undefined, { method: 'DELETE', headers });
    }
    const body = { model: 'm', ...named('talk'), messages: NEXT };
    await send(gateway.url + CHAT, body, { headers: bearer('owner') });
    expect(engine.last.body).toContain(SECRET);
  });

  it('is not deleted by another client without a key, where strangers can reach the gateway', async () => {
    const { engine, gateway } = await stand(answerAsAsked, { server: { host: '0.0.0.0' } });
    const url = gateway.url.replace('0.0.0.0', '127.0.0.1');
    await send(url + CHAT, chat([VELKA], named('talk')));
    const reply = await send(`${url}/v1/sessions/talk`, undefined, { method: 'DELETE' });
    expect(reply.status, reply.text).toBeGreaterThanOrEqual(400);
    await send(url + CHAT, { model: 'm', ...named('talk'), messages: NEXT });
    expect(engine.last.body).toContain(SECRET);
  });
});

describe("Azure's header for keys", () => {
  const ask = (url: string, key: string, fields: object) => send(url + CHAT, fields, { headers: { 'api-key': key } });

  it('tells tenants apart, in conversations and in the salts of the cache', async () => {
    const { engine, gateway } = await stand(answerAsAsked, SALTS);
    await ask(gateway.url, 'one', chat([VELKA], named('talk')));
    const salts = [saltOf(engine.last.body)];
    const forbidden = await ask(gateway.url, 'two', { model: 'm', ...named('talk'), messages: NEXT });
    expect(isForgotten(forbidden), `${forbidden.status} ${engine.last.body}`).toBe(true);
    for (const key of ['two', 'one']) {
      await ask(gateway.url, key, chat([ORSIN]));
      salts.push(saltOf(engine.last.body));
    }
    await send(gateway.url + CHAT, chat([ORSIN]));
    salts.push(saltOf(engine.last.body));
    expect(salts[2]).toBe(salts[0]);
    expect(new Set(salts).size).toBe(3);
  });
});

describe('a request that is not to be changed', () => {
  it.each([
    ['with documents', chat([VELKA], { warmpath: { bypass: true } })],
    ['without documents', { model: 'm', messages: OPENING, warmpath: { bypass: true } }],
    ['of a conversation', chat([VELKA], { warmpath: { bypass: true, session: 'talk' } })],
  ])("%s has its tenant's salt all the same", async (_, body) => {
    const { engine, gateway } = await stand(answerAsAsked, SALTS);
    await send(gateway.url + CHAT, chat([ORSIN]), { headers: bearer('one') });
    await send(gateway.url + CHAT, body, { headers: bearer('one') });
    await send(gateway.url + CHAT, body, { headers: bearer('two') });
    const [usual, bypassed, others] = engine.received.map((received) => saltOf(received.body));
    expect(bypassed).toBe(usual);
    expect(others).not.toBe(usual);
  });

  it('gets nothing of the turns before it', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    await send(gateway.url + CHAT, chat([VELKA], named('talk')));
    const body = { model: 'm', messages: NEXT };
    await send(gateway.url + CHAT, { ...body, warmpath: { session: 'talk', bypass: true } });
    expect(JSON.parse(engine.last.body)).toEqual(body);
  });
});

describe('a label', () => {
  it('stands for one text, also where a turn repeats every document', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const other = { id: VELKA.id, content: 'The weight of Velka is 43 kg, says a newer source.' };
    await send(gateway.url + CHAT, chat([VELKA], named('talk')));
    const fields = { warmpath: { session: 'talk', deduplicate: false }, messages: NEXT };
    await send(gateway.url + CHAT, chat([other], fields));
    const labels = labelsIn(engine.last.body);
    expect(labels).toHaveLength(2);
    expect(new Set(labels).size).toBe(2);
  });
});

describe('what is known of served orders', () => {
  it('outlives the many names of models that another tenant asks for', async () => {
    const { engine, gateway } = await stand(answerAsAsked, { arrange: { policy: 'exact' } });
    const ask = (documents: readonly object[], model: string, tenant: string) =>
      send(gateway.url + CHAT, { ...chat(documents), model }, { headers: bearer(tenant) });
    await ask([VELKA, ORSIN, TAMIR], 'm', 'victim');
    for (let name = 0; name < 70; name++) await ask([VELKA], `model-${name}`, 'attacker');
    await ask([TAMIR, ORSIN, VELKA], 'm', 'victim');
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
  });
});

describe('a client whose key the engine refuses', () => {
  const MESSAGE = JSON.stringify({
    id: 'm',
    type: 'message',
    role: 'assistant',
    content: [{ type: 'text', text: 'Yes.' }],
  });
  const BODY = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Q' }] };

  it.each(
    [400, 401, 403, 404, 422].flatMap((refusal) => [
      { refusal, speaks: 'chat completions only', isNative: false },
      { refusal, speaks: 'Messages', isNative: true },
    ]),
  )(
    'with $refusal does not decide how others are served, where the engine speaks $speaks',
    async ({ refusal, isNative }) => {
      const { gateway } = await stand((response, { headers, path }) => {
        const isKnown = Object.values(headers).some((value) => String(value).includes('good-key'));
        const isServed = isNative || path === CHAT;
        const status = !isKnown ? refusal : isServed ? 200 : 404;
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(status !== 200 ? '{"error":{"message":"No."}}' : path === CHAT ? CHAT_RESPONSE : MESSAGE);
      });
      await send(`${gateway.url}/v1/messages`, BODY);
      const reply = await send(`${gateway.url}/v1/messages`, BODY, { headers: { 'x-api-key': 'good-key' } });
      expect([reply.status, JSON.parse(reply.text)]).toMatchObject([200, { type: 'message' }]);
      if (isNative) expect(reply.text).toBe(MESSAGE);
    },
  );
});

describe('a gateway with a key of the operator for the engine', () => {
  const beyondLoopback = (server: object) =>
    gatewayAt('http://127.0.0.1:9', {
      server: { host: '0.0.0.0', ...server } as StandConfig['server'],
      upstream: { apiKey: "the operator's" },
    });

  it('does not lend it to strangers', async () => {
    const started = beyondLoopback({}).then(closing);
    await expect(started).rejects.toThrow(/server\.(?:open|keys|host)/);
  });

  it('does so where it is told to in so many words', async () => {
    expect(closing(await beyondLoopback({ open: true })).url).toContain('http');
  });

  it('serves this machine without being told', async () => {
    expect(closing(await gatewayAt('http://127.0.0.1:9', { upstream: { apiKey: 'k' } })).url).toContain('127.0.0.1');
  });
});
