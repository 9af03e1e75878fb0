import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { AcceptQueue } from '../src/intake/accept-queue.js';
import { closing } from './harness.js';

/** A server, and a clock that goes on by 1 with each connection that is accepted. */
async function listening(host = '127.0.0.1') {
  const clock = { now: 0 };
  const server = createServer();
  let crowds = 0;
  const queue = new AcceptQueue(server, { now: () => clock.now, crowded: () => crowds++ });
  const accepted: Socket[] = [];
  server.on('connection', (socket) => {
    clock.now++;
    accepted.push(socket);
  });
  server.listen({ port: 0, host });
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const clients: Socket[] = [];
  closing({
    close: async () => {
      queue.close();
      for (const socket of [...clients, ...accepted]) socket.destroy();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  });
  /** Resolves when so many more were accepted. */
  const untilAccepted = async (count: number) => {
    for (const until = accepted.length + count; accepted.length < until; ) await once(server, 'connection');
  };
  /** Resolves when the kernel has them, before the event loop does, which gets one a turn. */
  const open = async (count: number, client = '127.0.0.1') => {
    for (let i = 0; i < count; i++) clients.push(connect(port, client).on('error', () => {}));
    await new Promise<void>((resolve) => process.nextTick(resolve));
  };
  return { queue, clock, open, untilAccepted, crowds: () => crowds };
}

describe('the queue of new connections', () => {
  it('is not looked at while nobody connects', async () => {
    const { queue, open, crowds } = await listening();
    await open(20);
    // Nothing was accepted yet.
    expect(queue.look()).toEqual({ acceptQueue: 0, acceptMs: 0 });
    expect(crowds()).toBe(0);
  });

  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['0.0.0.0', '127.0.0.1'],
    ['::', '::1'],
    ['::', '127.0.0.1'],
  ])('is as long as the kernel says, listening at %s, asked by %s', async (host, client) => {
    const { queue, open, untilAccepted } = await listening(host);
    await open(1, client);
    await untilAccepted(1);
    await open(40, client);
    expect(queue.look().acceptQueue).toBe(40);
    await untilAccepted(15);
    expect(queue.look().acceptQueue).toBe(25);
    await untilAccepted(25);
    expect(queue.look()).toEqual({ acceptQueue: 0, acceptMs: 0 });
  });

  it('is found among many that listen', async () => {
    const others = await Promise.all(Array.from({ length: 100 }, () => listening()));
    for (const { queue, open, untilAccepted } of [others[0]!, others[50]!, others[99]!]) {
      await open(1);
      await untilAccepted(1);
      await open(5);
      expect(queue.look().acceptQueue).toBe(5);
    }
  });

  it('waits as long as its end takes at the pace of the last connections, but no longer than there is one', async () => {
    const { queue, clock, open, untilAccepted } = await listening();
    await open(1);
    await untilAccepted(1);
    queue.look();
    await open(60);
    await untilAccepted(10);
    // Ten in 210 milliseconds, and 50 wait: that would be longer than anybody has.
    clock.now += 200;
    expect(queue.look()).toEqual({ acceptQueue: 50, acceptMs: 210 });
    await untilAccepted(20);
    // 25.25 in 125.25 milliseconds: what was before the last look counts half.
    expect(queue.look()).toEqual({ acceptQueue: 30, acceptMs: expect.closeTo((30 * 125.25) / 25.25) });
    // None since the last look, and then none for long.
    clock.now++;
    expect(queue.look().acceptMs).toBeLessThan(160);
    clock.now += 1_000;
    expect(queue.look()).toEqual({ acceptQueue: 30, acceptMs: 1_231 });
  });

  it('is a crowd where many wait, or came since the last look', async () => {
    const { queue, open, untilAccepted, crowds } = await listening();
    await open(7);
    await untilAccepted(7);
    queue.look();
    expect(crowds()).toBe(0);
    await open(8);
    await untilAccepted(8);
    queue.look();
    expect(crowds()).toBe(1);
    await open(9);
    await untilAccepted(1);
    queue.look();
    expect(crowds()).toBe(2);
  });

  it('is unknown, and nothing else happens, once the server is closed to it', async () => {
    const { queue, open, untilAccepted } = await listening();
    await open(1);
    await untilAccepted(1);
    await open(5);
    expect(queue.look().acceptQueue).toBe(5);
    queue.close();
    await untilAccepted(5);
    expect(queue.look()).toEqual({ acceptQueue: 0, acceptMs: 0 });
  });
});
