import { describe, expect, it } from 'vitest';
import { answerJson, type ReceivedRequest } from './fake-engine.js';
import { type StandConfig, send, stand } from './harness.js';

const MESSAGE = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hello' }] };

/** A gateway, and what it asks an engine that answers empty requests to `/v1/messages` with a status. */
async function asking(probeStatus: (request: ReceivedRequest) => number, config: StandConfig = {}) {
  const clock = { now: 0 };
  const stood = await stand(
    (response, request) => {
      if (request.path === '/v1/messages' && request.body === '{}') response.writeHead(probeStatus(request)).end();
      else answerJson(response);
    },
    config,
    { now: () => clock.now },
  );
  const ask = async (headers: Record<string, string> = {}) => {
    await send(`${stood.gateway.url}/v1/messages`, MESSAGE, { headers });
    return stood.engine.last.path;
  };
  const probes = () => stood.engine.received.filter(({ body }) => body === '{}');
  return { ...stood, clock, ask, probes };
}

const [ALICE, BOB] = [{ 'x-api-key': 'alice' }, { 'x-api-key': 'bob' }];
const [TRANSLATED, NATIVE] = ['/v1/chat/completions', '/v1/messages'];

describe('whether the engine speaks an API', () => {
  it('is asked with nothing of the client but its key, where the engine gets that', async () => {
    const { ask, probes } = await asking(() => 400);
    const headers = {
      ...ALICE,
      'x-request-id': 'mine',
      cookie: 'a=b',
      'anthropic-beta': 'x',
      'x-forwarded-for': '1.2.3.4',
    };
    expect(await ask(headers)).toBe(NATIVE);
    const names = Object.keys(probes()[0]!.headers).toSorted();
    const own = ['connection', 'content-length', 'content-type', 'host', 'x-warmpath-via'];
    expect(names).toEqual([...own, 'x-api-key'].toSorted());
    expect(probes()[0]!.headers['x-api-key']).toBe('alice');
  });

  it('is asked with the key of the gateway alone, where there is one, and then once for all', async () => {
    const { ask, probes } = await asking(() => 404, { upstream: { apiKey: 'own' } });
    for (const headers of [ALICE, BOB, {}]) expect(await ask(headers)).toBe(TRANSLATED);
    expect(probes().map(({ headers }) => [headers.authorization, headers['x-api-key']])).toEqual([
      ['Bearer own', undefined],
    ]);
  });

  it('binds nobody but the tenant whose key found it out', async () => {
    const { ask, probes } = await asking(({ headers }) => (headers['x-api-key'] === 'alice' ? 404 : 400));
    expect(await ask(ALICE)).toBe(TRANSLATED);
    expect(await ask(BOB)).toBe(NATIVE);
    expect(await ask({})).toBe(NATIVE);
    expect([await ask(ALICE), await ask(BOB)]).toEqual([TRANSLATED, NATIVE]);
    expect(probes()).toHaveLength(3);
  });

  it.each([
    ...[404, 405, 501].map((status) => [status, TRANSLATED, 1] as const),
    ...[200, 400, 415, 422].map((status) => [status, NATIVE, 1] as const),
    ...[302, 401, 403, 407, 408, 429, 500, 502, 503, 504].map((status) => [status, NATIVE, 2] as const),
  ])('is remembered for ten minutes if the answer proves it: %i', async (status, way, asked) => {
    const { ask, probes, clock } = await asking(() => status);
    for (let i = 0; i < 2; i++) expect(await ask(ALICE)).toBe(way);
    expect(probes()).toHaveLength(asked);
    clock.now = 600_000;
    await ask(ALICE);
    expect(probes()).toHaveLength(asked + 1);
  });
});
