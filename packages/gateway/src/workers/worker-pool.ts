import { type ChildProcess, fork } from 'node:child_process';
import { createServer, type Server as HttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Server, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import { CLIENT_TIMEOUTS } from '../intake/open-requests.js';
import { OpenTable } from '../observe/open-table.js';
import type { Log } from '../operate/log.js';
import { Channel, type Frame } from './channel.js';
import {
  type ClosedAnswer,
  type Count,
  FRAME,
  type RequestHead,
  type SettledExchange,
  type WorkerSetup,
  type WorkerUsage,
} from './messages.js';
import { RemoteExchange } from './remote-exchange.js';

/** The built file, from the sources as well: a process cannot be started from TypeScript. */
const WORKER = new URL('../../dist/workers/worker.js', import.meta.url);
/** Milliseconds before a worker that ended is started again; doubled each time, up to the last. */
const FIRST_RESTART_MS = 100;
const LAST_RESTART_MS = 10_000;
/** A worker that lived as long as this ended for a reason of its own. */
const SETTLED_MS = 10_000;
/** Milliseconds that the first start of the workers may take before the gateway serves without them. */
const START_MS = 10_000;

/** What serves a request: Fastify's own handler. */
type Handler = (request: IncomingMessage, response: ServerResponse) => void;

export interface WorkerPoolOptions {
  readonly count: number;
  readonly log: Log;
  readonly setup: WorkerSetup;
  /** A client sent what is not HTTP. */
  readonly malformed: () => void;
  /** An answer was ended because its client took nothing of it. */
  readonly readerStalled: () => void;
}

/**
 * Processes that have the connections of clients and relay the answers of engines, while this one decides. Connections
 * are accepted here and go to the worker that has fewest; where there is none, this process serves them itself. A
 * worker that ends takes its connections along, and is started again.
 */
export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #workers: (Worker | undefined)[];
  readonly #restarts = new Set<NodeJS.Timeout>();
  #handler: Handler | undefined;
  /** Takes a connection that has no worker. */
  #take: ((socket: Socket) => void) | undefined;
  #failures = 0;
  #restarted = 0;
  /** CPU of workers that ended. */
  #pastCpuSeconds = 0;
  #isDraining = false;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
    this.#workers = Array.from({ length: options.count }, () => undefined);
  }

  /** Workers that take connections. */
  get ready(): number {
    return this.#living.filter(({ isReady }) => isReady).length;
  }

  /** Workers that were started again, since the start. */
  get restarts(): number {
    return this.#restarted;
  }

  /** CPU time of all workers, those that ended included, and the memory of those that live; seconds old at most. */
  get usage(): WorkerUsage {
    let [cpuSeconds, residentBytes] = [this.#pastCpuSeconds, 0];
    for (const { usage } of this.#living) {
      cpuSeconds += usage.cpuSeconds;
      residentBytes += usage.residentBytes;
    }
    return { cpuSeconds, residentBytes };
  }

  get #living(): readonly Worker[] {
    return this.#workers.filter((worker) => worker !== undefined);
  }

  /** A server that hands its connections to the workers. `handler` serves requests, also those that workers tell. */
  serverFor(handler: Handler): AcceptingServer {
    this.#handler = handler;
    const server = new AcceptingServer(handler, { pass: (socket) => this.#pass(socket), kill: () => this.kill() });
    this.#take = (socket) => server.take(socket);
    return server;
  }

  /** Starts the workers, after `serverFor`. Resolves when they take connections. */
  async start(): Promise<void> {
    const started = this.#workers.map((_, place) => this.#start(place).ready);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, START_MS);
    });
    await Promise.race([Promise.all(started), late]);
    clearTimeout(timer);
  }

  /** Gives a connection to the worker that has fewest; false where there is none. */
  #pass(socket: Socket): boolean {
    let least: Worker | undefined;
    for (const worker of this.#living) {
      if (worker.isReady && worker.connections < (least?.connections ?? Number.POSITIVE_INFINITY)) least = worker;
    }
    least?.accept(socket);
    return least !== undefined;
  }

  /** The setup has changed in place. */
  setUp(): void {
    for (const worker of this.#living) worker.setUp();
  }

  /** The workers answer what they have and end. Resolves when all have. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    for (const restart of this.#restarts) clearTimeout(restart);
    await Promise.all(this.#living.map((worker) => worker.drain()));
  }

  /** Ends the workers at once. */
  kill(): void {
    for (const worker of this.#living) worker.kill();
  }

  #start(place: number): Worker {
    const worker = new Worker({
      ...this.#options,
      serve: (exchange) => this.#handler!(exchange.request as never, exchange.response as never),
      left: (socket) => this.#take?.(socket),
      ended: (reason) => this.#ended(place, worker, reason),
    });
    this.#workers[place] = worker;
    return worker;
  }

  #ended(place: number, worker: Worker, reason: string): void {
    this.#workers[place] = undefined;
    this.#pastCpuSeconds += worker.usage.cpuSeconds;
    if (this.#isDraining) return;
    const isOld = performance.now() - worker.since > SETTLED_MS;
    this.#failures = isOld ? 0 : this.#failures + 1;
    this.#restart(place, { pid: worker.pid, reason });
  }

  #restart(place: number, ended: { readonly pid: number | undefined; readonly reason: string }): void {
    const delayMs = Math.min(LAST_RESTART_MS, FIRST_RESTART_MS * 2 ** Math.max(0, this.#failures - 1));
    this.#options.log.error({ ...ended, restartsInMs: delayMs }, 'worker ended');
    const restart = setTimeout(() => {
      this.#restarts.delete(restart);
      try {
        this.#start(place);
        this.#restarted++;
      } catch (cause) {
        // Without files or memory for another process Node.js throws; there may be some later.
        this.#failures++;
        this.#restart(place, { pid: undefined, reason: `it cannot be started: ${(cause as Error).message}` });
      }
    }, delayMs);
    this.#restarts.add(restart);
  }
}

/** What Fastify listens with: connections go to the workers, and to a server of this process where there is none. */
class AcceptingServer extends Server {
  readonly #own: HttpServer;
  readonly #workers: { pass(socket: Socket): boolean; kill(): void };

  constructor(handler: Handler, workers: { pass(socket: Socket): boolean; kill(): void }) {
    // Nothing is read of a connection before whoever serves it does.
    super({ pauseOnConnect: true, noDelay: true, allowHalfOpen: true });
    this.#workers = workers;
    this.#own = createServer(CLIENT_TIMEOUTS, handler);
    this.#own.on('clientError', (error, socket) => this.emit('clientError', error, socket));
    // It never listens, and this is what the watch over slow and idle connections begins with.
    this.#own.emit('listening');
    this.on('connection', (socket: Socket) => this.take(socket));
    this.once('close', () => this.#own.close());
  }

  take(socket: Socket): void {
    if (socket.destroyed) return;
    if (!this.listening) socket.destroy();
    else if (!this.#workers.pass(socket)) {
      this.#own.emit('connection', socket);
      socket.resume();
    }
  }

  closeIdleConnections(): void {
    this.#own.closeIdleConnections();
  }

  /** Those of the workers, too. */
  closeAllConnections(): void {
    this.#own.closeAllConnections();
    this.#workers.kill();
  }
}

interface WorkerParts extends WorkerPoolOptions {
  readonly serve: (exchange: RemoteExchange) => void;
  /** A connection that it was to get and did not. */
  readonly left: (socket: Socket) => void;
  readonly ended: (reason: string) => void;
}

/** One worker process, as the process that decides sees it. */
class Worker {
  /** On the monotonic clock: the time of day may jump. */
  readonly since = performance.now();
  readonly ready: Promise<void>;
  isReady = false;
  connections = 0;
  usage: WorkerUsage = { cpuSeconds: 0, residentBytes: 0 };
  readonly #parts: WorkerParts;
  readonly #process: ChildProcess;
  readonly #channel: Channel;
  #exchanges = new OpenTable<RemoteExchange>();
  /** Connections on their way to the process; it has got none of them yet, but perhaps the first. */
  readonly #passing: Socket[] = [];
  readonly #over: Promise<void>;
  #isOver = false;
  #becameReady: () => void = () => {};
  #becameOver: () => void = () => {};

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.ready = new Promise((resolve) => {
      this.#becameReady = resolve;
    });
    this.#over = new Promise((resolve) => {
      this.#becameOver = resolve;
    });
    this.#process = fork(WORKER, { execArgv: [], stdio: ['ignore', 'inherit', 'inherit', 'ipc', 'pipe'] });
    const { stdio } = this.#process as { readonly stdio?: ChildProcess['stdio'] };
    if (stdio === undefined) {
      // Which Node.js tells by an event as well.
      this.#process.on('error', () => {});
      throw new Error('no more files can be opened');
    }
    this.#channel = new Channel(stdio[4] as Duplex, {
      frame: (frame) => this.#take(frame),
      closed: () => this.#lost(),
    });
    this.#process.on('error', (error: NodeJS.ErrnoException) => {
      if (this.pid === undefined) this.#end(`it cannot be started: ${error.code}`);
    });
    this.#process.once('exit', (code, signal) => this.#end(signal ?? `status ${code}`));
    this.setUp();
  }

  /** Tells the process what it works with, again where that has changed. */
  setUp(): void {
    this.#channel.send(FRAME.setup, 0, this.#parts.setup);
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  accept(socket: Socket): void {
    this.connections++;
    this.#passing.push(socket);
    if (this.#passing.length === 1) this.#pass(socket);
  }

  /** One at a time, and open here until the process says that it has it: Node forgets what a dying one did not get. */
  #pass(socket: Socket): void {
    this.#process.send('connection', socket, { keepOpen: true }, () => {});
  }

  /** Resolves when the process has ended. */
  drain(): Promise<void> {
    this.isReady = false;
    this.#channel.send(FRAME.drain);
    this.#channel.flush();
    return this.#over;
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }

  #end(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#lost();
    this.#becameReady();
    this.#becameOver();
    this.#parts.ended(reason);
  }

  /** The process is gone: so are its clients. */
  #lost(): void {
    this.isReady = false;
    // The process may have read of the first one.
    const [first, ...waiting] = this.#passing.splice(0);
    first?.destroy();
    for (const socket of waiting) this.#parts.left(socket);
    const open = this.#exchanges.values();
    this.#exchanges = new OpenTable();
    for (const exchange of open) exchange.lost();
    this.#channel.destroy();
  }

  #take({ kind, exchange, head, bytes }: Frame): void {
    if (kind === FRAME.request) {
      const open = new RemoteExchange(this.#channel, exchange, head as RequestHead);
      this.#exchanges.set(exchange, open);
      this.#parts.serve(open);
    } else if (kind === FRAME.ready) {
      this.isReady = true;
      this.#becameReady();
    } else if (kind === FRAME.connected) {
      this.#passing.shift()?.destroy();
      if (this.#passing.length > 0) this.#pass(this.#passing[0]!);
    } else if (kind === FRAME.usage) this.usage = head as WorkerUsage;
    else if (kind === FRAME.malformed) this.#parts.malformed();
    else if (kind === FRAME.readerStalled) this.#parts.readerStalled();
    else if (kind === FRAME.disconnected) this.connections--;
    else {
      const open = this.#exchanges.get(exchange);
      if (open !== undefined) this.#takeOf(open, { kind, exchange, head, bytes });
    }
  }

  #takeOf(open: RemoteExchange, { kind, exchange, head, bytes }: Frame): void {
    const { request, response } = open;
    if (kind === FRAME.body) request.body(bytes);
    else if (kind === FRAME.bodyEnd) request.bodyEnd();
    else if (kind === FRAME.taken) response.taken((head as Count).bytes);
    else if (kind === FRAME.accepted) response.accepted();
    else if (kind === FRAME.firstData) response.firstData();
    else if (kind === FRAME.firstContent) response.firstContent();
    else if (kind === FRAME.settled) response.settled(head as SettledExchange);
    else if (kind === FRAME.closed) {
      this.#exchanges.delete(exchange);
      open.closed(head as ClosedAnswer);
    }
  }
}
