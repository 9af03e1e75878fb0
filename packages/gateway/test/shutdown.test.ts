import { EventEmitter, once } from 'node:events';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { CHAT_RESPONSE, CHAT_STREAM, startStream } from './fake-engine.js';
import { chat, openRequest, send, stand } from './harness.js';

const PATH = '/v1/chat/completions';

describe('close', () => {
  it('lets answers in flight finish, takes no new connection, and keeps none open', async () => {
    let finish = () => {};
    const { engine, gateway } = await stand((response) => {
      startStream(response);
      response.write(CHAT_STREAM.slice(0, 200));
      finish = () => response.end(CHAT_STREAM.slice(200));
    });
    const agent = new Agent({ keepAlive: true });
    const answer = send(gateway.url + PATH, chat(undefined, { stream: true }), { agent });
    await engine.until('request', 1);
    const closed = gateway.close();
    expect(gateway.close()).toBe(closed);
    await expect(send(`${gateway.url}/healthz`)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    finish();
    expect(await answer).toMatchObject({ text: CHAT_STREAM, broken: false });
    await closed;
    agent.destroy();
  });

  it('refuses a further request on a connection that is still open', async () => {
    const clock = new EventEmitter();
    let answer = () => {};
    const { engine, gateway } = await stand(
      (response) => {
        answer = () => response.writeHead(200, { 'content-type': 'application/json' }).end(CHAT_RESPONSE);
      },
      {},
      // Every request asks for the time when it comes: so the test knows that the second one is there.
      { now: () => Number(clock.emit('asked')) },
    );
    const { hostname, port } = new URL(gateway.url);
    const socket = connect(Number(port), hostname).setEncoding('utf8');
    const text: string[] = [];
    socket.on('data', (part: string) => text.push(part));
    const request = `POST ${PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}`;
    socket.write(request);
    await engine.until('request', 1);
    const closed = gateway.close();
    const asked = once(clock, 'asked');
    socket.write(request);
    await asked;
    answer();
    await once(socket, 'close');
    await closed;
    expect(text.join('')).toContain(CHAT_RESPONSE);
    expect(text.join('')).toContain('WARMPATH_SHUTTING_DOWN');
    expect(engine.received).toHaveLength(1);
  });

  it('cuts what does not finish in time', async () => {
    const { engine, gateway } = await stand(
      (response) => {
        startStream(response);
        response.write(CHAT_STREAM.slice(0, 200));
      },
      { server: { drainMs: 50 } },
    );
    const request = openRequest(gateway.url + PATH, chat(undefined, { stream: true }));
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    response.on('error', () => {}).resume();
    const broken = new Promise((resolve) => response.on('close', resolve));
    await gateway.close();
    await broken;
    expect(response.complete).toBe(false);
    await engine.until('abort', 1);
  });

  it('does not wait for idle connections', async () => {
    const { gateway } = await stand();
    const agent = new Agent({ keepAlive: true });
    const request = httpRequest(`${gateway.url}/healthz`, { agent }).end();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    response.resume();
    await once(response, 'end');
    await gateway.close();
    agent.destroy();
  });
});
