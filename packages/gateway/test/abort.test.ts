import { once } from 'node:events';
import type { ClientRequest } from 'node:http';
import { describe, expect, it } from 'vitest';
import { CHAT_STREAM, startStream } from './fake-engine.js';
import { chat, closing, gatewayAt, openRequest, type Stand, send, stand } from './harness.js';

const PATH = '/v1/chat/completions';

/** Starts a request whose client will leave: its error is expected. */
function leaving(url: string, body: object): ClientRequest {
  return openRequest(url, body).on('error', () => {});
}

/**
 * The gateway counts a client that left when its connection closes; asking for metrics takes a turn of the event loop.
 */
async function abortsCounted({ gateway }: Stand, count: number): Promise<void> {
  while (!(await send(`${gateway.url}/metrics`)).text.includes(`warmpath_client_aborts_total ${count}\n`));
}

describe("a client's abort reaches the engine", () => {
  it('5 of 5 while streaming', async () => {
    const both = await stand((response) => {
      startStream(response);
      response.write(CHAT_STREAM.slice(0, 300));
    });
    for (let i = 1; i <= 5; i++) {
      const request = leaving(both.gateway.url + PATH, chat(undefined, { stream: true }));
      const [response] = (await once(request, 'response')) as [import('node:http').IncomingMessage];
      response.on('error', () => {});
      await once(response, 'data');
      request.destroy();
      await both.engine.until('abort', i);
    }
    expect(both.engine.aborted).toBe(5);
    await abortsCounted(both, 5);
  });

  it('3 of 3 while it waits for a response in one piece', async () => {
    const both = await stand(() => {});
    for (let i = 1; i <= 3; i++) {
      const request = leaving(both.gateway.url + PATH, chat());
      await both.engine.until('request', i);
      request.destroy();
      await both.engine.until('abort', i);
    }
    expect(both.engine.aborted).toBe(3);
    await abortsCounted(both, 3);
  });

  it('in the middle of a body in one piece', async () => {
    const both = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1_000 });
      response.write('{"id":');
    });
    const request = leaving(both.gateway.url + PATH, chat());
    const [response] = (await once(request, 'response')) as [import('node:http').IncomingMessage];
    response.on('error', () => {});
    await once(response, 'data');
    request.destroy();
    await both.engine.until('abort', 1);
    await abortsCounted(both, 1);
  });

  it('while queued: the request never reaches the engine', async () => {
    const held: (() => void)[] = [];
    const both = await stand((response) => held.push(() => response.end('{}')), { upstream: { maxConcurrent: 1 } });
    const first = send(both.gateway.url + PATH, chat(undefined, { user: 'first' }));
    await both.engine.until('request', 1);
    const second = leaving(both.gateway.url + PATH, chat(undefined, { user: 'second' }));
    const third = send(both.gateway.url + PATH, chat(undefined, { user: 'third' }));
    await inFlight(both, 3);
    second.destroy();
    await abortsCounted(both, 1);
    held.shift()!();
    await first;
    await both.engine.until('request', 2);
    held.shift()!();
    expect((await third).status).toBe(200);
    expect(both.engine.received.map(({ body }) => /first|second|third/.exec(body)![0])).toEqual(['first', 'third']);
  });

  it('while passing through untouched', async () => {
    const { engine, gateway } = await stand(() => {});
    const request = leaving(`${gateway.url}/v1/embeddings`, { input: 'x' });
    await engine.until('request', 1);
    request.destroy();
    await engine.until('abort', 1);
  });

  it('between two tries to connect: there is no second one', async () => {
    const gateway = closing(await gatewayAt('http://127.0.0.1:1'));
    const request = leaving(gateway.url + PATH, chat());
    while (!(await send(`${gateway.url}/metrics`)).text.includes('warmpath_requests_in_flight 2'));
    request.destroy();
    while (!(await send(`${gateway.url}/metrics`)).text.includes('warmpath_client_aborts_total 1'));
    // Two more requests, one after the other: together they wait longer than any single wait before a second try.
    for (let i = 0; i < 2; i++) expect((await send(gateway.url + PATH, chat())).status).toBe(502);
    expect((await send(`${gateway.url}/metrics`)).text).toContain('warmpath_upstream_retries_total 2\n');
  });
});

async function inFlight({ gateway }: Stand, count: number): Promise<void> {
  // The request for the metrics is in flight itself.
  while (!(await send(`${gateway.url}/metrics`)).text.includes(`warmpath_requests_in_flight ${count + 1}\n`));
}
