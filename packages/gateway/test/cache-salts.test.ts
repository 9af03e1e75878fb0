import { describe, expect, it } from 'vitest';
import { CacheSalts } from '../src/prompt/render.js';
import { chat, send, stand } from './harness.js';

const KEY = 'a secret of the gateways';
const COMPLETIONS = '/v1/chat/completions';

const saltOf = (body: string | Buffer): unknown => (JSON.parse(body.toString()) as { cache_salt?: unknown }).cache_salt;

describe('the salt of a body', () => {
  const salts = new CacheSalts(KEY);
  const salted = (body: string, tenant: string) => salts.salted(Buffer.from(body), tenant).toString();

  it('is the same for a tenant, and another for every other, key and salt of the client', () => {
    const bodies = [
      salted('{}', 'a'),
      salted('{}', 'b'),
      salted('{"cache_salt":"mine"}', 'a'),
      salted('{"cache_salt":"mine"}', 'b'),
      salted('{"cache_salt":"yours"}', 'a'),
      // A line break does not stand between a tenant and a client's salt, and halves of surrogate pairs differ.
      salted('{}', 'a\n"mine"'),
      salted('{}', 'a\ud800'),
      salted('{}', 'a\ud801'),
      new CacheSalts(`${KEY}!`).salted(Buffer.from('{}'), 'a'),
    ];
    const all = bodies.map(saltOf);
    expect(new Set(all).size).toBe(all.length);
    expect(all.every((salt) => /^[\w-]{43}$/.test(String(salt)))).toBe(true);
    expect(salted('{"cache_salt":null}', 'a')).toContain(String(all[0]));
    expect(salted('{"x":1}', 'a')).toContain(String(all[0]));
  });

  it('changes nothing else of the body', () => {
    const body = '{ "a" : 1.0, "cache_salt":"mine" , "b":[ ] }';
    const salt = JSON.stringify(saltOf(salted(body, 'a')));
    expect(salted(body, 'a')).toBe(`{ "a" : 1.0, "cache_salt":${salt} , "b":[ ] }`);
  });

  it.each(['', 'no json', '[]', 'null', '"text"'])('cannot be put into %j, which is refused', (body) => {
    expect(() => salted(body, 'a')).toThrow('JSON');
  });
});

describe('a gateway with a key for salts', () => {
  const asked = (name: string) => ({ headers: { authorization: `Bearer ${name}` } });

  it('salts every prompt by its tenant: arranged, plain, warmed up', async () => {
    const { gateway, engine } = await stand(undefined, { upstream: { cacheSaltKey: KEY } });
    await send(gateway.url + COMPLETIONS, chat(), asked('a'));
    await send(gateway.url + COMPLETIONS, { model: 'm', messages: [{ role: 'user', content: 'x' }] }, asked('a'));
    await send(`${gateway.url}/v1/completions`, { model: 'm', prompt: 'x' }, asked('a'));
    await send(`${gateway.url}/v1/warmup`, { model: 'm', messages: [{ role: 'system', content: 'x' }] }, asked('a'));
    await engine.until('request', 4);
    await send(gateway.url + COMPLETIONS, chat(), asked('b'));
    await send(gateway.url + COMPLETIONS, chat());
    const [first, ...others] = engine.received.map(({ body }) => saltOf(body));
    expect(first).toEqual(expect.any(String));
    expect(others.slice(0, 3)).toEqual([first, first, first]);
    expect(new Set([first, ...others.slice(3)]).size).toBe(3);
  });

  it("mixes a client's own salt into the tenant's", async () => {
    const { gateway, engine } = await stand(undefined, { upstream: { cacheSaltKey: KEY } });
    for (const name of ['a', 'b', 'a']) {
      await send(gateway.url + COMPLETIONS, chat(undefined, { cache_salt: 'mine' }), asked(name));
    }
    const [a, b, again] = engine.received.map(({ body }) => saltOf(body));
    expect(again).toBe(a);
    expect(new Set([a, b, 'mine']).size).toBe(3);
  });

  it('sends none unless it has a key, and then leaves a client its own', async () => {
    const { gateway, engine } = await stand();
    await send(gateway.url + COMPLETIONS, chat(), asked('a'));
    await send(gateway.url + COMPLETIONS, chat(undefined, { cache_salt: 'mine' }), asked('a'));
    expect(engine.received.map(({ body }) => saltOf(body))).toEqual([undefined, 'mine']);
  });
});
