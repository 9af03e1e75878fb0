import { generateKeyPairSync, hash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { describe, expect, it } from 'vitest';
import { checkConfig, resolveConfig } from '../src/config/load.js';
import { Authenticator, type Caller } from '../src/intake/authenticate.js';
import { CHAT_RESPONSE } from './fake-engine.js';
import { chat, errorOf, type StandConfig, send, stand, told } from './harness.js';

const PATH = '/v1/chat/completions';
const ALICE = 'alice-has-this-key';
const BOB = 'bob-has-another-key';
const OPERATOR_KEY = 'the-key-of-the-operator';

type Headers = Record<string, string>;

const bearer = (key: string): Headers => ({ authorization: `Bearer ${key}` });

/** What an authenticator with these settings says of headers. */
async function callerOf(settings: NonNullable<StandConfig['server']>, headers: Headers): Promise<Caller | string> {
  const config = resolveConfig({ server: settings, upstream: { url: 'http://engine' } });
  const authenticator = await Authenticator.open(config.server);
  try {
    return await authenticator.callerOf(headers);
  } catch (error) {
    return (error as { code: string }).code;
  }
}

const tenantOf = async (headers: Headers) => ((await callerOf({}, headers)) as Caller).tenant;

describe('without keys in the configuration, a tenant', () => {
  it('is the digest of whatever key the client sent, in any of the three headers', async () => {
    expect(await callerOf({}, {})).toMatchObject({ tenant: 'anonymous', isAuthenticated: false });
    // Nobody checked the key: it tells clients apart and proves nothing.
    expect(await callerOf({}, bearer('a'))).toMatchObject({ isAuthenticated: false });
    const all = await Promise.all([
      ...['a', 'b'].flatMap((key) => [
        tenantOf(bearer(key)),
        tenantOf({ 'x-api-key': key }),
        tenantOf({ 'api-key': key }),
        tenantOf({ ...bearer('same'), 'api-key': key }),
        tenantOf({ authorization: `x-api-key ${key}` }),
        tenantOf({ authorization: `Bearer same\napi-key ${key}` }),
      ]),
    ]);
    expect(new Set(all).size).toBe(all.length);
    expect(all.every((tenant) => /^anonymous:[0-9a-f]{64}$/.test(tenant))).toBe(true);
  });

  it('keeps what it was served to itself: clients that differ in `api-key` share no conversation', async () => {
    const { engine, gateway } = await stand();
    const ask = async (key: string) => {
      const options = { headers: { 'api-key': key, 'x-warmpath-session': 's' } };
      return told(await send(gateway.url + PATH, chat(), options)).predicted;
    };
    expect(await ask('a')).toBe('0');
    expect(await ask('b')).toBe('0');
    expect(engine.last.headers['api-key']).toBe('b');
    expect(Number(await ask('a'))).toBeGreaterThan(0);
  });
});

describe('server.keys', () => {
  const keys = [
    { name: 'alice', sha256: hash('sha256', ALICE), tenant: 'team' },
    { name: 'bob', key: BOB },
  ];

  it('let in who has one, in any header that clients send keys in, and nobody else', async () => {
    const { engine, gateway } = await stand(undefined, { server: { keys } });
    const ask = (headers: Headers) => send(gateway.url + PATH, chat(), { headers });
    for (const headers of <Headers[]>[
      bearer(ALICE),
      { 'x-api-key': ALICE },
      { 'api-key': BOB },
      { authorization: `bearer ${BOB}` },
    ]) {
      expect(await ask(headers)).toMatchObject({ status: 200, text: CHAT_RESPONSE });
    }
    expect(engine.received).toHaveLength(4);
    for (const headers of [
      {},
      bearer('wrong'),
      { authorization: ALICE },
      { authorization: `Basic ${ALICE}` },
      bearer(hash('sha256', ALICE)),
    ]) {
      const reply = await ask(headers);
      expect([reply.status, errorOf(reply).code]).toEqual([401, 'WARMPATH_UNAUTHORIZED']);
    }
    expect(engine.received).toHaveLength(4);
  });

  it('are asked for on every path but those for load balancers, and refused in the shape of the API', async () => {
    const { engine, gateway } = await stand(undefined, { server: { keys } });
    const status = async (path: string, method = 'GET') =>
      (await send(gateway.url + path, undefined, { method })).status;
    for (const path of ['/v1/models', '/v1/%6dodels', '/v1/embeddings', '/nothing', '/v1/requests/1', '/v1/arrange']) {
      expect([path, await status(path)]).toEqual([path, 401]);
    }
    expect(await status('/v1/sessions/s', 'DELETE')).toBe(401);
    expect([await status('/healthz'), await status('/readyz')]).toEqual([200, 200]);
    const messages = await send(`${gateway.url}/v1/messages`, {});
    expect(JSON.parse(messages.text)).toMatchObject({
      type: 'error',
      error: { type: 'authentication_error', code: 'WARMPATH_UNAUTHORIZED' },
    });
    // The readiness probe alone.
    expect(engine.received.map(({ path }) => path)).toEqual(['/v1/models']);
  });

  it('cannot be passed by a whole URL in the request line', async () => {
    const { engine, gateway } = await stand(undefined, { server: { keys } });
    const { hostname, port } = new URL(gateway.url);
    const reply = await send(`http://${hostname}:${port}`, '{}', { path: `http://x${PATH}` });
    expect(reply.status).toBe(401);
    expect(engine.received).toHaveLength(0);
  });

  it('are the tenants: two keys may be one, and each is named by the configuration', async () => {
    const server = { keys: [...keys, { name: 'carol', key: 'carol-has-a-third-key', tenant: 'team' }] };
    expect(await callerOf(server, bearer(ALICE))).toMatchObject({ tenant: 'team', key: { name: 'alice' } });
    expect(await callerOf(server, bearer(BOB))).toMatchObject({ tenant: 'bob', isAuthenticated: true });
    const { gateway } = await stand(undefined, { server });
    const predicted = async (key: string) =>
      Number(told(await send(gateway.url + PATH, chat(), { headers: bearer(key) })).predicted);
    expect(await predicted(ALICE)).toBe(0);
    expect(await predicted(BOB)).toBe(0);
    expect(await predicted('carol-has-a-third-key')).toBeGreaterThan(0);
  });

  it.each([
    ['own', { apiKey: 'own' }, 'Bearer own'],
    ['none', {}, undefined],
  ] as const)('never reach the engine, which gets the key of the gateway: %s', async (_, upstream, expected) => {
    const { engine, gateway } = await stand(undefined, { server: { keys }, upstream });
    await send(gateway.url + PATH, chat(), { headers: { ...bearer(ALICE), 'x-api-key': ALICE, 'api-key': ALICE } });
    await send(`${gateway.url}/v1/models`, undefined, { headers: { 'x-api-key': ALICE } });
    await send(`${gateway.url}/v1/messages`, { max_tokens: 1, messages: [] }, { headers: { 'x-api-key': ALICE } });
    expect(engine.received.length).toBeGreaterThanOrEqual(4);
    for (const { headers } of engine.received) {
      expect([headers.authorization, headers['x-api-key'], headers['api-key']]).toEqual([
        expected,
        undefined,
        undefined,
      ]);
    }
  });

  it('are never kept in clear', () => {
    const config = resolveConfig({ server: { keys }, upstream: { url: 'http://engine' } });
    expect(JSON.stringify(config)).not.toContain(BOB);
    expect(config.server.keys![1]!.sha256).toBe(hash('sha256', BOB));
    // What was read once may be read again.
    expect(resolveConfig(config)).toEqual(config);
  });

  it.each([
    [{ name: 'a' }, 'must have one of `sha256` and `key`'],
    [{ name: 'a', sha256: hash('sha256', ALICE), key: ALICE }, 'must have one of `sha256` and `key`'],
    [{ name: 'a', key: 'short' }, '>=16 characters'],
    [{ name: 'a', sha256: 'abc' }, 'sha256sum'],
    [{ name: 'bob', key: 'another-key-of-bob' }, 'name of another key'],
    [{ name: 'b', key: BOB }, 'another entry'],
    [{ name: 'b', key: OPERATOR_KEY }, 'the operator'],
  ])('%j beside that of bob is refused', (entry, message) => {
    const server = { keys: [{ name: 'bob', key: BOB }, entry], operatorKey: { key: OPERATOR_KEY } };
    const { problems } = checkConfig(JSON.stringify({ server, upstream: { url: 'http://engine' } }), {});
    expect(problems).toHaveLength(1);
    expect(problems[0]!.path).toMatch(/^server\.keys\.1/);
    expect(problems[0]!.message).toContain(message);
  });
});

describe('trusted headers', () => {
  const trustedHeaders = { tenant: 'X-Tenant', endUser: 'x-end-user' };

  it('say whose a request is, and stay in the gateway', async () => {
    expect(
      await callerOf({ trustedHeaders }, { 'x-tenant': 'acme', 'x-end-user': 'ann', ...bearer('k') }),
    ).toMatchObject({
      tenant: 'acme',
      endUser: 'ann',
      isAuthenticated: true,
    });
    const { engine, gateway } = await stand(undefined, { server: { trustedHeaders } });
    const headers = { 'x-tenant': 'acme', 'x-end-user': 'ann', ...bearer('for the engine') };
    expect((await send(gateway.url + PATH, chat(), { headers })).status).toBe(200);
    const { authorization, ...received } = engine.last.headers;
    expect(authorization).toBe('Bearer for the engine');
    expect(Object.keys(received).filter((name) => /tenant|user$/.test(name))).toEqual([]);
  });

  it('are needed where they are configured, once, and believed nowhere else', async () => {
    expect(await callerOf({ trustedHeaders }, bearer('k'))).toBe('WARMPATH_UNAUTHORIZED');
    expect(await callerOf({ trustedHeaders }, { 'x-tenant': '' })).toBe('WARMPATH_UNAUTHORIZED');
    // The client's own, and the proxy's behind it.
    expect(await callerOf({ trustedHeaders }, { 'x-tenant': 'victim, acme' })).toBe('WARMPATH_INVALID_REQUEST');
    expect(await callerOf({ trustedHeaders }, { 'x-tenant': 'a'.repeat(257) })).toBe('WARMPATH_INVALID_REQUEST');
    expect(await callerOf({}, { 'x-tenant': 'acme', 'x-end-user': 'ann' })).toMatchObject({
      tenant: 'anonymous',
      endUser: undefined,
    });
  });

  it('name the tenant, or keys do: not both', () => {
    const server = { trustedHeaders, keys: [{ name: 'bob', key: BOB }] };
    const { problems } = checkConfig(JSON.stringify({ server, upstream: { url: 'http://engine' } }), {});
    expect(problems).toMatchObject([{ code: 'WARMPATH_CONFIG_INVALID', path: 'server.trustedHeaders.tenant' }]);
  });
});

describe('tokens', () => {
  const secret = 'a secret that is long enough for HS256';
  const key = new TextEncoder().encode(secret);
  const token = (claims: object, alg = 'HS256', signWith: Parameters<SignJWT['sign']>[0] = key) =>
    new SignJWT({ ...claims }).setProtectedHeader({ alg }).sign(signWith);
  const soon = Math.floor(Date.now() / 1_000) + 600;

  it('name the tenant and the end user, and are verified', async () => {
    const jwt = { secret, audience: 'warmpath', issuer: 'https://id.example', endUserClaim: 'email' };
    const good = { sub: 'acme', email: 'ann@acme.example', aud: 'warmpath', iss: 'https://id.example', exp: soon };
    expect(await callerOf({ jwt }, bearer(await token(good)))).toMatchObject({
      tenant: 'acme',
      endUser: 'ann@acme.example',
      isAuthenticated: true,
    });
    const refused = {
      'has ended': { ...good, exp: soon - 3_600 },
      'has not begun': { ...good, nbf: soon },
      'never ends': { ...good, exp: undefined },
      'is for somebody else': { ...good, aud: 'other' },
      'is from somebody else': { ...good, iss: 'https://other.example' },
      'names no tenant': { ...good, sub: undefined },
      'names no text': { ...good, sub: 4 },
    };
    for (const [why, claims] of Object.entries(refused)) {
      expect([why, await callerOf({ jwt }, bearer(await token(claims)))]).toEqual([why, 'WARMPATH_UNAUTHORIZED']);
    }
    const other = await token(good, 'HS256', new TextEncoder().encode('another secret of 32 characters!'));
    const [head, body, signature] = (await token(good)).split('.') as [string, string, string];
    const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${body}.`;
    const forged = `${head}.${Buffer.from(JSON.stringify({ ...good, sub: 'victim' })).toString('base64url')}.${signature}`;
    for (const bad of [other, none, forged, 'no token', 'a.b.c']) {
      expect(await callerOf({ jwt }, bearer(bad))).toBe('WARMPATH_UNAUTHORIZED');
    }
  });

  it('are verified with a public key by the one algorithm of that key', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-jwt-'));
    const pairs = {
      RS256: generateKeyPairSync('rsa', { modulusLength: 2_048 }),
      ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
      EdDSA: generateKeyPairSync('ed25519'),
    };
    for (const [alg, pair] of Object.entries(pairs)) {
      const publicKeyFile = join(folder, `${alg}.pem`);
      const pem = pair.publicKey.export({ type: 'spki', format: 'pem' });
      await writeFile(publicKeyFile, pem);
      const jwt = { publicKeyFile, tenantClaim: 'org' };
      const claims = { org: 'acme', exp: soon };
      const signed = await token(claims, alg, pair.privateKey);
      expect([alg, await callerOf({ jwt }, bearer(signed))]).toMatchObject([alg, { tenant: 'acme' }]);
      // The public key is known to all: it must not serve as a secret.
      const confused = await token(claims, 'HS256', Buffer.from(pem));
      expect(await callerOf({ jwt }, bearer(confused))).toBe('WARMPATH_UNAUTHORIZED');
    }
    const longer = await token({ sub: 'acme', exp: soon }, 'RS512', pairs.RS256.privateKey);
    const rsa = { publicKeyFile: join(folder, 'RS256.pem') };
    expect(await callerOf({ jwt: rsa }, bearer(longer))).toBe('WARMPATH_UNAUTHORIZED');
    const curve = generateKeyPairSync('ec', { namedCurve: 'secp384r1' });
    await writeFile(join(folder, 'other.pem'), curve.publicKey.export({ type: 'spki', format: 'pem' }));
    for (const file of ['other.pem', 'none.pem']) {
      await expect(stand(undefined, { server: { jwt: { publicKeyFile: join(folder, file) } } })).rejects.toMatchObject({
        code: 'WARMPATH_CONFIG_INVALID',
        path: 'server.jwt.publicKeyFile',
      });
    }
    await rm(folder, { recursive: true });
  });

  it('let in beside keys, over a socket, and do not reach the engine', async () => {
    const server = { jwt: { secret }, keys: [{ name: 'bob', key: BOB }] };
    const { engine, gateway } = await stand(undefined, { server });
    for (const given of [await token({ sub: 'acme', exp: soon }), BOB]) {
      expect((await send(gateway.url + PATH, chat(), { headers: bearer(given) })).status).toBe(200);
      expect(engine.last.headers.authorization).toBeUndefined();
    }
    const late = await send(gateway.url + PATH, chat(), { headers: bearer(await token({ sub: 'acme', exp: 1 })) });
    expect([late.status, errorOf(late).message]).toEqual([401, expect.stringContaining('ERR_JWT_EXPIRED')]);
    expect(engine.received).toHaveLength(2);
  });
});

describe('a key for the engine that everybody could use', () => {
  const problemsOf = (server: object, upstream: object = { apiKey: 'paid for' }) =>
    checkConfig(JSON.stringify({ server, upstream: { url: 'http://engine', ...upstream } }), {}).problems;

  it('keeps the gateway from starting on a host that is not loopback', async () => {
    for (const host of ['0.0.0.0', '::', '192.0.2.1', 'gateway.example', '127.evil.example']) {
      expect([host, problemsOf({ host })]).toMatchObject([
        host,
        [{ code: 'WARMPATH_CONFIG_INVALID', path: 'server.host' }],
      ]);
    }
    const started = stand(undefined, { server: { host: '0.0.0.0' }, upstream: { apiKey: 'paid for' } });
    await expect(started).rejects.toMatchObject({ code: 'WARMPATH_CONFIG_INVALID', path: 'server.host' });
  });

  it.each([
    { host: '127.0.0.1' },
    { host: '127.1.2.3' },
    { host: '::1' },
    { host: 'localhost' },
    { host: '0.0.0.0', open: true },
    { host: '0.0.0.0', keys: [{ name: 'bob', key: BOB }] },
    { host: '0.0.0.0', jwt: { secret: 'x'.repeat(32) } },
    { host: '0.0.0.0', trustedHeaders: { tenant: 'x-tenant' } },
  ])('does not with %j', (server) => {
    expect(problemsOf(server)).toEqual([]);
  });

  it('is not there without one', () => {
    expect(problemsOf({ host: '0.0.0.0' }, {})).toEqual([]);
  });
});
