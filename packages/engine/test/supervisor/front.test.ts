import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  request as sendRequest,
} from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { WarmpathError } from '@warmpath/core';
import { Pool } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { Front } from '../../src/supervisor/front.js';
import type { Worker } from '../../src/supervisor/worker.js';

type WorkerHandler = (request: IncomingMessage, response: ServerResponse) => void;

/** What the front reads of a supervisor. */
interface FakeSupervisor {
  worker: Worker | undefined;
  ready(): Promise<Worker>;
  restarts: number;
}

const EVENT_STREAM = { 'content-type': 'text/event-stream; charset=utf-8' };
const FIRST = 'data: {"one"}\n\n';
const LAST = 'data: {"two"}\n\ndata: [DONE]\n\n';

describe('the front', () => {
  const closers: (() => Promise<unknown> | unknown)[] = [];
  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) {
      await close();
    }
  });

  async function listen(server: Server): Promise<string> {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    closers.push(() => {
      server.closeAllConnections();
      server.close();
    });
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  /** A worker that answers as the handler says, on a real socket. */
  async function worker(handler: WorkerHandler): Promise<Worker> {
    const pool = new Pool(await listen(createServer(handler)), { connections: null });
    closers.push(() => pool.destroy());
    const exited = Promise.resolve(new WarmpathError('WARMPATH_ENGINE_FAILED'));
    return { pool, exited, model: { bodyLimitBytes: 1000, name: 'a "model"' } } as Worker;
  }

  async function front(
    supervisor: FakeSupervisor,
    heldLimit = 2,
    watch: (server: Server) => void = () => undefined,
    key?: string,
  ): Promise<string> {
    const { server } = new Front({
      access: { host: '127.0.0.1', key },
      supervisor,
      bodyLimitBytes: 1000,
      heldLimit,
    });
    watch(server);
    return listen(server);
  }

  const running = (worker: Worker): FakeSupervisor => ({ worker, ready: async () => worker, restarts: 0 });
  const codeOf = async (response: Response): Promise<string> =>
    ((await response.json()) as { error: { code: string } }).error.code;

  it('answers those that have its key, where it has one, and everybody a bare health check', async () => {
    let received = 0;
    const answering = await worker((_, response) => {
      received++;
      response.end('from the worker');
    });
    const supervisor = running(answering);
    const url = await front(supervisor, 2, undefined, 'the key');
    const given = [undefined, 'Bearer another', 'the key', 'Bearer the keys'];
    for (const path of ['/v1/chat/completions', '/kv/flush', '/kv', '/metrics', '/v1/models', '/health?a', '/none']) {
      for (const authorization of given) {
        const method = path.startsWith('/v1/chat') || path.endsWith('flush') ? 'POST' : 'GET';
        const response = await fetch(url + path, { method, headers: authorization ? { authorization } : {} });
        expect([path, response.status, await codeOf(response)]).toEqual([path, 401, 'WARMPATH_UNAUTHORIZED']);
      }
    }
    const health = await fetch(`${url}/health`);
    expect([health.status, await health.text()]).toEqual([200, '{"status":"ok"}']);
    expect(received).toBe(0);
    const headers = { authorization: 'Bearer the key' };
    for (const path of ['/v1/models', '/health', '/kv']) {
      expect(await (await fetch(url + path, { headers })).text()).toBe('from the worker');
    }
    Object.assign(supervisor, { worker: undefined });
    expect((await fetch(`${url}/health`)).status).toBe(503);
  });

  it.each([
    [{ host: 'attacker.example' }, 'WARMPATH_HOST_NOT_ALLOWED'],
    [{ host: 'attacker.example:8080' }, 'WARMPATH_HOST_NOT_ALLOWED'],
    [{ host: '127.0.0.1.attacker.example' }, 'WARMPATH_HOST_NOT_ALLOWED'],
    [{ host: '127.0.0.1@attacker.example' }, 'WARMPATH_HOST_NOT_ALLOWED'],
    [{ host: '127.0.0.1', origin: 'https://attacker.example' }, 'WARMPATH_ORIGIN_NOT_ALLOWED'],
    [{ host: '127.0.0.1', origin: 'null' }, 'WARMPATH_ORIGIN_NOT_ALLOWED'],
    [{ host: '127.0.0.1:1', origin: 'http://127.0.0.1:2' }, 'WARMPATH_ORIGIN_NOT_ALLOWED'],
    [{ host: '127.0.0.1', 'sec-fetch-site': 'cross-site' }, 'WARMPATH_ORIGIN_NOT_ALLOWED'],
    [{ host: '127.0.0.1', 'sec-fetch-site': 'same-site' }, 'WARMPATH_ORIGIN_NOT_ALLOWED'],
    [{ host: 'localhost:8080' }, undefined],
    [{ host: '[::1]:8080' }, undefined],
    [{ host: 'LOCALHOST.' }, undefined],
    [{ host: '127.0.0.1:1', origin: 'http://127.0.0.1:1' }, undefined],
    [{ host: '127.0.0.1', 'sec-fetch-site': 'same-origin' }, undefined],
    [{ host: '127.0.0.1', 'sec-fetch-site': 'none' }, undefined],
  ])('without a key, answers no web page of another name or origin (%j)', async (headers, code) => {
    let received = 0;
    const answering = await worker((_, response) => {
      received++;
      response.end('from the worker');
    });
    const url = await front(running(answering));
    const { hostname, port } = new URL(url);
    const outgoing = sendRequest({ hostname, port, path: '/kv/flush', method: 'POST', headers });
    outgoing.end();
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
    const said = await text(response);
    expect(said).toContain(code ?? 'from the worker');
    expect(received).toBe(code === undefined ? 1 : 0);
  });

  it('passes request and answer on as they are', async () => {
    const url = await front(
      running(
        await worker((request, response) => {
          const parts: Buffer[] = [];
          request.on('data', (part: Buffer) => parts.push(part));
          request.on('end', () => {
            response.writeHead(418, { 'content-type': 'text/odd', 'x-own': 'kept' });
            response.end(`${request.method} ${request.url} ${request.headers['x-mine']} ${Buffer.concat(parts)}`);
          });
        }),
      ),
    );
    const response = await fetch(`${url}/some/path?query=1`, {
      method: 'POST',
      headers: { 'x-mine': 'mine' },
      body: 'text',
    });
    expect(response.status).toBe(418);
    expect(response.headers.get('content-type')).toBe('text/odd');
    expect(response.headers.get('x-own')).toBe('kept');
    expect(await response.text()).toBe('POST /some/path?query=1 mine text');
  });

  it('refuses a body that is too large, and says so', async () => {
    const url = await front(running(await worker((_, response) => response.end())));
    const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: 'x'.repeat(1001) });
    expect(response.status).toBe(413);
    expect(await codeOf(response)).toBe('WARMPATH_BODY_TOO_LARGE');
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toContain(
      'warmpath_engine_bodies_not_received_total{reason="too_large",model_name="a \\"model\\""} 1',
    );
    expect(metrics).toContain(
      'warmpath_engine_bodies_not_received_total{reason="no_room",model_name="a \\"model\\""} 0',
    );
  });

  it('holds requests while there is no worker, up to its limit, and tells whoever asks for its health', async () => {
    let start: (worker: Worker) => void = () => undefined;
    const started = new Promise<Worker>((resolve) => {
      start = resolve;
    });
    let held = 0;
    let tellHeld: () => void = () => undefined;
    const bothHeld = new Promise<void>((resolve) => {
      tellHeld = resolve;
    });
    const url = await front({
      worker: undefined,
      restarts: 3,
      ready: () => {
        held++;
        if (held === 2) tellHeld();
        return started;
      },
    });
    const waiting = [1, 2].map(() => fetch(`${url}/v1/models`));
    await bothHeld;
    const refused = await fetch(`${url}/v1/models`);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await codeOf(refused)).toBe('WARMPATH_OVERLOADED');
    const health = await fetch(`${url}/health`);
    expect(health.status).toBe(503);
    expect(await health.json()).toEqual({ status: 'unavailable' });
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toContain('warmpath_engine_up{model_name=""} 0');
    expect(metrics).toContain('warmpath_engine_restarts_total{model_name=""} 3');
    start(await worker((_, response) => response.end('here')));
    expect(await Promise.all(waiting.map(async (each) => (await each).text()))).toEqual(['here', 'here']);
  });

  it('answers what waits with the reason when no worker will come', async () => {
    const error = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'given up' });
    const url = await front({ worker: undefined, ready: () => Promise.reject(error), restarts: 0 });
    const response = await fetch(`${url}/v1/models`);
    expect(response.status).toBe(500);
    expect(await response.json()).toMatchObject({
      error: { code: 'WARMPATH_ENGINE_FAILED', message: expect.stringContaining('given up') },
    });
  });

  it("puts its own metrics behind the worker's", async () => {
    const url = await front(running(await worker((_, response) => response.end('theirs 1\n'))));
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics.startsWith('theirs 1\n')).toBe(true);
    expect(metrics).toContain('warmpath_engine_up{model_name="a \\"model\\""} 1');
  });

  it('sends a request again, once, whose worker closed the connection without an answer', async () => {
    let tries = 0;
    const url = await front(
      running(
        await worker((request) => {
          tries++;
          request.socket.destroy();
        }),
      ),
    );
    const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: '{}' });
    expect(response.status).toBe(500);
    expect(await codeOf(response)).toBe('WARMPATH_ENGINE_FAILED');
    expect(tries).toBe(2);
  });

  it('passes errors of the worker on', async () => {
    const url = await front(running(await worker((_, response) => response.writeHead(500).end('odd'))));
    const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: '{}' });
    expect([response.status, await response.text()]).toEqual([500, 'odd']);
  });

  it('sends a request to the next worker that could not reach one that has just ended', async () => {
    const dead = await worker(() => undefined);
    await closers.splice(0, 1)[0]!();
    const alive = await worker((_, response) => response.end('here'));
    const workers = [dead, alive];
    const url = await front({ worker: undefined, ready: async () => workers.shift()!, restarts: 0 });
    expect(await (await fetch(`${url}/v1/models`)).text()).toBe('here');
    expect(workers).toEqual([]);
  });

  /** The text of a stream, and whether it came to its end. */
  async function read(url: string, headers: Record<string, string> = {}) {
    const outgoing = sendRequest(`${url}/v1/completions`, { method: 'POST', headers });
    outgoing.end('{"stream":true}');
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
    let text = '';
    incoming.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    const isWhole = await once(incoming, 'end').then(
      () => true,
      () => false,
    );
    return { text, isWhole, headers: incoming.headers };
  }

  it('passes a stream on as it comes', async () => {
    let goOn: () => void = () => undefined;
    const url = await front(
      running(
        await worker((_, response) => {
          response.writeHead(200, EVENT_STREAM).write(FIRST);
          goOn = () => response.end(LAST);
        }),
      ),
    );
    const outgoing = sendRequest(`${url}/v1/completions`, { method: 'POST' });
    outgoing.end('{}');
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
    expect(incoming.headers).toMatchObject(EVENT_STREAM);
    expect(String(((await once(incoming, 'data')) as [Buffer])[0])).toBe(FIRST);
    goOn();
    expect(await text(incoming)).toBe(LAST);
  });

  it('answers with an error when the worker breaks a stream off before its first event', async () => {
    const url = await front(
      running(
        await worker((_, response) => {
          response.writeHead(200, { ...EVENT_STREAM, 'x-own': 'kept' }).flushHeaders();
          setImmediate(() => response.destroy());
        }),
      ),
    );
    const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: '{}' });
    expect([response.status, response.headers.get('x-own')]).toEqual([500, null]);
    expect(await codeOf(response)).toBe('WARMPATH_ENGINE_FAILED');
  });

  it.each(['behind an event', 'within an event'])(
    'ends a stream that the worker breaks off (%s) with an error and without [DONE]',
    async (where) => {
      const sent = where === 'behind an event' ? FIRST : FIRST.slice(0, -4);
      const url = await front(
        running(
          await worker((_, response) => {
            response.writeHead(200, EVENT_STREAM).write(sent, () => response.destroy());
          }),
        ),
      );
      const { text, isWhole } = await read(url);
      expect(isWhole).toBe(true);
      const events = text.split('\n\n').filter((event) => event !== '');
      expect(events.slice(0, -1)).toEqual([sent.trimEnd()]);
      expect(JSON.parse(events.at(-1)!.replace('data: ', ''))).toMatchObject({
        error: {
          code: 'WARMPATH_ENGINE_FAILED',
          message: expect.stringContaining('ended while it computed this request'),
        },
      });
      expect(text).not.toContain('[DONE]');
    },
  );

  it('closes the connection of a whole answer that the worker breaks off', async () => {
    const url = await front(
      running(
        await worker((_, response) => {
          response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 });
          response.write('{"half', () => response.destroy());
        }),
      ),
    );
    const { text, isWhole } = await read(url);
    expect([text.slice(0, 6), isWhole]).toEqual(['{"half', false]);
    expect(text).not.toContain('data:');
  });

  it.each(['before the answer', 'in the middle of a stream'])(
    'closes the connection to the worker when the client leaves %s',
    async (when) => {
      let left: () => void = () => undefined;
      let came: () => void = () => undefined;
      const workerLeft = new Promise<void>((resolve) => {
        left = resolve;
      });
      const workerCame = new Promise<void>((resolve) => {
        came = resolve;
      });
      const url = await front(
        running(
          await worker((_, response) => {
            response.on('close', left);
            came();
            if (when !== 'before the answer') {
              response.writeHead(200, EVENT_STREAM).write(FIRST);
            }
          }),
        ),
      );
      const outgoing = sendRequest(`${url}/v1/completions`, { method: 'POST' });
      outgoing.on('error', () => undefined);
      outgoing.end('{}');
      await workerCame;
      if (when !== 'before the answer') {
        const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
        await once(incoming, 'data');
      }
      outgoing.destroy();
      await workerLeft;
    },
  );

  it('reads no faster than its client, and closes both connections when the client reads nothing for long', async () => {
    let tellClosed: () => void = () => undefined;
    const closed = new Promise<void>((resolve) => {
      tellClosed = resolve;
    });
    const answers: ServerResponse[] = [];
    const generous = await worker((_, response) => {
      let isOpen = true;
      response.on('close', () => {
        isOpen = false;
        tellClosed();
      });
      response.writeHead(200, EVENT_STREAM);
      let turnsUnread = 0;
      const step = (): void => {
        turnsUnread = response.writableNeedDrain ? turnsUnread + 1 : 0;
        if (turnsUnread === 1_000) {
          // As the socket tells it when nothing has been taken from it for long.
          answers[0]!.emit('timeout');
        }
        if (isOpen) {
          if (turnsUnread === 0) response.write('x'.repeat(10_000));
          setImmediate(step);
        }
      };
      step();
    });
    const url = await front(running(generous), 2, (server) =>
      server.on('request', (_, response) => answers.push(response)),
    );
    const socket = connect(Number(new URL(url).port), '127.0.0.1').pause();
    socket.write('POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\n\r\n{}');
    await closed;
    expect(answers[0]!.writableLength).toBeLessThan(400_000);
    socket.destroy();
  });

  it('lets a client wait for its answer as long as it takes', async () => {
    let reply: () => void = () => undefined;
    const answers: ServerResponse[] = [];
    const quiet = await worker((_, response) => {
      reply = () => response.end('late');
      answers[0]!.emit('timeout');
      reply();
    });
    const url = await front(running(quiet), 2, (server) =>
      server.on('request', (_, response) => answers.push(response)),
    );
    expect(await (await fetch(`${url}/v1/completions`, { method: 'POST', body: '{}' })).text()).toBe('late');
  });

  it('holds so many bytes of bodies and no more, until their requests are answered', async () => {
    const waiting: ServerResponse[] = [];
    let tellAll: () => void = () => undefined;
    const all = new Promise<void>((resolve) => {
      tellAll = resolve;
    });
    const url = await front(
      running(
        await worker((_, response) => {
          waiting.push(response);
          if (waiting.length === 8) tellAll();
          if (waiting.length > 8) response.end('room');
        }),
      ),
    );
    const send = (): Promise<Response> => fetch(`${url}/v1/completions`, { method: 'POST', body: 'x'.repeat(1000) });
    const held = Array.from({ length: 8 }, send);
    await all;
    const refused = await send();
    expect([refused.status, await codeOf(refused)]).toEqual([429, 'WARMPATH_OVERLOADED']);
    for (const response of waiting) response.end('done');
    for (const response of held) expect(await (await response).text()).toBe('done');
    expect(await (await send()).text()).toBe('room');
  });

  it('answers 404 to what is no path', async () => {
    const url = await front(running(await worker((_, response) => response.end())));
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write('OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(String(answer)).toMatch(/^HTTP\/1\.1 404 /);
    socket.destroy();
  });
});
