import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';

/** Connections that a turn of the event loop accepts beside the first. */
const MORE = 15;

/** The process that sends a handle back. */
const RETURNING_PROCESS = new URL('../../dist/intake/listening-handles-process.js', import.meta.url);

/**
 * Lets the event loop accept several connections a turn. libuv (1.45 and later) accepts one a turn for each handle of a
 * listening socket, and a turn that relays hundreds of streams takes tens of milliseconds: 300 connections waited 8.4 s
 * where turns took 20 ms, and 1.2 s with eight handles. Node.js copies a handle only into another process. So a child
 * is sent the server's handle, sends it back so many times, and ends: a quarter of a second, spent when connections
 * wait for the first time. Where that fails, one connection a turn is accepted as before.
 */
export class ListeningHandles {
  readonly #server: Server;
  readonly #backlog: number;
  readonly #listeners: Server[] = [];
  #child: ChildProcess | undefined;
  #isClosed = false;

  /** @param server what serves the connections; it listens */
  constructor(server: Server, backlog: number) {
    this.#server = server;
    this.#backlog = backlog;
  }

  /** Handles beside the server's own. */
  get size(): number {
    return this.#listeners.length;
  }

  /** Has connections wait less from soon on. What it began once it does not begin again. */
  open(): void {
    if (this.#child !== undefined || this.#isClosed) return;
    const { _handle: handle } = this.#server as { _handle?: unknown };
    const child = fork(RETURNING_PROCESS, { execArgv: [], env: {}, stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
    this.#child = child;
    // Without a second process there are no more handles.
    child.on('error', () => {});
    child.on('message', (_, returned) => this.#listen(returned));
    child.unref();
    child.channel?.unref();
    // Not a server, which would accept connections in that process, but what it has beneath.
    child.send(MORE, handle as Server, () => {});
  }

  /** Resolves when every connection that came by these handles is closed. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#child?.kill();
    const closed = this.#listeners.map((listener) => once(listener, 'close'));
    for (const listener of this.#listeners) listener.close();
    await Promise.all(closed);
  }

  #listen(returned: unknown): void {
    // As Node.js's HTTP server has its sockets.
    const listener = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.#server.emit('connection', socket);
    });
    listener.on('error', () => {});
    listener.listen(returned, this.#backlog);
    if (this.#isClosed) listener.close();
    else this.#listeners.push(listener);
  }
}
