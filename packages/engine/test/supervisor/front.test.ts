import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  request as sendRequest,
} from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { WarmpathError } from '@warmpath/core';
import { Pool } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { answerRecord, type RecordMarks, RecordReader } from '../../src/supervisor/answer-records.js';
import { Front } from '../../src/supervisor/front.js';
import { FrontMetrics } from '../../src/supervisor/front-metrics.js';
import type { Supervisor } from '../../src/supervisor/supervisor.js';
import type { Worker } from '../../src/supervisor/worker.js';

/** A handler that can tell what it streams as well. */
type WorkerHandler = (
  request: IncomingMessage,
  response: ServerResponse,
  tell: (content: string, marks: RecordMarks) => void,
  pipe: PassThrough,
) => void;

/** What the front reads of a supervisor. */
interface FakeSupervisor {
  worker: Worker | undefined;
  ready(): Promise<Worker>;
}

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
  async function worker(handler: WorkerHandler, isAlive: () => Promise<boolean> = async () => true): Promise<Worker> {
    const pipe = new PassThrough();
    const url = await listen(
      createServer((request, response) => {
        const stream = Number(request.headers['warmpath-records']);
        handler(request, response, (content, marks) => pipe.write(answerRecord(stream, content, marks)), pipe);
      }),
    );
    const pool = new Pool(url, { connections: null });
    closers.push(() => pool.destroy());
    return { pool, records: new RecordReader(pipe), isAlive, model: { bodyLimitBytes: 1000 } } as Worker;
  }

  async function front(
    supervisor: FakeSupervisor,
    heldLimit = 2,
    watch: (server: Server) => void = () => undefined,
    key?: string,
  ): Promise<string> {
    const metrics = new FrontMetrics(
      () => supervisor.worker !== undefined,
      () => 3,
    );
    const { server } = new Front({
      access: { host: '127.0.0.1', key },
      supervisor: supervisor as unknown as Supervisor<Worker>,
      metrics,
      bodyLimitBytes: 1000,
      heldLimit,
      clock: () => 0,
    });
    watch(server);
    return listen(server);
  }

  const running = (worker: Worker): FakeSupervisor => ({ worker, ready: async () => worker });
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
    expect(metrics).toContain('warmpath_engine_bodies_not_received_total{reason="too_large"} 1');
    expect(metrics).toContain('warmpath_engine_bodies_not_received_total{reason="no_room"} 0');
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
    expect(metrics).toContain('warmpath_engine_up 0');
    expect(metrics).toContain('warmpath_engine_restarts_total 3');
    start(await worker((_, response) => response.end('here')));
    expect(await Promise.all(waiting.map(async (each) => (await each).text()))).toEqual(['here', 'here']);
  });

  it('answers what waits with the reason when no worker will come', async () => {
    const error = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'given up' });
    const url = await front({ worker: undefined, ready: () => Promise.reject(error) });
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
    expect(metrics).toContain('warmpath_engine_up 1');
  });

  it('sends a request again whose worker closed the connection without an answer, once', async () => {
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
    expect(await (await fetch(`${url}/metrics`)).text()).toContain('warmpath_engine_retries_total 1');
  });

  it('sends a request again whose computation failed, and passes the second failure on', async () => {
    for (const failures of [1, 2]) {
      let tries = 0;
      const url = await front(
        running(
          await worker((_, response) => {
            tries++;
            const error = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: `try ${tries}` });
            response.statusCode = tries <= failures ? 500 : 200;
            response.end(tries <= failures ? JSON.stringify(error.toOpenAI()) : 'done');
          }),
        ),
      );
      const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: '{}' });
      expect(await response.text()).toContain(failures === 1 ? 'done' : 'try 2');
      expect(tries).toBe(2);
    }
  });

  it('passes other errors on at once', async () => {
    let tries = 0;
    const url = await front(
      running(
        await worker((_, response) => {
          tries++;
          response.writeHead(500).end('odd');
        }),
      ),
    );
    const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: '{}' });
    expect(await response.text()).toBe('odd');
    expect(tries).toBe(1);
  });

  it('does not take a connection that was refused for a try', async () => {
    const dead = await worker(
      () => undefined,
      async () => false,
    );
    await closers.splice(0, 1)[0]!();
    const alive = await worker((_, response) => response.end('here'));
    const workers = [dead, dead, dead, alive];
    const supervisor: FakeSupervisor = { worker: undefined, ready: async () => workers.shift()! };
    const url = await front(supervisor);
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

  it('breaks a stream off that is broken off again and again, with an error and without a clean end', async () => {
    let tries = 0;
    const url = await front(
      running(
        await worker((_, response, tell) => {
          tries++;
          tell(ORIGIN, 'begin');
          tell(`data: ${tries}\n\n`, [tries]);
          setImmediate(() => response.destroy());
        }),
      ),
    );
    const { text, isWhole } = await read(url);
    expect(isWhole).toBe(false);
    const [first, second, error] = text.split('\n\n').filter((event) => event !== '');
    expect([first, second]).toEqual(['data: 1', 'data: 2']);
    expect(JSON.parse(error!.replace('data: ', ''))).toMatchObject({ error: { code: 'WARMPATH_ENGINE_FAILED' } });
    expect(text).not.toContain('[DONE]');
    expect(tries).toBe(2);
  });

  /** A stream from a worker that tells some bytes of records and dies, and from one that answers what goes on. */
  async function streamed(records: (stream: number) => string, next: WorkerHandler) {
    const asked: { headers: IncomingHttpHeaders; body: string }[] = [];
    const noting =
      (answer: WorkerHandler): WorkerHandler =>
      (request, response, tell, pipe) => {
        let body = '';
        request.on('data', (part: Buffer) => {
          body += part.toString();
        });
        request.on('end', () => {
          asked.push({ headers: request.headers, body });
          answer(request, response, tell, pipe);
        });
      };
    const dying: WorkerHandler = (request, _response, _tell, pipe) => {
      pipe.end(records(Number(request.headers['warmpath-records'])));
    };
    const dead = await worker(noting(dying), async () => false);
    const alive = await worker(noting(next));
    const workers = [dead, alive];
    const url = await front({ worker: undefined, ready: async () => workers.shift()! });
    const answer = await read(url, { 'warmpath-continue': '1', 'warmpath-records': 'no' });
    expect(answer.headers).toMatchObject({ 'content-type': 'text/event-stream; charset=utf-8' });
    expect(answer.headers).not.toHaveProperty('warmpath-records');
    // What a client says of the internal headers does not count.
    expect(asked[0]!.headers['warmpath-records']).toMatch(/^\d+$/);
    expect(asked[0]!.headers).not.toHaveProperty('warmpath-continue');
    return { ...answer, asked };
  }

  const ORIGIN = '{"id":"cmpl-1","created":5,"seed":7}';
  const FIRST = 'data: {"one"}\n\n';
  const LAST = 'data: {"two"}\n\ndata: [DONE]\n\n';
  const begun = (stream: number): string =>
    answerRecord(stream, ORIGIN, 'begin') + answerRecord(stream, FIRST, [10, 11]);

  it('has another worker go on with a stream, behind the last event that was whole', async () => {
    const half = (stream: number): string => answerRecord(stream, 'data: {"lost"}\n\n', [12]).slice(0, -3);
    const { text, isWhole, asked } = await streamed(
      (stream) => begun(stream) + half(stream),
      (_, response, tell) => {
        tell(ORIGIN, 'begin');
        tell(LAST, 'end');
        response.writeHead(204, { 'warmpath-records': 'told' }).end();
      },
    );
    expect(text).toBe(FIRST + LAST);
    expect(isWhole).toBe(true);
    expect(asked[1]!.headers).toMatchObject({ 'warmpath-continue': '1' });
    const continued = { ...(JSON.parse(ORIGIN) as object), tokens: [10, 11] };
    expect(JSON.parse(asked[1]!.body)).toEqual({ begun: continued, body: { stream: true } });
  });

  it('asks no other worker when the end of a stream had come', async () => {
    const { text, isWhole, asked } = await streamed(
      (stream) => begun(stream) + answerRecord(stream, LAST, 'end'),
      () => {
        throw new Error('nothing is left to do');
      },
    );
    expect(text).toBe(FIRST + LAST);
    expect(isWhole).toBe(true);
    expect(asked).toHaveLength(1);
  });

  it('waits for the end of a stream when its worker has answered the request', async () => {
    const url = await front(
      running(
        await worker(async (request, response, tell) => {
          if (request.method === 'POST') {
            tell(ORIGIN, 'begin');
            response.writeHead(204, { 'warmpath-records': 'told' }).end();
            // Comes to the front behind what was just answered.
            await fetch(`${url}/v1/models`);
            tell(LAST, 'end');
          }
          response.end();
        }),
      ),
    );
    const { text, isWhole } = await read(url);
    expect([text, isWhole]).toEqual([LAST, true]);
  });

  it('breaks a stream off that the next worker refuses, with its reason', async () => {
    const { text, isWhole } = await streamed(begun, (_, response) => {
      response.writeHead(503, { 'content-type': 'application/json' });
      response.end(JSON.stringify(new WarmpathError('WARMPATH_SHUTTING_DOWN').toOpenAI()));
    });
    expect(text.startsWith(FIRST)).toBe(true);
    expect(text).toContain('WARMPATH_SHUTTING_DOWN');
    expect(isWhole).toBe(false);
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
          await worker((_, response, tell) => {
            response.on('close', left);
            came();
            if (when !== 'before the answer') {
              tell(ORIGIN, 'begin');
              tell(FIRST, [1]);
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

  it.each(['for long', 'of more and more'])('ends a stream of which its client reads nothing %s', async (what) => {
    let tellClosed: () => void = () => undefined;
    const closed = new Promise<void>((resolve) => {
      tellClosed = resolve;
    });
    const answers: ServerResponse[] = [];
    let most = 0;
    const generous = await worker((_, response, tell) => {
      let isOpen = true;
      response.on('close', () => {
        isOpen = false;
        tellClosed();
      });
      tell(ORIGIN, 'begin');
      const step = (): void => {
        most = Math.max(most, answers[0]!.writableLength);
        if (isOpen && what === 'for long' && most > 0) {
          // As the socket tells it when nothing has been taken from it for long.
          answers[0]!.emit('timeout');
        } else if (isOpen) {
          tell('x'.repeat(10_000), [1]);
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
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThan(what === 'for long' ? 100_000 : 400_000);
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
