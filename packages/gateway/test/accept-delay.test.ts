import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { AcceptDelay } from '../src/intake/accept-delay.js';
import { closing } from './harness.js';

/** A server, and a clock that goes on by 1 with each connection of others that is accepted. */
async function listening(options: { readonly host?: string; readonly backlog?: number } = {}) {
  const clock = { now: 0 };
  const server = createServer();
  const waits: number[] = [];
  const delay = new AcceptDelay(server, { now: () => clock.now, waited: () => waits.push(clock.now) });
  const accepted: Socket[] = [];
  server.on('connection', (socket) => {
    if (socket.destroyed) return;
    clock.now++;
    accepted.push(socket);
  });
  server.listen({ port: 0, host: '127.0.0.1', ...options });
  await once(server, 'listening');
  const clients: Socket[] = [];
  closing({
    close: async () => {
      delay.close();
      for (const socket of [...clients, ...accepted]) socket.destroy();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  });
  const open = (count: number, host = '127.0.0.1') => {
    for (let i = 0; i < count; i++) clients.push(connect(portOf(server), host).on('error', () => {}));
  };
  const untilAccepted = async (count: number) => {
    while (accepted.length < count) await once(server, 'connection');
  };
  /** Until a look finds a connection of its own accepted: that many turns of the event loop. */
  const untilLook = async (isIt: (look: ReturnType<AcceptDelay['look']>) => boolean) => {
    for (;;) {
      const look = delay.look();
      if (isIt(look)) return look;
      await new Promise(setImmediate);
    }
  };
  return { server, delay, waits, accepted, clients, open, untilAccepted, untilLook };
}

function portOf(server: Server): number {
  return (server.address() as { port: number }).port;
}

describe('the wait of new connections', () => {
  it('is not measured while nobody connects', async () => {
    const { server, delay } = await listening();
    let connections = 0;
    server.on('connection', () => connections++);
    for (let i = 0; i < 50; i++) {
      expect(delay.look()).toEqual({ acceptMs: 0, acceptQueue: 0 });
      await new Promise(setImmediate);
    }
    expect(connections).toBe(0);
  });

  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['0.0.0.0', '127.0.0.1'],
    ['::', '::1'],
    ['::', '127.0.0.1'],
  ])('is that of those in the queue, listening at %s', async (host, client) => {
    const { delay, open, untilAccepted, untilLook } = await listening({ host });
    open(1, client);
    await untilAccepted(1);
    open(40, client);
    expect(delay.look().acceptMs).toBe(0);
    // The clock counts those that were accepted before it.
    const { acceptMs, acceptQueue } = await untilLook((look) => look.acceptMs >= 30);
    expect(acceptMs).toBeLessThanOrEqual(41);
    expect(acceptQueue).toBe(acceptMs);
  });

  it('leaves the connections of others alone, and none of its own behind', async () => {
    const { server, delay, open, accepted, clients, untilAccepted, untilLook } = await listening();
    open(1);
    await untilAccepted(1);
    delay.look();
    open(20);
    await untilLook(({ acceptMs }) => acceptMs > 0);
    await untilAccepted(21);
    expect(accepted.every(({ destroyed }) => !destroyed)).toBe(true);
    expect(clients.every(({ destroyed }) => !destroyed)).toBe(true);
    delay.close();
    for (const socket of clients) socket.destroy();
    // Resolves with the last connection.
    await new Promise((resolve) => server.close(resolve));
  });

  it('is that of a connection which the kernel refused to queue, where another one overtook it', async () => {
    const { delay, open, untilAccepted, untilLook } = await listening({ backlog: 1 });
    open(1);
    await untilAccepted(1);
    // Nothing is accepted before this turn is over: two wait, and the rest finds the queue full.
    open(8);
    delay.look();
    await untilAccepted(3);
    const { acceptQueue } = await untilLook(({ acceptMs }) => acceptMs >= 1_000);
    expect(acceptQueue).toBe(Number.POSITIVE_INFINITY);
  });

  it('is watched by a bounded number of connections', async () => {
    const { delay, open, clients, untilAccepted } = await listening({ backlog: 1 });
    open(1);
    await untilAccepted(1);
    open(8);
    const before = process.getActiveResourcesInfo().length;
    for (let i = 0; i < 100; i++) delay.look();
    expect(process.getActiveResourcesInfo().length - before).toBeLessThanOrEqual(32);
    expect(clients.every(({ destroyed }) => !destroyed)).toBe(true);
  });
});
