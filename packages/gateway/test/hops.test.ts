import { describe, expect, it } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import { startGateway } from '../src/start-gateway.js';
import { chat, closing, errorOf, gatewayAt, send, stand } from './harness.js';

const PATH = '/v1/chat/completions';

describe('a gateway whose engine is a gateway', () => {
  it('refuses what it sent itself', async () => {
    const port = await freePort();
    const gateway = closing(await gatewayAt(`http://127.0.0.1:${port}`, { server: { port } }));
    const reply = await send(gateway.url + PATH, chat());
    expect([reply.status, errorOf(reply).code]).toEqual([508, 'WARMPATH_LOOP']);
    expect(errorOf(reply).message).toContain('`upstream.url`');
    // Refused at the second arrival, before anything is spent on it.
    expect((await send(`${gateway.url}/metrics`)).text).toMatch(/route="\/v1\/chat\/completions",status="508"\} 2\n/);
  });

  it('refuses what comes back through another one, keys or not', async () => {
    const port = await freePort();
    const second = closing(await gatewayAt(`http://127.0.0.1:${port}`));
    const keys = [{ name: 'a', key: 'a-key-of-a-client' }];
    const first = closing(await gatewayAt(second.url, { server: { port, keys } }));
    const reply = await send(first.url + PATH, chat(), { headers: { authorization: 'Bearer a-key-of-a-client' } });
    expect([reply.status, errorOf(reply).code]).toEqual([508, 'WARMPATH_LOOP']);
  });

  it('serves through a few, and refuses more than eight', async () => {
    const { engine, gateway } = await stand();
    const behind = closing(await gatewayAt(gateway.url));
    expect((await send(behind.url + PATH, chat())).status).toBe(200);
    expect(engine.last.headers['x-warmpath-via']).toMatch(/^[0-9a-f]{16}, [0-9a-f]{16}$/);
    const hops = Array.from({ length: 9 }, (_, i) => `hop${i}`);
    const many = (count: number) =>
      send(gateway.url + PATH, chat(), { headers: { 'x-warmpath-via': hops.slice(0, count).join(', ') } });
    expect([(await many(8)).status, (await many(9)).status]).toEqual([200, 508]);
  });

  it('is told at the start where it leads', async () => {
    const port = await freePort();
    const states: string[] = [];
    await new Promise<void>((resolve) => {
      void startGateway(
        { server: { port }, upstream: { url: `http://127.0.0.1:${port}` }, log: { level: 'silent' } },
        {
          onEngine: ({ state }) => {
            states.push(state);
            resolve();
          },
        },
      ).then(closing);
    });
    expect(states).toEqual(['loop']);
  });
});
