import { describe, expect, it } from 'vitest';
import { CHAT_RESPONSE } from './fake-engine.js';
import { chat, errorOf, type StandConfig, send, stand } from './harness.js';

const PATH = '/v1/chat/completions';
const OPERATOR = { authorization: 'Bearer the-key-of-the-operator' };
const operatorKey = { key: 'the-key-of-the-operator' };
const ALICE = { authorization: 'Bearer alice' };
const PUBLIC = { host: '0.0.0.0' };

type Server = NonNullable<StandConfig['server']>;

/** Status of a request, and the error's code if it is one. */
async function asking(server: Server) {
  const { engine, gateway } = await stand(undefined, { server });
  const base = `http://127.0.0.1:${new URL(gateway.url).port}`;
  const ask = async (path: string, headers: Record<string, string> = {}, method = 'GET') => {
    const reply = await send(base + path, undefined, { headers, method });
    return reply.status === 200 ? 200 : errorOf(reply).code;
  };
  const prompt = (headers: Record<string, string>) => send(base + PATH, chat(), { headers });
  return { engine, base, ask, prompt };
}

describe('/metrics', () => {
  it('are served on a loopback listener, and nowhere else without a key or `server.open`', async () => {
    expect(await (await asking({})).ask('/metrics')).toBe(200);
    expect(await (await asking(PUBLIC)).ask('/metrics')).toBe('WARMPATH_FORBIDDEN');
    expect(await (await asking({ ...PUBLIC, open: true })).ask('/metrics')).toBe(200);
  });

  it.each(<Server[]>[
    { keys: [{ name: 'alice', key: 'alice-has-this-key' }] },
    { keys: [{ name: 'alice', key: 'alice-has-this-key' }], open: true },
    { jwt: { secret: 'a secret of 32 characters or more' } },
    { trustedHeaders: { tenant: 'x-tenant' } },
  ])('are closed, as the dashboard is, where callers are known and the operator has no key: %j', async (server) => {
    const { ask } = await asking(server);
    const headers = { authorization: 'Bearer alice-has-this-key', 'x-tenant': 'alice' };
    for (const path of ['/metrics', '/ui/tree', '/ui/events', '/ui/requests/x']) {
      expect([path, await ask(path)]).toEqual([path, 'WARMPATH_FORBIDDEN']);
      expect([path, await ask(path, headers)]).toEqual([path, 'WARMPATH_FORBIDDEN']);
    }
    expect(await ask('/ui')).toBe(200);
  });

  it.each([{}, PUBLIC])('need the key of the operator where one is configured: %j', async (where) => {
    const keys = [{ name: 'alice', key: 'alice-has-this-key' }];
    const { ask } = await asking({ ...where, operatorKey, keys });
    expect(await ask('/metrics', OPERATOR)).toBe(200);
    expect(await ask('/metrics')).toBe('WARMPATH_UNAUTHORIZED');
    expect(await ask('/metrics', { authorization: 'Bearer alice-has-this-key' })).toBe('WARMPATH_UNAUTHORIZED');
    expect(await ask('/healthz')).toBe(200);
  });
});

describe('the key of the operator', () => {
  it('sends no prompts, and never reaches the engine', async () => {
    for (const keys of [undefined, [{ name: 'alice', key: 'alice-has-this-key' }]]) {
      const { engine, prompt } = await asking({ operatorKey, ...(keys && { keys }) });
      const reply = await prompt(OPERATOR);
      expect([reply.status, errorOf(reply).code]).toEqual([403, 'WARMPATH_FORBIDDEN']);
      expect(engine.received).toHaveLength(0);
    }
  });

  it('reads the record of any request; a tenant reads its own, and a client without a key none', async () => {
    const { ask, prompt } = await asking({ operatorKey });
    const idOf = async (headers: Record<string, string>) => String((await prompt(headers)).headers['x-request-id']);
    const [alices, nobodys] = [await idOf(ALICE), await idOf({})];
    for (const id of [alices, nobodys]) expect(await ask(`/v1/requests/${id}`, OPERATOR)).toBe(200);
    expect(await ask('/v1/requests/unknown', OPERATOR)).toBe('WARMPATH_NOT_FOUND');
    expect(await ask(`/v1/requests/${alices}`, ALICE)).toBe(200);
    expect(await ask(`/v1/requests/${nobodys}`, ALICE)).toBe('WARMPATH_NOT_FOUND');
    expect(await ask(`/v1/requests/${nobodys}`)).toBe('WARMPATH_FORBIDDEN');
  });
});

describe('a client without a key', () => {
  it('reads records where only this machine, or everybody, is meant to ask', async () => {
    for (const [server, expected] of <[Server, unknown][]>[
      [{}, 200],
      [PUBLIC, 'WARMPATH_FORBIDDEN'],
      [{ ...PUBLIC, open: true }, 200],
    ]) {
      const { ask, prompt } = await asking(server);
      const id = (await prompt({})).headers['x-request-id'];
      expect([server, await ask(`/v1/requests/${id}`)]).toEqual([server, expected]);
    }
  });

  it('forgets conversations on a loopback listener only', async () => {
    for (const [server, expected] of <[Server, unknown][]>[
      [{}, 200],
      [PUBLIC, 'WARMPATH_FORBIDDEN'],
      [{ ...PUBLIC, open: true }, 'WARMPATH_FORBIDDEN'],
    ]) {
      const { ask } = await asking(server);
      expect([server, await ask('/v1/sessions/s', {}, 'DELETE')]).toEqual([server, expected]);
      expect(await ask('/v1/sessions/s', ALICE, 'DELETE')).toBe(200);
    }
  });
});

describe('pages in a browser', () => {
  const APP = 'https://app.example';
  const allowOrigin = 'access-control-allow-origin';
  const engine = (response: import('node:http').ServerResponse) =>
    response
      .writeHead(200, {
        'content-type': 'application/json',
        [allowOrigin]: '',
        'access-control-allow-credentials': 'true',
      })
      .end(CHAT_RESPONSE);
  const preflight = (url: string, origin: string) =>
    send(url + PATH, undefined, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization, content-type',
      },
    });

  it('may call the gateway from the origins that are configured, and from no other', async () => {
    const server = { cors: [APP], keys: [{ name: 'alice', key: 'alice-has-this-key' }] };
    const { engine: behind, gateway } = await stand(engine, { server });
    const allowed = await preflight(gateway.url, APP);
    expect([allowed.status, allowed.headers]).toMatchObject([
      204,
      {
        [allowOrigin]: APP,
        'access-control-allow-methods': 'GET, POST, DELETE',
        'access-control-allow-headers': 'authorization, content-type',
        vary: 'origin',
      },
    ]);
    const other = await preflight(gateway.url, 'https://evil.example');
    expect([other.status, other.headers[allowOrigin]]).toEqual([204, undefined]);
    expect(behind.received).toHaveLength(0);
    const asked = async (origin: string, key: string) => {
      const headers = { origin, authorization: `Bearer ${key}` };
      const reply = await send(gateway.url + PATH, chat(), { headers });
      return [reply.status, reply.headers[allowOrigin], reply.headers['access-control-allow-credentials']];
    };
    expect(await asked(APP, 'alice-has-this-key')).toEqual([200, APP, undefined]);
    expect(await asked('https://evil.example', 'alice-has-this-key')).toEqual([200, undefined, undefined]);
    // A page may read why it was refused.
    expect(await asked(APP, 'wrong')).toEqual([401, APP, undefined]);
  });

  it('may from every origin with `*`', async () => {
    const { gateway } = await stand(engine, { server: { cors: ['*'] } });
    expect((await preflight(gateway.url, APP)).headers[allowOrigin]).toBe(APP);
  });

  it('may not where nothing is configured, whatever the engine allows', async () => {
    const keys = [{ name: 'alice', key: 'alice-has-this-key' }];
    for (const server of [{}, { keys }]) {
      const { engine: behind, gateway } = await stand(engine, { server });
      const { headers } = await preflight(gateway.url, APP);
      expect(Object.keys(headers).filter((name) => name.startsWith('access-control-'))).toEqual([]);
      expect(behind.received).toHaveLength(0);
      const authorization = 'Bearer alice-has-this-key';
      const reply = await send(gateway.url + PATH, chat(), { headers: { authorization } });
      expect(reply.status).toBe(200);
      expect(Object.keys(reply.headers).filter((name) => name.startsWith('access-control-'))).toEqual([]);
    }
  });
});
