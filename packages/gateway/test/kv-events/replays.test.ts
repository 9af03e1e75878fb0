import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { expect, test } from 'vitest';
import { Router, XPublisher } from 'zeromq';
import { freePort } from '../../../../test/free-port.js';
import { isFull } from '../../../../test/suite.js';
import { ZmqSubscriber } from '../../src/engines/kv-events/zmq-subscriber.js';
import { startGateway } from '../../src/index.js';
import { FakeEngine } from '../fake-engine.js';
import { closing, send } from '../harness.js';

const END = 2n ** 64n - 1n;
const PAYLOAD = Buffer.from('a batch');

function numbered(sequence: bigint, publisherId = ''): Buffer {
  const number = Buffer.alloc(8);
  number.writeBigUInt64BE(sequence);
  return Buffer.concat([number, Buffer.from(publisherId)]);
}

type Send = (sequence: bigint) => Promise<void>;

/** A publisher whose replays are answered by `answer`, which is given the number of the request. */
async function publisher(answer: (from: number, send: Send, request: number) => Promise<void>) {
  const [port, replayPort] = [await freePort(), await freePort()];
  const live = new XPublisher({ linger: 0 });
  await live.bind(`tcp://127.0.0.1:${port}`);
  const router = new Router({ linger: 0, sendHighWaterMark: 100_000 });
  await router.bind(`tcp://127.0.0.1:${replayPort}`);
  let requests = 0;
  const answering = (async () => {
    for await (const [peer, , from] of router) {
      const sendOne: Send = (sequence) =>
        router.send([peer!, '', numbered(sequence), sequence === END ? Buffer.alloc(0) : PAYLOAD]);
      await answer(Number(from!.readBigUInt64BE()), sendOne, requests++);
    }
  })();
  closing({
    close: async () => {
      live.close();
      router.close();
      // A replay may be under way.
      await answering.catch(() => {});
    },
  });
  const endpoints = { endpoint: `tcp://127.0.0.1:${port}`, replayEndpoint: `tcp://127.0.0.1:${replayPort}` };
  return { live, endpoints };
}

/** What a subscriber tells. */
async function subscriber(endpoints: { readonly endpoint: string; readonly replayEndpoint: string }) {
  const told = { began: 0, batches: 0, lost: 0 };
  const unreadable: (readonly number[])[] = [];
  const { stream } = closing(
    await ZmqSubscriber.open({
      ...endpoints,
      sink: { began: () => told.began++, batch: () => told.batches++, lost: () => told.lost++ },
      unreadable: (frameBytes) => unreadable.push(frameBytes),
      connection: () => {},
    }),
  );
  const until = (count: number) => expect.poll(() => stream.next).toBeGreaterThanOrEqual(count);
  return { told, unreadable, stream, until };
}

async function sendAll(from: number, to: number, send: Send): Promise<void> {
  for (let sequence = from; sequence < to; sequence++) await send(BigInt(sequence));
}

test('a replay of more batches than ZeroMQ holds by default comes whole', async () => {
  const { endpoints } = await publisher(async (from, send) => {
    await sendAll(from, 4_000, send);
    await send(END);
  });
  const { told, until } = await subscriber(endpoints);
  await until(4_000);
  expect(told).toEqual({ began: 1, batches: 4_000, lost: 0 });
});

test('a replay of which the publisher drops a part is requested again from there', async () => {
  const { endpoints } = await publisher(async (from, send, request) => {
    await sendAll(from, request === 0 ? 10 : 20, send);
    if (request === 0) await send(15n);
    await send(END);
  });
  const { told, until } = await subscriber(endpoints);
  await until(20);
  expect(told).toEqual({ began: 1, batches: 20, lost: 0 });
});

// It waits as long as a subscriber waits for the end.
test.runIf(isFull)('what came of a replay without an end is kept, and the rest is requested', async () => {
  const { endpoints } = await publisher(async (from, send, request) => {
    await sendAll(from, request === 0 ? 10 : 20, send);
    if (request > 0) await send(END);
  });
  const { told, until } = await subscriber(endpoints);
  await until(20);
  expect(told).toEqual({ began: 1, batches: 20, lost: 0 });
});

test('what an idle engine has published is received without a live batch', async () => {
  const { endpoints } = await publisher(async (from, send) => {
    await sendAll(from, 3, send);
    await send(END);
  });
  const { told, until } = await subscriber(endpoints);
  await until(3);
  expect(told).toEqual({ began: 1, batches: 3, lost: 0 });
});

test.each([
  ['behind a topic', 'kv-events', ''],
  ['without a topic', '', ''],
  ['with the id of its publisher', 'kv-events', 'sixteen bytes id'],
])('the number of a batch %s is read', async (_, topic, publisherId) => {
  const { live, endpoints } = await publisher((_from, send) => send(END));
  const { told, unreadable, stream, until } = await subscriber(endpoints);
  await live.receive();
  await expect.poll(() => told.began).toBe(1);
  for (const sequence of [0n, 1n]) await live.send([topic, numbered(sequence, publisherId), PAYLOAD]);
  await until(2);
  expect(told).toEqual({ began: 1, batches: 2, lost: 0 });
  expect([unreadable, stream.counts.restarts]).toEqual([[], 0]);
});

test('messages that are no batch are counted, and their form is told once', async () => {
  const { live, endpoints } = await publisher((_from, send) => send(END));
  const engine = closing(
    await FakeEngine.start((response) => {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"data":[{"id":"m"}]}');
    }),
  );
  const reasons: unknown[] = [];
  const onChange = (change: unknown) => {
    const { kind, reason } = change as { kind: string; reason?: string };
    if (kind === 'events-unreadable') reasons.push(reason);
  };
  subscribe('warmpath:engine', onChange);
  closing({ close: async () => void unsubscribe('warmpath:engine', onChange) });
  const gateway = closing(
    await startGateway({
      server: { port: 0 },
      upstream: { url: engine.url, kvEvents: endpoints },
      log: { level: 'silent' },
    }),
  );
  await live.receive();
  for (let i = 0; i < 3; i++) await live.send(['topic', Buffer.alloc(12), PAYLOAD]);
  const count = async () =>
    /warmpath_kv_events_total\{engine="engine",kind="unreadableMessages"\} (\d+)/.exec(
      (await send(`${gateway.url}/metrics`)).text,
    )?.[1];
  await expect.poll(count).toBe('3');
  expect(reasons).toEqual([
    'A message has frames of 5, 12, 7 bytes. Expected: a topic, a number of 8 or 24 bytes, a payload.',
  ]);
});
