import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { turnAt } from '../../core/test/conformance/conversation-store.cases.js';
import { RedisServer } from '../../gateway/test/redis-server.js';
import type { RedisConversationStore } from '../src/redis-conversation-store.js';
import { closing, openStore } from './stores.js';

const NAME = { tenant: 'a', session: 's' };
const [FIRST, SECOND] = [turnAt('1'), turnAt('2', 'second-turn', turnAt('1'))];
const THIRD = turnAt('3', 'third-turn', SECOND);
let server: RedisServer;
let prefixes = 0;

beforeAll(async () => {
  server = await RedisServer.start();
});

afterAll(() => server.close());

const openPair = async (gate: Gate) => {
  const prefix = `test${++prefixes}:`;
  return [await openStore({ url: gate.url, prefix }), await openStore({ url: server.url, prefix })] as const;
};

/** A TCP proxy before the server that holds back a command and all that are sent after it. */
class Gate {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #stop: { readonly text: string; readonly reached: () => void } | undefined;
  #held: (() => void)[] = [];

  private constructor(server: Server) {
    this.#server = server;
  }

  static async before(port: number): Promise<Gate> {
    const listening = createServer().listen(0, '127.0.0.1');
    await once(listening, 'listening');
    const gate = new Gate(listening);
    listening.on('connection', (near) => gate.#join(near, connect(port, '127.0.0.1')));
    return gate;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Holds the next command in which this text stands. Settles when it is there. */
  holdAt(text: string): Promise<void> {
    return new Promise((reached) => {
      this.#stop = { text, reached };
    });
  }

  /** Lets pass what was held. */
  open(): void {
    const held = this.#held;
    this.#held = [];
    for (const pass of held) pass();
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #join(near: Socket, far: Socket): void {
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => other.destroy());
    }
    far.pipe(near);
    near.on('data', (chunk) => {
      const stop = this.#stop;
      if (stop !== undefined && chunk.includes(stop.text)) {
        this.#stop = undefined;
        this.#held.push(() => far.write(chunk));
        stop.reached();
      } else if (this.#held.length > 0) this.#held.push(() => far.write(chunk));
      else far.write(chunk);
    });
  }
}

/** Waits until the server has all that a store writes for what it was told: what it lost and is told again, too. */
async function settle(store: RedisConversationStore): Promise<void> {
  // The first round brings what is missing to light, the second what was forgotten, the third is behind the repair.
  for (let round = 0; round < 4; round++) await store.find(NAME, [], 0);
}

/** The links of the turns that an export holds. */
async function exported(store: RedisConversationStore): Promise<readonly string[]> {
  const links: string[] = [];
  for await (const { turns } of store.export({})) links.push(...turns.map(({ link }) => link));
  return links.toSorted();
}

/** One gateway, behind a gate, forgets. Its walk is held until another has forgotten, too, and found all again. */
async function forgetWhileFound() {
  const gate = closing(await Gate.before(server.port));
  const [remover, other] = await openPair(gate);
  other.sent(NAME, FIRST, 0);
  await settle(other);
  const walk = gate.holdAt('SCAN');
  const forgetting = remover.forget(NAME);
  await walk;
  await expect.poll(() => other.turns).toBe(0);
  expect((await other.find(NAME, ['1'], 0))('1')).toEqual([FIRST]);
  return { gate, other, forgetting };
}

describe('a conversation that is forgotten', () => {
  it('does not come back through a gateway that found it while it was being removed', async () => {
    const { gate, other, forgetting } = await forgetWhileFound();
    gate.open();
    expect(await forgetting).toBe(1);
    other.sent(NAME, SECOND, 0);
    await settle(other);
    expect(await exported(other)).toEqual(['2']);
  });

  it('is removed again where it was written back before the others are told again', async () => {
    const { gate, other, forgetting } = await forgetWhileFound();
    const toldAgain = gate.holdAt('forgotten');
    gate.open();
    await toldAgain;
    other.sent(NAME, SECOND, 0);
    await settle(other);
    expect(await exported(other)).toEqual(['1', '2']);
    gate.open();
    expect(await forgetting).toBe(1);
    expect(await exported(other)).toEqual([]);
    other.sent(NAME, THIRD, 0);
    await settle(other);
    expect(await exported(other)).toEqual(['3']);
  });

  it('does not come back with a turn that is on its way meanwhile', async () => {
    const gate = closing(await Gate.before(server.port));
    const [late, remover] = await openPair(gate);
    late.sent(NAME, FIRST, 0);
    await settle(late);
    const underway = gate.holdAt(SECOND.id);
    late.sent(NAME, SECOND, 0);
    await underway;
    expect(await remover.forget(NAME)).toBe(1);
    gate.open();
    await settle(late);
    expect(await exported(remover)).toEqual(['2']);
  });
});
