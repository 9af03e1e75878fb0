import { EventEmitter, once } from 'node:events';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { describe, expect, it, vi } from 'vitest';
import { CHAT_RESPONSE, CHAT_STREAM, startStream } from './fake-engine.js';
import { COUNTED_STREAM, chat, errorOf, openRequest, send, stand } from './harness.js';

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
    const answer = send(gateway.url + PATH, chat(undefined, COUNTED_STREAM), { agent });
    await engine.until('request', 1);
    const closed = gateway.close();
    expect(gateway.close()).toBe(closed);
    await expect(send(`${gateway.url}/healthz`)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    finish();
    expect(await answer).toMatchObject({ text: CHAT_STREAM, broken: false });
    await closed;
    agent.destroy();
  });

  it('is not ready before it refuses', async () => {
    let finish = () => {};
    const drainDelayMs = 3_000;
    const { engine, gateway } = await stand(undefined, { server: { drainDelayMs } });
    const agent = new Agent({ keepAlive: true });
    const ask = (path: string, body?: object) => send(gateway.url + path, body, { agent });
    const before = await ask('/readyz');
    expect([before.status, before.headers.connection]).toEqual([200, 'keep-alive']);
    let delayIsOver = () => {};
    const timer = vi.spyOn(globalThis, 'setTimeout').mockImplementationOnce(((over: () => void, ms: number) => {
      expect(ms).toBe(drainDelayMs);
      delayIsOver = over;
    }) as never);
    const closed = gateway.close();
    timer.mockRestore();
    // The first one goes through the connection that was open before, the others through new ones.
    const during = [
      await ask(PATH, chat()),
      await ask('/readyz'),
      await ask('/healthz'),
      await ask(PATH, chat(undefined, { stream: true })),
      await ask('/v1/models'),
      await ask(PATH, chat([{ id: 3 }])),
    ];
    expect(during.map(({ status, headers }) => [status, headers.connection])).toEqual(
      [200, 503, 200, 200, 200, 400].map((status) => [status, 'close']),
    );
    expect(errorOf(during[1]!).code).toBe('WARMPATH_SHUTTING_DOWN');
    const reloaded = gateway.reload({ upstream: { url: engine.url } });
    await expect(reloaded).rejects.toMatchObject({ code: 'WARMPATH_SHUTTING_DOWN' });
    // What began in this time is finished like all else, and then nobody listens.
    engine.answer = (response) => {
      startStream(response).write(CHAT_STREAM.slice(0, 200));
      finish = () => response.end(CHAT_STREAM.slice(200));
    };
    const count = engine.received.length;
    const late = ask(PATH, chat(undefined, COUNTED_STREAM));
    await engine.until('request', count + 1);
    delayIsOver();
    const refused = () =>
      send(`${gateway.url}/healthz`).then(
        () => false,
        ({ code }: NodeJS.ErrnoException) => code === 'ECONNREFUSED',
      );
    while (!(await refused()));
    finish();
    expect(await late).toMatchObject({ status: 200, text: CHAT_STREAM, broken: false });
    await closed;
    agent.destroy();
  });

  it('refuses a further request on a connection that is still open', async () => {
    const clock = new EventEmitter();
    let answer = () => {};
    const { engine, gateway } = await stand(
      (response) => {
        // The head is on its way before the shutdown begins: it does not say that the connection ends.
        startStream(response).write(CHAT_STREAM.slice(0, 200));
        answer = () => response.end(CHAT_STREAM.slice(200));
      },
      {},
      // Every request asks for the time when it comes: so the test knows that the second one is there.
      { now: () => Number(clock.emit('asked')) },
    );
    const { hostname, port } = new URL(gateway.url);
    const socket = connect(Number(port), hostname).setEncoding('utf8');
    const text: string[] = [];
    socket.on('data', (part: string) => text.push(part));
    const request = `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}`;
    socket.write(request);
    await once(socket, 'data');
    const closed = gateway.close();
    const asked = once(clock, 'asked');
    socket.write(request);
    await asked;
    answer();
    await once(socket, 'close');
    await closed;
    expect(text.join('')).toContain('data: [DONE]');
    expect(text.join('')).toContain('WARMPATH_SHUTTING_DOWN');
    expect(engine.received).toHaveLength(1);
  });

  it('tells the clients of answers under way that their connection ends, whenever those answers began', async () => {
    const answers: (() => void)[] = [];
    const { engine, gateway } = await stand(
      (response, { path }) => {
        answers.push(() => {
          if (path === '/v1/models') response.writeHead(503).end();
          else response.writeHead(200, { 'content-type': 'application/json' }).end(CHAT_RESPONSE);
        });
      },
      {},
      { apiRoute: 'translate' },
    );
    const agent = new Agent({ keepAlive: true });
    const message = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hello' }] };
    const late = [
      send(gateway.url + PATH, chat(), { agent }),
      send(gateway.url + PATH, '{}', { agent }),
      send(`${gateway.url}/v1/messages`, message, { agent }),
      // Not relayed: the gateway's own answer.
      send(`${gateway.url}/readyz`, undefined, { agent }),
    ];
    await engine.until('request', late.length);
    const closed = gateway.close();
    for (const answer of answers) answer();
    const replies = await Promise.all(late);
    expect(replies.map(({ status, broken }) => [status, broken])).toEqual([
      [200, false],
      [200, false],
      [200, false],
      [503, false],
    ]);
    expect(replies.map(({ headers }) => headers.connection)).toEqual(late.map(() => 'close'));
    await closed;
    // No connection is left that the next request would be lost on.
    expect(Object.values(agent.freeSockets).flat()).toEqual([]);
    await expect(send(gateway.url + PATH, chat(), { agent })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    agent.destroy();
  });

  it('tells it with errors, too', async () => {
    let lose = () => {};
    const { engine, gateway } = await stand((response) => {
      lose = () => response.destroy();
    });
    const agent = new Agent({ keepAlive: true });
    const answer = send(gateway.url + PATH, chat(), { agent });
    await engine.until('request', 1);
    const closed = gateway.close();
    lose();
    expect(await answer).toMatchObject({ status: 502, headers: { connection: 'close' }, broken: false });
    await closed;
    agent.destroy();
  });

  it('cuts what does not finish in time', async () => {
    const { engine, gateway } = await stand(
      (response) => {
        startStream(response);
        response.write(CHAT_STREAM.slice(0, 200));
      },
      {},
      { drainMs: 50 },
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
