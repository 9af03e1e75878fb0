import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import { withOwnSpeculation } from '../src/render/speculation-ids.js';
import { chat, closing, errorOf, gatewayAt, send, stand } from './harness.js';

const CHAT = '/v1/chat/completions';

const idIn = (body: string | Buffer) =>
  (JSON.parse(body.toString()) as { speculation: { id: unknown } }).speculation.id;
const by = (name: string) => ({ headers: { authorization: `Bearer ${name}` } });

describe('the id of a speculation in a body', () => {
  const own = (body: string, tenant: string) => withOwnSpeculation(Buffer.from(body), tenant).toString();

  it('is another for every two tenants and ids, and the same for the same', () => {
    const name = fc.tuple(fc.string({ maxLength: 4 }), fc.string({ maxLength: 4 }));
    fc.assert(
      fc.property(name, name, ([tenant, id], [otherTenant, otherId]) => {
        const sent = idIn(own(JSON.stringify({ speculation: { id } }), tenant));
        const other = idIn(own(JSON.stringify({ speculation: { id: otherId } }), otherTenant));
        expect(sent === other).toBe(tenant === otherTenant && id === otherId);
      }),
      { seed: 11 },
    );
  });

  it("cannot be made to look like another tenant's", () => {
    const theirs = String(idIn(own('{"speculation":{"id":"s"}}', 'a')));
    const forged = own(JSON.stringify({ speculation: { id: theirs } }), 'b');
    expect(idIn(forged)).not.toBe(theirs);
  });

  it.each([
    ['with letters as escapes', '{"sp\\u0065culation":{"id":"s"}}'],
    ['with letters of the id as escapes', '{"speculation":{"\\u0069d":"s"}}'],
    ['behind another of its name', '{"speculation":{"id":"x"},"speculation":{"id":"x","id":"s"}}'],
  ])('is found %s', (_, body) => {
    expect(idIn(own(body, 'a'))).toBe(idIn(own('{"speculation":{"id":"s"}}', 'a')));
  });

  it('changes nothing else', () => {
    const body = '{ "a" : 1.0, "speculation" : { "generation":1e0, "id" : "s" } , "b":[ ] }';
    expect(own(body, 'a')).toBe(body.replace('"s"', JSON.stringify(idIn(own(body, 'a')))));
    for (const plain of ['{}', '{"speculation":null}', '{"speculation":{"id":3}}', '{"x":"\\"speculation\\""}', '[]'])
      expect(own(plain, 'a')).toBe(plain);
  });

  it('is refused where the body cannot be read', () => {
    expect(() => own('{"speculation":{"id":"s"}', 'a')).toThrow(
      expect.objectContaining({ code: 'WARMPATH_INVALID_JSON' }),
    );
  });
});

describe('two clients with keys of their own, by default', () => {
  it('have ids of their own: in prompts of every kind, confirmed and cancelled', async () => {
    const { gateway, engine } = await stand();
    const speculation = { id: 's' };
    const plain = { model: 'm', messages: [{ role: 'user', content: 'x' }], speculation };
    const sent: unknown[][] = [];
    for (const name of ['a', 'b']) {
      const before = engine.received.length;
      await send(gateway.url + CHAT, chat(undefined, { speculation }), by(name));
      await send(gateway.url + CHAT, chat(undefined, { speculation, warmpath: { bypass: true } }), by(name));
      await send(gateway.url + CHAT, plain, by(name));
      await send(`${gateway.url}/v1/completions`, { model: 'm', prompt: 'x', speculation }, by(name));
      sent.push(engine.received.slice(before).map(({ body }) => idIn(body)));
      for (const action of ['confirm', 'cancel']) {
        await send(`${gateway.url}/v1/speculations/s/${action}`, '', by(name));
        expect(engine.last.path).toBe(`/v1/speculations/${String(sent.at(-1)![0])}/${action}`);
      }
    }
    const [a, b] = sent;
    expect(new Set(a).size).toBe(1);
    expect(new Set(b).size).toBe(1);
    expect(a![0]).toMatch(/^[\w-]{22}\.s$/);
    expect(b![0]).not.toBe(a![0]);
  });

  it('cannot go round that by another spelling of the path, nor by a warm-up', async () => {
    const { gateway, engine } = await stand();
    for (const path of ['/v1//speculations/s/cancel', '/v1/speculations/s/cancel/', '/v1/Speculations/s/cancel']) {
      expect((await send(gateway.url + path, '', by('a'))).status, path).toBe(404);
    }
    expect(engine.received).toEqual([]);
    const messages = [{ role: 'system', content: 'x' }];
    await send(`${gateway.url}/v1/warmup`, { model: 'm', messages, speculation: { id: 's' } }, by('a'));
    await engine.until('request', 1);
    expect(engine.last.body).not.toContain('speculation');
  });
});

describe('two clients of a gateway with one key for the engine', () => {
  let engine: EngineProcess;
  beforeAll(async () => {
    engine = await spawnEngine({ port: 0, model: await modelPath('random:1m'), threads: 1 });
  });
  afterAll(async () => {
    await engine.stop();
  });

  it('neither end nor take over what the other has begun under the same id', async () => {
    const config = { upstream: { apiKey: 'of the gateway' }, server: { open: true } };
    const gateway = closing(await gatewayAt(engine.url, config));
    const id = 'x'.repeat(64);
    const ask = (name: string) =>
      send(
        gateway.url + CHAT,
        { messages: [{ role: 'user', content: name }], max_tokens: 4, speculation: { id } },
        by(name),
      );
    const act = (action: string, name: string) => send(`${gateway.url}/v1/speculations/${id}/${action}`, '', by(name));
    /** Once the engine has the speculation. */
    const known = async (action: string, name: string) => {
      let reply = await act(action, name);
      while (reply.status === 404) reply = await act(action, name);
      return reply;
    };
    const [mine, theirs] = [ask('a'), ask('b')];
    expect(errorOf(await act('cancel', 'c')).code).toBe('WARMPATH_SPECULATION_UNKNOWN');
    const cancelled = await known('cancel', 'b');
    expect(JSON.parse(cancelled.text)).toMatchObject({ id, state: 'cancelled' });
    expect(errorOf(await theirs).code).toBe('WARMPATH_SPECULATION_ENDED');
    const confirmed = await known('confirm', 'a');
    expect(JSON.parse(confirmed.text)).toMatchObject({ id, state: 'confirmed' });
    expect((await mine).status).toBe(200);
  });
});
