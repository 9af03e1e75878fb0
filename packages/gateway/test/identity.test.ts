import { hash } from 'node:crypto';
import { SignJWT } from 'jose';
import { describe, expect, it } from 'vitest';
import { answerAsAsked, type FakeEngine } from './fake-engine.js';
import { chat, DOCUMENTS, errorOf, type Reply, type Stand, type StandConfig, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const [VELKA, ORSIN] = DOCUMENTS;
/** In the text of the first document and nowhere else. */
const SECRET = 'The colour of Velka is teal.';
const OPENING = [{ role: 'user', content: 'Hello.' }];
const SAID = { role: 'assistant', content: 'The weight is 42 kg.' };
const NEXT = [...OPENING, SAID, { role: 'user', content: 'Repeat the documents.' }];
const NAMED = { warmpath: { session: 'talk' } };
const MARKED = { warmpath: { session: 'talk', forgotten: 'mark' } };

type Headers = Readonly<Record<string, string>>;

/** A body of each API with these messages. */
const APIS = {
  chat: (messages: readonly object[], fields: object) => ({ path: CHAT, body: { model: 'm', messages, ...fields } }),
  responses: (input: readonly object[], fields: object) => ({
    path: '/v1/responses',
    body: { model: 'm', input, ...fields },
  }),
  messages: (messages: readonly object[], fields: object) => ({
    path: '/v1/messages',
    body: { model: 'm', max_tokens: 9, messages, ...fields },
  }),
};

function lastBody(engine: FakeEngine): string {
  return engine.received.filter(({ method }) => method === 'POST').at(-1)?.body ?? '';
}

function isForgotten(reply: Reply): boolean {
  return reply.status === 409 && errorOf(reply).code === 'WARMPATH_CONVERSATION_FORGOTTEN';
}

/** JSON in which a field is written exactly so. */
function withRaw(body: object, field: string, raw: string): string {
  return JSON.stringify({ ...body, [field]: '@raw@' }).replace('"@raw@"', raw);
}

describe('prompt_cache_key', () => {
  const kinds = Object.entries(APIS).flatMap(([api, body]) =>
    (['native', 'translate'] as const).map((way) => ({ api, way, body })),
  );

  it.each(kinds)(
    'names no conversation in $api ($way): users of one key get nothing of each other',
    async ({ way, body }) => {
      const { engine, gateway } = await stand(answerAsAsked, {}, { apiRoute: way });
      const ask = async (messages: readonly object[], fields: object) => {
        const { path, body: asked } = body(messages, { prompt_cache_key: 'one for all', ...fields });
        const reply = await send(gateway.url + path, asked);
        return { reply, sent: lastBody(engine) };
      };
      const first = await ask(OPENING, { documents: [VELKA], user: 'ann' });
      expect(first.sent).toContain(SECRET);
      expect(told(first.reply).conversation).toBeUndefined();
      const foreign = await ask(NEXT, { documents: [ORSIN], user: 'bob' });
      expect([foreign.reply.status, told(foreign.reply).conversation]).toEqual([200, undefined]);
      expect(foreign.sent).toContain(ORSIN.content);
      expect(foreign.sent).not.toContain(SECRET);
      const own = await ask(NEXT, { documents: [VELKA], user: 'ann' });
      expect(own.sent).toContain(SECRET);
      expect(own.sent).not.toContain('Given earlier');
    },
  );

  it('goes on to the engine, and keeps apart what a named conversation shows', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const fields = { ...NAMED, prompt_cache_key: 'one for all' };
    await send(gateway.url + CHAT, chat([VELKA], { ...fields, messages: OPENING, user: 'ann' }));
    expect(JSON.parse(lastBody(engine))).toMatchObject({ prompt_cache_key: 'one for all' });
    await send(gateway.url + CHAT, chat([ORSIN], { ...fields, messages: OPENING, user: 'bob' }));
    await send(gateway.url + CHAT, { model: 'm', ...fields, messages: NEXT, user: 'bob' });
    expect(lastBody(engine)).toContain(ORSIN.content);
    expect(lastBody(engine)).not.toContain(SECRET);
  });
});

describe('an end user that the body names', () => {
  const fieldsOf = {
    user: (raw: string, body: object) => withRaw(body, 'user', raw),
    safety_identifier: (raw: string, body: object) => withRaw(body, 'safety_identifier', raw),
    'metadata.user_id': (raw: string, body: object) => withRaw(body, 'metadata', `{"user_id":${raw}}`),
  };
  const fields = Object.entries(fieldsOf).map(([path, write]) => ({ path, write }));
  const everywhere = fields.flatMap((field) =>
    Object.entries(APIS).flatMap(([api, body]) =>
      (['native', 'translate'] as const).map((way) => ({ ...field, api, way, body })),
    ),
  );

  it.each(everywhere)('is who a number says, in $path of $api ($way)', async ({ write, way, body }) => {
    const { engine, gateway } = await stand(answerAsAsked, {}, { apiRoute: way });
    const ask = async (messages: readonly object[], raw: string, more: object = {}) => {
      const { path, body: asked } = body(messages, { ...NAMED, ...more });
      return send(gateway.url + path, write(raw, asked));
    };
    const turn = async (raw: string) => {
      const reply = await ask(NEXT, raw);
      return isForgotten(reply) ? 'another' : lastBody(engine).includes(SECRET) ? 'the same' : 'lost';
    };
    const large = '9007199254740993';
    await ask(OPENING, large, { documents: [VELKA] });
    expect(await turn('9007199254740992')).toBe('another');
    expect(await turn('"ann"')).toBe('another');
    expect(await turn('null')).toBe('another');
    expect(await turn(`"${large}"`)).toBe('the same');
    expect(await turn(large)).toBe('the same');
  });

  it.each(['0', '-1', '1.0', '1e0', '1E+2', '-0', '1e400', '123456789012345678901234567890'])(
    'is the text of the number %s, and nobody else',
    async (raw) => {
      const { engine, gateway } = await stand(answerAsAsked);
      const ask = (messages: readonly object[], user: string, more: object = {}) =>
        send(gateway.url + CHAT, withRaw({ model: 'm', ...NAMED, messages, ...more }, 'user', user));
      await ask(OPENING, raw, { documents: [VELKA] });
      for (const other of ['1', '"1"', '100', 'null', '""', '"anonymous"', `"${raw} "`]) {
        expect(isForgotten(await ask(NEXT, other)), other).toBe(true);
      }
      await ask(NEXT, `"${raw}"`);
      expect(lastBody(engine)).toContain(SECRET);
    },
  );

  it.each(
    fields.flatMap((field) =>
      ['{}', '[]', '["ann"]', '{"id":"ann"}', 'true', 'false'].map((raw) => ({ ...field, raw })),
    ),
  )('is refused as $raw in $path', async ({ path, write, raw }) => {
    const { engine, gateway } = await stand(answerAsAsked);
    for (const body of [
      { model: 'm', ...NAMED, messages: OPENING },
      { model: 'm', documents: [VELKA], messages: OPENING },
    ]) {
      const reply = await send(gateway.url + CHAT, write(raw, body));
      expect([reply.status, errorOf(reply).code]).toEqual([400, 'WARMPATH_INVALID_REQUEST']);
      expect(errorOf(reply).message).toContain(path);
    }
    expect(engine.received).toHaveLength(0);
  });

  it.each([
    ['half of a surrogate pair', '"ann\\ud800"', '"ann\\ud801"'],
    ['a line break and no end user', '"\\n"', 'null'],
  ])('is not another one: %s', async (_, one, other) => {
    const { engine, gateway } = await stand(answerAsAsked);
    const ask = (messages: readonly object[], user: string, more: object = {}) =>
      send(gateway.url + CHAT, withRaw({ model: 'm', ...MARKED, messages, ...more }, 'user', user));
    await ask(OPENING, one, { documents: [VELKA] });
    engine.received.length = 0;
    await ask(NEXT, other);
    expect(lastBody(engine)).not.toContain(SECRET);
  });

  it('is another one than the digest of its long name', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const long = 'a'.repeat(300);
    const ask = (messages: readonly object[], user: string, more: object = {}) =>
      send(gateway.url + CHAT, { model: 'm', ...MARKED, messages, ...more, user });
    await ask(OPENING, long, { documents: [VELKA] });
    await ask(NEXT, `sha256:${hash('sha256', long)}`);
    expect(lastBody(engine)).not.toContain(SECRET);
    await ask(NEXT, long);
    expect(lastBody(engine)).toContain(SECRET);
  });

  it.each([
    ['a user', Buffer.from([0x22, 0xff, 0x22]), 'user'],
    ['a session', Buffer.from('{"session":"\xff"}', 'latin1'), 'warmpath'],
    ['a session, escaped', Buffer.from('{"session":"\\ud800"}'), 'warmpath'],
  ])('and a conversation are refused where their bytes are not Unicode: %s', async (_, raw, field) => {
    const { gateway } = await stand(answerAsAsked);
    const [before, behind] = withRaw({ model: 'm', ...NAMED, messages: OPENING }, field, '@').split('@');
    const reply = await send(gateway.url + CHAT, Buffer.concat([Buffer.from(before!), raw, Buffer.from(behind!)]));
    expect([reply.status, errorOf(reply).code]).toEqual([400, 'WARMPATH_INVALID_REQUEST']);
  });
});

describe('where the operator configured where end users come from', () => {
  const secret = 'a secret that is long enough for HS256';
  const exp = Math.floor(Date.now() / 1_000) + 600;
  const bearer = async (claims: object): Promise<Headers> => {
    const token = new SignJWT({ sub: 'acme', exp, ...claims }).setProtectedHeader({ alg: 'HS256' });
    return { authorization: `Bearer ${await token.sign(new TextEncoder().encode(secret))}` };
  };
  const KEY = 'a-key-of-the-same-tenant';
  const byClaim: StandConfig = {
    server: { jwt: { secret, endUserClaim: 'email' }, keys: [{ name: 'acme', key: KEY }] },
  };
  const byHeader: StandConfig = { server: { trustedHeaders: { endUser: 'x-end-user' } } };
  const byBoth: StandConfig = { server: { trustedHeaders: { tenant: 'x-tenant', endUser: 'x-end-user' } } };

  const sources: readonly (readonly [string, StandConfig, () => Headers | Promise<Headers>, Headers | undefined][])[] =
    [
      [
        ...(
          [
            ['missing', {}],
            ['a number', { email: 7 }],
            ['null', { email: null }],
            ['empty', { email: '' }],
            ['a list', { email: ['victim'] }],
            ['an object', { email: { name: 'victim' } }],
            ['a boolean', { email: true }],
            ['too long', { email: 'v'.repeat(257) }],
            ['half of a surrogate pair', { email: 'victim\ud800' }],
            ['with a line break', { email: 'victim\n' }],
          ] as const
        ).map(([what, claims]): [string, StandConfig, () => Promise<Headers>, undefined] => [
          `a claim that is ${what}`,
          byClaim,
          () => bearer(claims),
          undefined,
        ]),
        ['a key, which has no claims', byClaim, () => ({ authorization: `Bearer ${KEY}` }), undefined],
      ],
      [
        ...(
          [
            ['missing', {}],
            ['empty', { 'x-end-user': '' }],
            ['too long', { 'x-end-user': 'v'.repeat(257) }],
            ['given twice', { 'x-end-user': 'victim, victim' }],
          ] as const
        ).flatMap(([what, headers]): [string, StandConfig, () => Headers, undefined][] => [
          [`a header that is ${what}`, byHeader, () => headers, undefined],
          [
            `a header that is ${what}, beside one of the tenant`,
            byBoth,
            () => ({ 'x-tenant': 'acme', ...headers }),
            undefined,
          ],
        ]),
      ],
    ];
  const victimOf = async (config: StandConfig): Promise<Headers> => {
    if (config === byClaim) return bearer({ email: 'victim' });
    return { 'x-end-user': 'victim', ...(config === byBoth && { 'x-tenant': 'acme' }) };
  };

  const ways = [
    ['user', { user: 'victim' }],
    ['safety_identifier', { safety_identifier: 'victim' }],
    ['metadata.user_id', { metadata: { user_id: 'victim' } }],
    ['a list', { user: ['victim'] }],
  ] as const;

  it.each(sources.flat())('the body names none: %s', async (_, config, headersOf) => {
    const { engine, gateway } = await stand(answerAsAsked, config);
    const victim = await victimOf(config);
    await send(gateway.url + CHAT, chat([VELKA], { ...NAMED, messages: OPENING }), { headers: victim });
    expect(lastBody(engine)).toContain(SECRET);
    const headers = await headersOf();
    for (const [field, names] of ways) {
      const sent = engine.received.length;
      // Documents of earlier turns may be missing: the client learns it, or asked for the mark.
      const refused = await send(gateway.url + CHAT, { model: 'm', ...NAMED, ...names, messages: NEXT }, { headers });
      expect(isForgotten(refused), `${field}: ${refused.status} ${refused.text}`).toBe(true);
      expect(errorOf(refused).message).toContain('end user');
      expect(engine.received).toHaveLength(sent);
      const marked = chat([ORSIN], { ...MARKED, ...names, messages: NEXT });
      const reply = await send(gateway.url + CHAT, marked, { headers });
      expect([reply.status, told(reply).conversation]).toEqual([200, 'forgotten']);
      expect(lastBody(engine)).toContain(ORSIN.content);
      expect(lastBody(engine)).not.toContain(SECRET);
    }
    await send(gateway.url + CHAT, { model: 'm', ...NAMED, messages: NEXT }, { headers: victim });
    expect(lastBody(engine)).toContain(SECRET);
  });

  it.each([
    ['chat', APIS.chat],
    ['responses', APIS.responses],
    ['messages', APIS.messages],
  ] as const)('a request of %s without an end user sends its documents, and is not remembered', async (_, body) => {
    for (const way of ['native', 'translate'] as const) {
      const { engine, gateway } = await stand(answerAsAsked, byHeader, { apiRoute: way });
      const ask = async (messages: readonly object[], fields: object) => {
        const { path, body: asked } = body(messages, fields);
        return send(gateway.url + path, asked);
      };
      const first = await ask(OPENING, { ...NAMED, documents: [VELKA] });
      expect([first.status, told(first).conversation]).toEqual([200, 'ignored']);
      expect(lastBody(engine)).toContain(SECRET);
      expect(isForgotten(await ask(NEXT, NAMED))).toBe(true);
      const unnamed = await ask(NEXT, { documents: [ORSIN] });
      expect([unnamed.status, told(unnamed).conversation]).toEqual([200, undefined]);
      expect(lastBody(engine)).not.toContain(SECRET);
      const bypassed = await ask(NEXT, { warmpath: { session: 'talk', bypass: true } });
      expect(bypassed.status).toBe(200);
      expect(lastBody(engine)).not.toContain(SECRET);
    }
  });

  it('a request without an end user deletes no conversation, and is told so', async () => {
    for (const config of [byClaim, byBoth, byHeader]) {
      const { engine, gateway } = await stand(answerAsAsked, config);
      const victim = await victimOf(config);
      await send(gateway.url + CHAT, chat([VELKA], { ...NAMED, messages: OPENING }), { headers: victim });
      const headers = config === byClaim ? await bearer({ email: 7 }) : config === byBoth ? { 'x-tenant': 'acme' } : {};
      const url = `${gateway.url}/v1/sessions/talk`;
      const refused = await send(url, undefined, { method: 'DELETE', headers: { ...headers } });
      expect([refused.status, errorOf(refused).code]).toEqual([403, 'WARMPATH_FORBIDDEN']);
      await send(gateway.url + CHAT, { model: 'm', ...NAMED, messages: NEXT }, { headers: victim });
      expect(lastBody(engine)).toContain(SECRET);
      const deleted = await send(url, undefined, { method: 'DELETE', headers: victim });
      expect(JSON.parse(deleted.text)).toMatchObject({ object: 'session', session: 'talk' });
      const gone = await send(gateway.url + CHAT, { model: 'm', ...NAMED, messages: NEXT }, { headers: victim });
      expect(isForgotten(gone)).toBe(true);
    }
  });
});

describe('names of tenants', () => {
  const secret = 'a secret that is long enough for HS256';
  const SALTS: StandConfig = { server: { jwt: { secret } }, upstream: { cacheSaltKey: 'a secret of the gateways' } };
  const ask = async ({ engine, gateway }: Stand, sub: string, fields: object = {}) => {
    const exp = Math.floor(Date.now() / 1_000) + 600;
    const token = await new SignJWT({ sub, exp })
      .setProtectedHeader({ alg: 'HS256' })
      .sign(new TextEncoder().encode(secret));
    const headers = { authorization: `Bearer ${token}` };
    const reply = await send(gateway.url + CHAT, chat([VELKA], fields), { headers });
    return {
      reply,
      salt: reply.status === 200 ? (JSON.parse(lastBody(engine)) as { cache_salt?: string }).cache_salt : undefined,
    };
  };

  it.each(['acme\ud800', '\udc00', 'acme\n', 'acme\u0000', 'a\u0085b', 'anonymous', 'anonymous:acme', ''])(
    'are refused where they cannot be told from others: %j',
    async (sub) => {
      const { reply } = await ask(await stand(answerAsAsked, SALTS), sub);
      expect([reply.status, errorOf(reply).code]).toEqual([401, 'WARMPATH_UNAUTHORIZED']);
    },
  );

  it('have salts of their own, whatever salt a client of another tenant sends', async () => {
    const here = await stand(answerAsAsked, SALTS);
    const salts = [
      await ask(here, 'acme'),
      await ask(here, 'acme', { cache_salt: 'b' }),
      await ask(here, 'acme "b"'),
      await ask(here, 'acme,"b"'),
      await ask(here, 'acme', { cache_salt: '' }),
      await ask(here, 'acme', { cache_salt: null, user: 'ann' }),
    ].map(({ salt }) => salt);
    expect(salts.pop()).toBe(salts[0]);
    expect(new Set(salts).size).toBe(salts.length);
  });
});
