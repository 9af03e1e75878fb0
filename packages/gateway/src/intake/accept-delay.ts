import { connect, type Server, type Socket } from 'node:net';

/** Connections of its own that it has open at once: one a look, so that they cover more than a second. */
const MOST_PROBES = 16;
/** What the kernel waits before it asks again for a connection that found the queue full, in milliseconds. */
const RETRANSMIT_MS = 1_000;

/** Such a wait, in milliseconds, behind so many others is a queue; one without them is a long turn of the loop. */
const QUEUE = { waitMs: 50, connections: 8 };

export interface AcceptDelayParts {
  /** The monotonic clock of the process, in milliseconds. */
  readonly now: () => number;
  /** Called whenever a look finds that connections wait for others to be accepted. */
  readonly waited: () => void;
}

interface Probe {
  readonly socket: Socket;
  readonly startedAt: number;
  /** Connections of others that had been accepted by then. */
  readonly accepted: number;
}

/**
 * Measures how long new connections wait in the kernel's queue. The event loop accepts one connection per turn (libuv
 * 1.45 and later) or a few (`ListeningHandles`), so a queue of thousands may stand before a loop whose turns are short.
 * Nobody tells how long that queue is. Therefore this connects to the server's own port at each look, while others
 * connect, and takes the time until its connection is accepted. Connections are accepted in the order in which they
 * came: one that is overtaken found the queue full.
 */
export class AcceptDelay {
  readonly #server: Server;
  readonly #parts: AcceptDelayParts;
  /** Those that were not accepted yet, the oldest first. */
  #probes: Probe[] = [];
  /** What the latest one that was accepted had waited, and how many were accepted before it. */
  #waitedMs = 0;
  #stoodBehind = 0;
  #hasOverflowed = false;
  /** Connections of others that were accepted, and how many of them at the last look. */
  #accepted = 0;
  #acceptedBefore = 0;
  readonly #onConnection = (socket: Socket): void => {
    if (!this.#isOwn(socket)) this.#accepted++;
  };

  /** @param server listens at an address and port */
  constructor(server: Server, parts: AcceptDelayParts) {
    this.#server = server;
    this.#parts = parts;
    // Before whoever serves connections: there is nothing to serve in these.
    server.prependListener('connection', this.#onConnection);
  }

  /**
   * Milliseconds that a connection waits, and how many are accepted meanwhile, as far as is known. Starts the next
   * measurement.
   */
  look(): { readonly acceptMs: number; readonly acceptQueue: number } {
    const now = this.#parts.now();
    const oldest = this.#probes[0];
    const openMs = oldest === undefined ? 0 : now - oldest.startedAt;
    const openBehind = oldest === undefined ? 0 : this.#accepted - oldest.accepted;
    const acceptMs = Math.max(this.#waitedMs, openMs) + (this.#hasOverflowed ? RETRANSMIT_MS : 0);
    const acceptQueue = this.#hasOverflowed ? Number.POSITIVE_INFINITY : Math.max(this.#stoodBehind, openBehind);
    const isBusy = this.#accepted > this.#acceptedBefore || oldest !== undefined;
    this.#acceptedBefore = this.#accepted;
    this.#waitedMs = 0;
    this.#stoodBehind = 0;
    this.#hasOverflowed = false;
    if (acceptMs > QUEUE.waitMs && acceptQueue >= QUEUE.connections) this.#parts.waited();
    if (isBusy && this.#probes.length < MOST_PROBES) this.#probe(now);
    return { acceptMs, acceptQueue };
  }

  close(): void {
    this.#server.off('connection', this.#onConnection);
    for (const { socket } of this.#probes) socket.destroy();
    this.#probes = [];
  }

  #probe(startedAt: number): void {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') return;
    const isAny = address.address === '0.0.0.0' || address.address === '::';
    const loopback = address.family === 'IPv6' ? '::1' : '127.0.0.1';
    const probe = {
      socket: connect(address.port, isAny ? loopback : address.address),
      startedAt,
      accepted: this.#accepted,
    };
    // Files or ports may have run out, which the next one finds out again.
    probe.socket.on('error', () => {
      this.#probes = this.#probes.filter((other) => other !== probe);
    });
    probe.socket.unref();
    this.#probes.push(probe);
  }

  /** Whether a connection that was accepted is one of these, which then is over. */
  #isOwn(accepted: Socket): boolean {
    if (this.#probes.length === 0) return false;
    const { remotePort, remoteAddress } = accepted;
    const probe = this.#probes.find(
      ({ socket }) => socket.localPort === remotePort && socket.localAddress === unmapped(remoteAddress),
    );
    if (probe === undefined) return false;
    this.#waitedMs = this.#parts.now() - probe.startedAt;
    this.#stoodBehind = this.#accepted - probe.accepted;
    const overtaken = this.#probes.splice(0, this.#probes.indexOf(probe) + 1).slice(0, -1);
    if (overtaken.length > 0) this.#hasOverflowed = true;
    for (const { socket } of overtaken) socket.destroy();
    // Both ends go without the wait in which a port stays taken.
    probe.socket.resetAndDestroy();
    accepted.destroy();
    return true;
  }
}

/** An IPv4 address as it shows at a socket of both families, without what marks it. */
function unmapped(address: string | undefined): string | undefined {
  return address?.replace(/^::ffff:/, '');
}
