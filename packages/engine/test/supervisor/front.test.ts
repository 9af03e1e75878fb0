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
import { WarmpathError } from '@warmpath/core';
import { Pool } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { answerRecord } from '../../src/supervisor/answer-records.js';
import { Front } from '../../src/supervisor/front.js';
import { FrontMetrics } from '../../src/supervisor/front-metrics.js';
import type { Supervisor } from '../../src/supervisor/supervisor.js';
import type { Worker } from '../../src/supervisor/worker.js';

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
  async function worker(
    handler: Parameters<typeof createServer>[1],
    isAlive: () => Promise<boolean> = async () => true,
  ): Promise<Worker> {
    const pool = new Pool(await listen(createServer(handler)), { connections: null });
    closers.push(() => pool.destroy());
    return { pool, isAlive, model: { bodyLimitBytes: 1000 } } as Worker;
  }

  async function front(
    supervisor: FakeSupervisor,
    heldLimit = 2,
    watch: (server: Server) => void = () => undefined,
  ): Promise<string> {
    const metrics = new FrontMetrics(
      () => supervisor.worker !== undefined,
      () => 3,
    );
    const { server } = new Front({
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

  it('does not send a speculation again, unless its documents are final', async () => {
    for (const [speculation, most] of [
      [{ id: 'a' }, 1],
      [{ id: 'a', confirmed: true }, 2],
      [null, 2],
    ] as const) {
      let tries = 0;
      const url = await front(
        running(
          await worker((request) => {
            tries++;
            request.socket.destroy();
          }),
        ),
      );
      const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: JSON.stringify({ speculation }) });
      expect(response.status).toBe(500);
      expect(await response.text()).toContain(most === 1 ? 'crashed while' : 'crashed twice while');
      expect(tries).toBe(most);
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

  it('breaks a stream off that its worker broke off, with an error and without a clean end', async () => {
    const url = await front(
      running(
        await worker((_, response) => {
          response.writeHead(200, { 'content-type': 'text/event-stream' });
          response.write('data: {"first"', () => response.destroy());
        }),
      ),
    );
    const outgoing = sendRequest(`${url}/v1/completions`, { method: 'POST' });
    outgoing.end('{}');
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
    let text = '';
    incoming.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    await expect(once(incoming, 'end')).rejects.toMatchObject({ code: 'ECONNRESET' });
    const [torn, error] = text.split('\n\n');
    expect(torn).toBe('data: {"first"');
    expect(JSON.parse(error!.replace('data: ', ''))).toMatchObject({ error: { code: 'WARMPATH_ENGINE_FAILED' } });
    expect(text).not.toContain('[DONE]');
  });

  /** A stream in records from a worker that dies in it, and one that answers what goes on. */
  async function streamed(records: string, next: (response: ServerResponse) => void) {
    const asked: { headers: IncomingHttpHeaders; body: string }[] = [];
    const handler = (dies: boolean) => (request: IncomingMessage, response: ServerResponse) => {
      let body = '';
      request.on('data', (part: Buffer) => {
        body += part.toString();
      });
      request.on('end', () => {
        asked.push({ headers: request.headers, body });
        if (dies) {
          response.writeHead(200, { 'content-type': 'text/event-stream', 'warmpath-records': ORIGIN });
          response.write(records, () => response.destroy());
        } else {
          next(response);
        }
      });
    };
    const dead = await worker(handler(true), async () => false);
    const alive = await worker(handler(false));
    const workers = [dead, alive];
    const url = await front({ worker: undefined, ready: async () => workers.shift()! });
    const outgoing = sendRequest(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'warmpath-continue': '1', 'warmpath-records': 'no' },
    });
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
    expect(incoming.headers).not.toHaveProperty('warmpath-records');
    // What a client says of the internal headers does not count.
    expect(asked[0]!.headers).toMatchObject({ 'warmpath-records': '1' });
    expect(asked[0]!.headers).not.toHaveProperty('warmpath-continue');
    return { text, isWhole, asked };
  }

  const ORIGIN = '{"id":"cmpl-1","created":5,"seed":7}';
  const FIRST = 'data: {"one"}\n\n';
  const LAST = 'data: {"two"}\n\ndata: [DONE]\n\n';

  it('has another worker go on with a stream, behind the last event that was whole', async () => {
    const half = answerRecord('data: {"lost"}\n\n', [12]).slice(0, -3);
    const { text, isWhole, asked } = await streamed(answerRecord(FIRST, [10, 11]) + half, (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'warmpath-records': ORIGIN });
      response.end(answerRecord(LAST, 'end'));
    });
    expect(text).toBe(FIRST + LAST);
    expect(isWhole).toBe(true);
    expect(asked[1]!.headers).toMatchObject({ 'warmpath-continue': '1' });
    const begun = { ...(JSON.parse(ORIGIN) as object), tokens: [10, 11] };
    expect(JSON.parse(asked[1]!.body)).toEqual({ begun, body: { stream: true } });
  });

  it('asks no other worker when the end of a stream had come', async () => {
    const { text, isWhole, asked } = await streamed(answerRecord(FIRST, [10]) + answerRecord(LAST, 'end'), () => {
      throw new Error('nothing is left to do');
    });
    expect(text).toBe(FIRST + LAST);
    expect(isWhole).toBe(true);
    expect(asked).toHaveLength(1);
  });

  it('breaks a stream off that the next worker refuses, with its reason', async () => {
    const { text, isWhole } = await streamed(answerRecord(FIRST, [10]), (response) => {
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
          await worker((_, response) => {
            response.on('close', left);
            came();
            if (when !== 'before the answer') {
              response.writeHead(200, { 'content-type': 'text/event-stream' });
              response.write('data: 1\n\n');
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

  it('stops reading from the worker when its client does not read, and ends what stalls', async () => {
    let written = 0;
    let tellFull: () => void = () => undefined;
    let tellClosed: () => void = () => undefined;
    const full = new Promise<void>((resolve) => {
      tellFull = resolve;
    });
    const closed = new Promise<void>((resolve) => {
      tellClosed = resolve;
    });
    const slow = await worker((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.on('close', tellClosed);
      const write = (): void => {
        let isTaken = true;
        while (isTaken && written < 2 ** 28) {
          written += 10_000;
          isTaken = response.write('x'.repeat(10_000));
        }
        // No drain comes any more once all the buffers on the way are full.
        const stalled = setTimeout(tellFull, 1_000);
        response.once('drain', () => {
          clearTimeout(stalled);
          write();
        });
      };
      write();
    });
    const answers: ServerResponse[] = [];
    const url = await front(running(slow), 2, (server) =>
      server.on('request', (_, response) => answers.push(response)),
    );
    const socket = connect(Number(new URL(url).port), '127.0.0.1').pause();
    socket.write('POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}');
    await full;
    expect(written).toBeLessThan(2 ** 26);
    expect(answers[0]!.writableLength).toBeGreaterThan(0);
    expect(answers[0]!.writableLength).toBeLessThan(300_000);
    // As the socket tells it when nothing has been taken from it for long.
    answers[0]!.emit('timeout');
    await closed;
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
    socket.write('OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n');
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(String(answer)).toMatch(/^HTTP\/1\.1 404 /);
    socket.destroy();
  });
});
