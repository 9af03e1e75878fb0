import { closeSync, openSync, readlinkSync, readSync } from 'node:fs';
import type { AddressInfo, Server } from 'node:net';

/** As many that wait, or come between two looks, are a crowd. */
const CROWD = 8;

/** Sockets that listen come first in the table, and a line has 150 bytes: some 400 of them are looked through. */
const PAGE_BYTES = 4_096;
const MOST_PAGES = 16;
/**
 * The line of a socket that listens (0A): where others have the bytes that they were sent, the connections that wait;
 * then timers, retries, the user, and the socket's own number.
 */
const lineOf = (inode: string): RegExp => new RegExp(` 0A \\w{8}:(\\w{8}) \\S+ \\S+ +\\d+ +\\d+ ${inode} `);

export interface AcceptQueueParts {
  /** The monotonic clock of the process, in milliseconds. */
  readonly now: () => number;
  /** Called whenever a look finds that many connections wait, or came since the last one. */
  readonly crowded: () => void;
}

/** What new connections wait for, as far as the kernel tells. */
export interface AcceptWait {
  /** Connections that wait to be accepted. */
  readonly acceptQueue: number;
  /** Milliseconds that the last of them will have waited, at the pace of the last looks. */
  readonly acceptMs: number;
}

const NONE: AcceptWait = { acceptQueue: 0, acceptMs: 0 };

/**
 * How many new connections wait in the kernel's queue. The event loop accepts one connection per turn (libuv 1.45 and
 * later) or a few (`ListeningHandles`), so a queue of thousands may stand before a loop whose turns are short. Linux
 * tells its length in the table of its sockets: some 40 µs a look, none while nobody connects. Elsewhere no queue is
 * seen.
 */
export class AcceptQueue {
  readonly #server: Server;
  readonly #parts: AcceptQueueParts;
  /** Connections accepted since the last look. */
  #accepted = 0;
  #lookedAt: number;
  /** How many were accepted in how many milliseconds; what was before the last look counts half. */
  readonly #pace = { accepted: 0, ms: 0 };
  /** When a look last found nobody waiting. */
  #emptyAt: number;
  #queue = 0;
  #table: SocketTable | undefined;
  readonly #onConnection = (): void => {
    this.#accepted++;
  };

  /** @param server listens at an address and port by the time something connects */
  constructor(server: Server, parts: AcceptQueueParts) {
    this.#server = server;
    this.#parts = parts;
    this.#lookedAt = parts.now();
    this.#emptyAt = this.#lookedAt;
    server.on('connection', this.#onConnection);
  }

  look(): AcceptWait {
    const now = this.#parts.now();
    const accepted = this.#accepted;
    const pace = this.#pace;
    pace.accepted = pace.accepted / 2 + accepted;
    pace.ms = pace.ms / 2 + now - this.#lookedAt;
    this.#accepted = 0;
    this.#lookedAt = now;
    if (accepted > 0 || this.#queue > 0) {
      this.#table ??= new SocketTable(this.#server);
      this.#queue = this.#table.waiting();
    }
    if (this.#queue + accepted >= CROWD) this.#parts.crowded();
    if (this.#queue === 0) {
      this.#emptyAt = now;
      return NONE;
    }
    // In a long turn few are accepted, which says little: nobody has waited since before the queue was empty.
    const acceptMs = Math.min((this.#queue * pace.ms) / pace.accepted, now - this.#emptyAt);
    return { acceptQueue: this.#queue, acceptMs };
  }

  close(): void {
    this.#server.off('connection', this.#onConnection);
    this.#table?.close();
    this.#table = undefined;
    this.#queue = 0;
  }
}

/** Linux's table of TCP sockets, for the line of one that listens. */
class SocketTable {
  /** `undefined` where there is no such table. */
  readonly #file: number | undefined;
  readonly #line: RegExp | undefined;
  readonly #page = Buffer.allocUnsafe(PAGE_BYTES);

  constructor(server: Server) {
    const { fd } = (server as unknown as { readonly _handle: { readonly fd: number } })._handle;
    const isIpv6 = (server.address() as AddressInfo).family === 'IPv6';
    try {
      const link = readlinkSync(`/proc/self/fd/${fd}`);
      this.#line = lineOf(link.slice(link.indexOf('[') + 1, -1));
      this.#file = openSync(`/proc/self/net/${isIpv6 ? 'tcp6' : 'tcp'}`, 'r');
    } catch {
      // Another system than Linux.
    }
  }

  /** Connections that wait for the socket to accept them; 0 where nobody tells. */
  waiting(): number {
    if (this.#file === undefined || this.#line === undefined) return 0;
    for (let page = 0, position = 0; page < MOST_PAGES; page++) {
      const read = readSync(this.#file, this.#page, 0, PAGE_BYTES, position);
      const text = this.#page.toString('latin1', 0, read);
      const found = this.#line.exec(text)?.[1];
      if (found !== undefined) return Number.parseInt(found, 16);
      // Whole lines, the next page from the first that is not.
      const lines = text.lastIndexOf('\n') + 1;
      if (lines === 0) return 0;
      position += lines;
    }
    return 0;
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
  }
}
