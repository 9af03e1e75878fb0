import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import { Overload } from '../src/limits/load.js';
import { CHAT_RESPONSE, FakeEngine } from './fake-engine.js';
import { chat, closing, errorOf, metricOf, type Reply, send, stand, untilMetric } from './harness.js';

const PATH = '/v1/chat/completions';

/** Asks until a request is refused, so many at once; with the replies of all. */
async function untilRefused(url: string, atOnce: number, agent?: Agent): Promise<Reply[]> {
  const replies: Reply[] = [];
  while (!replies.some(({ status }) => status === 429)) {
    const asked = Array.from({ length: atOnce }, () => send(url + PATH, chat(), agent && { agent }));
    replies.push(...(await Promise.all(asked)));
  }
  return replies;
}

describe('an engine that is offered twice what it can do', () => {
  const [PLACES, CAPACITY] = [4, 8];
  const queue = { capacity: CAPACITY };

  it('gets what it takes, the rest is refused at once, and then everybody finds room again', async () => {
    const answers: (() => void)[] = [];
    const { engine, gateway } = await stand(
      (response) => {
        answers.push(() => response.writeHead(200, { 'content-type': 'application/json' }).end(CHAT_RESPONSE));
      },
      { upstream: { maxConcurrent: PLACES }, queue },
    );
    const idleBytes = await metricOf(gateway, 'warmpath_memory_bytes{part="bodies"');
    for (let round = 0; round < 5; round++) {
      answers.length = 0;
      const asked = Array.from({ length: 2 * (PLACES + CAPACITY) }, () => send(gateway.url + PATH, chat()));
      const refused: Reply[] = [];
      const served: Reply[] = [];
      let told = () => {};
      const allRefused = new Promise<void>((resolve) => {
        told = resolve;
      });
      for (const each of asked) {
        void each.then((reply) => {
          (reply.status === 200 ? served : refused).push(reply);
          if (refused.length === PLACES + CAPACITY) told();
        });
      }
      // Nobody has been answered: whoever is refused did not wait for that.
      await allRefused;
      expect(served).toEqual([]);
      for (const reply of refused) {
        expect(reply.status).toBe(429);
        expect(errorOf(reply).code).toBe('WARMPATH_OVERLOADED');
        expect(Number(reply.headers['retry-after'])).toBeGreaterThan(0);
      }
      await engine.until('request', PLACES + round * (PLACES + CAPACITY));
      for (let answered = 0; answered < PLACES + CAPACITY; answered++) {
        await engine.until('request', round * (PLACES + CAPACITY) + answered + 1);
        answers[answered]!();
      }
      await Promise.all(asked);
      expect(served).toHaveLength(PLACES + CAPACITY);
      await untilMetric(gateway, 'warmpath_requests_in_flight', 1);
      expect(await metricOf(gateway, 'warmpath_queue_depth')).toBe(0);
      expect(await metricOf(gateway, 'warmpath_memory_bytes{part="bodies"')).toBe(idleBytes);
    }
  });
});

describe('a processor that is offered more than it can do', () => {
  it('refuses some at once, answers probes, and recovers by itself', async () => {
    const { engine, gateway } = await stand();
    const { agent } = closing(new KeptAgent());
    const { hostname, port } = new URL(gateway.url);
    const slow = connect(Number(port), hostname).setEncoding('latin1');
    await once(slow, 'connect');
    // The event loop of gateway, engine and clients: each turn takes longer than a probe may wait.
    let isBusy = true;
    const spin = (): void => {
      for (const until = performance.now() + 1_150; performance.now() < until; );
      if (isBusy) setImmediate(spin);
    };
    setImmediate(spin);
    const replies = await untilRefused(gateway.url, 4, agent);
    const refused = replies.filter(({ status }) => status !== 200);
    for (const reply of refused) {
      expect(reply.status).toBe(429);
      expect(reply.headers['retry-after']).toBe('1');
      expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_OVERLOADED', type: 'server_error' });
    }
    expect(engine.received.filter(({ method }) => method === 'POST')).toHaveLength(replies.length - refused.length);
    expect((await send(`${gateway.url}/healthz`)).status).toBe(200);
    expect(await metricOf(gateway, 'warmpath_shed_requests_total')).toBe(refused.length);
    const text = JSON.stringify(chat());
    slow.write(`POST ${PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n`);
    slow.write(`content-length: ${text.length}\r\n\r\n${text.slice(0, 20)}`);
    const [answer] = (await once(slow, 'data')) as [string];
    expect(answer).toMatch(/^HTTP\/1\.1 429 /);
    expect(answer).toMatch(/\r\nconnection: keep-alive\r\n/i);
    isBusy = false;
    await untilMetric(gateway, 'warmpath_shedding', 0);
    // The gateway reads the rest of a refused body, and then the next request on the connection.
    slow.write(text.slice(20));
    slow.write(`GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`);
    expect((await slow.toArray()).join('')).toMatch(/^HTTP\/1\.1 200 /);
    const after = await Promise.all(Array.from({ length: 32 }, () => send(gateway.url + PATH, chat())));
    expect(after.map(({ status }) => status)).toEqual(after.map(() => 200));
  });
});

describe('a burst of more requests than can be served at once', () => {
  it('is answered to the last, by an answer or a refusal that says when to come again', async () => {
    const { gateway } = await stand(undefined, {
      queue: { capacity: 64 },
      upstream: { maxConcurrent: 8 },
    });
    const asked = Array.from({ length: 1_000 }, () => send(gateway.url + PATH, chat()));
    const probes = Array.from({ length: 10 }, () => send(`${gateway.url}/healthz`));
    const replies = await Promise.all(asked);
    for (const reply of replies.filter(({ status }) => status !== 200)) {
      expect(reply.status).toBe(429);
      expect(Number(reply.headers['retry-after'])).toBeGreaterThan(0);
      expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_OVERLOADED', type: 'server_error' });
    }
    expect((await Promise.all(probes)).map(({ status }) => status)).toEqual(probes.map(() => 200));
    expect(replies.some(({ status }) => status === 200)).toBe(true);
    expect(await metricOf(gateway, 'warmpath_memory_bytes{part="bodies"')).toBe(0);
    expect((await send(gateway.url + PATH, chat())).status).toBe(200);
  });
});

describe('Overload', () => {
  const IDLE = { delayMs: 0, heapBytes: 50e6, heapLimitBytes: 250e6 };

  function overloadWith() {
    const load = { isBusy: true };
    const changes: (string | undefined)[] = [];
    const refused: string[] = [];
    const overload = new Overload({
      eventLoopBudget: { waitMs: 0 },
      isBusy: () => load.isBusy,
      changed: (reason) => changes.push(reason),
      refused: (reason) => refused.push(reason),
    });
    return { overload, load, changes, refused };
  }

  it('refuses while the event loop is late, and says when it begins and ends', () => {
    const { overload, changes, refused } = overloadWith();
    for (const delayMs of [999, 1_001, 2_000, 999, 0]) overload.sample({ ...IDLE, delayMs });
    expect(changes).toEqual(['event_loop', undefined]);
    for (const delayMs of [1_001, 1_001]) overload.sample({ ...IDLE, delayMs });
    expect(overload.refusal()).toMatchObject({ code: 'WARMPATH_OVERLOADED', retryAfterS: 1 });
    expect(refused).toEqual(['event_loop']);
  });

  it('refuses nothing because of a single halt', () => {
    const { overload, changes } = overloadWith();
    for (const delayMs of [0, 5_000, 0, 5_000, 0]) {
      overload.sample({ ...IDLE, delayMs });
      expect(overload.refusal()).toBeUndefined();
    }
    expect(changes).toEqual([]);
  });

  it('serves one request at a time while the heap is full', () => {
    const { overload, load, refused } = overloadWith();
    overload.sample({ ...IDLE, heapBytes: 150e6 });
    expect(overload.refusal()).toBeUndefined();
    overload.sample({ ...IDLE, heapBytes: 170e6 });
    expect(overload.refusal()?.message).toContain('heap');
    load.isBusy = false;
    expect(overload.refusal()).toBeUndefined();
    expect(refused).toEqual(['heap']);
  });

  it('refuses nothing before the first sample', () => {
    expect(overloadWith().overload.refusal()).toBeUndefined();
  });
});

describe('a heap that is full', () => {
  it('gets one request at a time, and all of them once it is free', async () => {
    const waiting: (() => void)[] = [];
    const engine = closing(
      await FakeEngine.start((response) => {
        waiting.push(() => response.writeHead(200, { 'content-type': 'application/json' }).end(CHAT_RESPONSE));
      }),
    );
    const script = join(import.meta.dirname, 'full-heap-process.js');
    const child = spawn(process.execPath, ['--expose-gc', '--max-old-space-size=128', script, engine.url], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    closing({
      close: async () => {
        child.stdin.end();
        if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      },
    });
    const lines = createInterface({ input: child.stdout });
    const [url] = (await once(lines, 'line')) as [string];
    const tell = async (line: string) => {
      child.stdin.write(`${line}\n`);
      await once(lines, 'line');
    };
    await tell('fill');
    const first = send(url + PATH, chat());
    await engine.until('request', 1);
    const [second] = await untilRefused(url, 16);
    expect(errorOf(second!).message).toContain('heap');
    expect(engine.received).toHaveLength(1);
    waiting[0]!();
    expect((await first).status).toBe(200);
    await tell('free');
    await untilMetric({ url }, 'warmpath_shedding', 0);
    engine.answer = (response) => response.writeHead(200, { 'content-type': 'application/json' }).end(CHAT_RESPONSE);
    const after = await Promise.all(Array.from({ length: 32 }, () => send(url + PATH, chat())));
    expect(after.map(({ status }) => status)).toEqual(after.map(() => 200));
  });
});

/** Connections that stay open between requests. */
class KeptAgent {
  readonly agent = new Agent({ keepAlive: true });

  async close(): Promise<void> {
    this.agent.destroy();
  }
}
