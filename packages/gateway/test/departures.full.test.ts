import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect, it } from 'vitest';
import { CHAT_STREAM, startStream } from './fake-engine.js';
import { chat, memoryOf, metricOf, send, stand, untilMetric } from './harness.js';

const PATH = '/v1/chat/completions';
/** Clients that leave the engine's answer; as many again leave before or after it. `npm run departures` for more. */
const ABORTS = Number(process.env['WARMPATH_DEPARTURES'] ?? 48);
/** Requests that a history remembers. */
const SERVED_BEFORE = 100;
/** Requests that the engine gets at once. */
const PLACES = 6;

/** Numbers below a limit, the same in every run. */
function draws(): (limit: number) => number {
  let state = 20_261_123;
  return (limit) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

class Client {
  readonly socket: Socket;

  private constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.socket = connect(Number(port), hostname);
    this.socket.on('error', () => {});
  }

  /** Sends the head of a request, and as much of its body as `part` says, from 0 to 1. */
  static async sending(url: string, state: string, part: number): Promise<Client> {
    const body = JSON.stringify(chat(undefined, { user: state, stream: state === 'mid stream' }));
    const client = new Client(url);
    const head = `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n`;
    await once(client.socket, 'connect');
    client.socket.write(`${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n`);
    if (part > 0) client.socket.write(body.slice(0, Math.ceil(part * body.length)));
    return client;
  }

  /** With a reset, or with a plain end. */
  leave(isReset: boolean): void {
    if (isReset) this.socket.resetAndDestroy();
    else this.socket.destroy();
  }
}

it(`${ABORTS} clients and more leave in all states: each abort reaches the engine, and every place is free again`, {
  timeout: 600_000,
}, async () => {
  const both = await stand(
    (response, { body }) => {
      if (body.includes('"user":"before the first byte"')) return;
      if (body.includes('"user":"mid stream"')) startStream(response).write(CHAT_STREAM.slice(0, 300));
      else response.writeHead(200, { 'content-type': 'application/json' }).end('{"choices":[]}');
    },
    { upstream: { maxConcurrent: PLACES } },
  );
  const { engine, gateway } = both;
  const below = draws();
  const left = new Map<string, number>();
  const leave = (client: Client, state: string) => {
    client.leave(below(2) === 0);
    left.set(state, (left.get(state) ?? 0) + 1);
  };
  // What is kept of requests that are served: passages that come again, and the last hundred requests.
  for (let i = 0; i < SERVED_BEFORE; i++) await send(gateway.url + PATH, chat());
  const kept = await memoryOf(gateway);
  expect(kept).toMatchObject({ bodies: 0, arrangements: 0 });
  let aborts = 0;
  let received = SERVED_BEFORE;
  while (aborts < ABORTS) {
    // The engine is full, so others wait.
    const begun: [Client, string][] = [];
    for (let place = 0; place < PLACES; place++) {
      const state = below(2) === 0 ? 'before the first byte' : 'mid stream';
      const client = await Client.sending(gateway.url, state, 1);
      if (state === 'mid stream') await once(client.socket, 'data');
      begun.push([client, state]);
    }
    received += PLACES;
    await engine.until('request', received);
    const queued: Client[] = [];
    for (let i = 1 + below(5); i > 0; i--) queued.push(await Client.sending(gateway.url, 'queued', 1));
    await untilMetric(both.gateway, 'warmpath_queue_depth', queued.length);
    for (const client of queued) leave(client, 'queued');
    await untilMetric(both.gateway, 'warmpath_queue_depth', 0);
    for (const part of [0, 0.3, 0.9]) {
      leave(await Client.sending(gateway.url, 'x', part), part === 0 ? 'before the body' : 'mid body');
    }
    expect(engine.received.length).toBe(received);
    for (const [client, state] of begun) leave(client, state);
    aborts += begun.length;
    await engine.until('abort', aborts);
    // Answers that are complete, and that nobody has read.
    for (let i = 0; i < 3; i++) {
      const client = await Client.sending(gateway.url, 'after the last byte', 1);
      received++;
      await engine.until('request', received);
      await once(client.socket, 'readable');
      leave(client, 'after the last byte');
    }
  }
  // The request for the metrics is in flight itself.
  await untilMetric(both.gateway, 'warmpath_requests_in_flight', 1);
  expect(await metricOf(both.gateway, 'warmpath_queue_depth')).toBe(0);
  expect(engine.aborted).toBe(aborts);
  expect(left.size).toBe(6);
  expect(await metricOf(both.gateway, 'warmpath_client_aborts_total')).toBeGreaterThanOrEqual(aborts);
  expect(await metricOf(both.gateway, 'warmpath_upstream_in_flight')).toBe(0);
  for (let i = 0; i < 2 * PLACES; i++) expect((await send(gateway.url + PATH, chat())).status).toBe(200);
  // Of requests that are over, only the records that can be asked for.
  const held = await memoryOf(gateway);
  expect(held).toEqual({ ...kept, requests: expect.any(Number), histories: expect.any(Number) });
  expect(held['histories']! - kept['histories']!).toBeLessThan(1_000);
});
