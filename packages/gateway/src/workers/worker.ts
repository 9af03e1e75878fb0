import { createServer, type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import type { WarmpathError } from '@warmpath/core';
import type { ClientResponse } from '../answer/held-reply.js';
import { type EngineFailure, type RelayedExchange, relay } from '../answer/relay.js';
import { UntouchedBody } from '../answer/response-body.js';
import { RESPONSE_HEADERS, withError } from '../dispatch/headers.js';
import { type ExchangeEnd, Upstream } from '../dispatch/upstream.js';
import { errorShapeOf } from '../intake/apis/error-shape.js';
import { CLIENT_TIMEOUTS, OpenRequests } from '../intake/open-requests.js';
import type { ErrorSource } from '../observe/exchange.js';
import { describeDefect } from '../observe/fail-open.js';
import { OpenTable } from '../observe/open-table.js';
import { Channel, type Frame } from './channel.js';
import {
  ACKNOWLEDGED_BYTES,
  type AnswerHead,
  type Count,
  FRAME,
  type HandedOver,
  type SettledExchange,
  WINDOW_BYTES,
  type WorkerSetup,
} from './messages.js';

// One worker: it has connections of clients, and relays answers of engines. It decides nothing and remembers nothing
// that a request depends on. It ends with the process that decides.

/** The place of the channel among the streams that the process is started with. */
const CHANNEL_FD = 4;
const USAGE_MS = 2_000;
/** Engines whose connections are kept; those that are idle go first. */
const MAX_ENGINES = 1_024;

const exchanges = new OpenTable<ClientExchange>();
/** The setup comes before the first connection does. */
const open = new OpenRequests(
  () => setup!.upstream.timeouts.idleMs,
  () => channel.send(FRAME.readerStalled),
);
const upstreams = new Map<string, { readonly upstream: Upstream; toldRetries: number }>();
let setup: WorkerSetup | undefined;
let isDraining = false;
let connections = 0;

const channel = new Channel(new Socket({ fd: CHANNEL_FD, readable: true, writable: true }), {
  frame: take,
  closed: () => process.exit(0),
});

const server = createServer(CLIENT_TIMEOUTS);
server.on('request', (request, response) => new ClientExchange(request, response));
server.on('clientError', (error, socket) => {
  if (open.refuse(error, socket as Socket)) channel.send(FRAME.malformed);
});
// It never listens, and this is what the watch over slow and idle connections begins with.
server.emit('listening');

process.on('message', (_, socket: Socket | undefined) => {
  if (socket === undefined) return;
  connections++;
  channel.send(FRAME.connected);
  socket.once('close', () => {
    connections--;
    channel.send(FRAME.disconnected);
    endIfDone();
  });
  server.emit('connection', socket);
});
// Whoever started the gateway tells its whole group to end; when this process does, the one that decides says.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
process.on('uncaughtException', (error) => {
  process.stderr.write(`${JSON.stringify({ msg: 'a worker of the gateway broke', ...describeDefect(error) })}\n`);
  process.exit(1);
});
setInterval(tellUsage, USAGE_MS).unref();
tellUsage();
channel.send(FRAME.ready);

function tellUsage(): void {
  const { user, system } = process.cpuUsage();
  channel.send(FRAME.usage, 0, { cpuSeconds: (user + system) / 1e6, residentBytes: process.memoryUsage.rss() });
}

function take({ kind, exchange, head, bytes }: Frame): void {
  if (kind === FRAME.setup) setUp(head as WorkerSetup);
  else if (kind === FRAME.drain) {
    isDraining = true;
    endIfDone();
  } else exchanges.get(exchange)?.take(kind, head, bytes);
}

/** At the start, and when the configuration was read again: then in place, for the engines that are known. */
function setUp(wanted: WorkerSetup): void {
  if (setup === undefined) setup = wanted;
  else Object.assign(setup.upstream.timeouts, wanted.upstream.timeouts);
}

/** Once it drains: closes the connections without a request, and ends with the last one. */
function endIfDone(): void {
  if (!isDraining) return;
  server.closeIdleConnections();
  if (connections > 0) return;
  channel.flush();
  process.exit(0);
}

function upstreamAt(engine: string): { readonly upstream: Upstream; toldRetries: number } {
  let found = upstreams.get(engine);
  if (found === undefined) {
    for (const [url, { upstream }] of upstreams) {
      if (upstreams.size < MAX_ENGINES) break;
      if (upstream.exchanges > 0) continue;
      upstreams.delete(url);
      void upstream.destroy();
    }
    found = { upstream: new Upstream(engine, setup!.upstream), toldRetries: 0 };
    upstreams.set(engine, found);
  }
  return found;
}

/** One request of a client and its answer. */
class ClientExchange {
  readonly #id: number;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #number: number;
  #unread = 0;
  #unacknowledged = 0;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.#request = request;
    this.#response = response;
    this.#id = exchanges.add(this);
    this.#number = open.began(request, response);
    const { method, url, httpVersion, headers } = request;
    channel.send(FRAME.request, this.#id, { method, url, httpVersion, headers });
    request.on('data', (chunk: Buffer) => this.#body(chunk));
    request.on('end', () => channel.send(FRAME.bodyEnd, this.#id));
    request.on('error', () => {});
    response.on('drain', () => this.#tellTaken());
    response.once('close', () => this.#closed());
  }

  take(kind: Frame['kind'], head: unknown, bytes: Buffer): void {
    if (kind === FRAME.relay) this.#relay(head as HandedOver, bytes);
    else if (kind === FRAME.head) this.#head(head as AnswerHead);
    else if (kind === FRAME.data) this.#data(bytes);
    else if (kind === FRAME.end) this.#response.end();
    else if (kind === FRAME.destroy) this.#response.destroy();
    else if (kind === FRAME.read) this.#read((head as Count).bytes);
  }

  #body(chunk: Buffer): void {
    if (this.#response.closed) return;
    channel.send(FRAME.body, this.#id, undefined, chunk);
    this.#unread += chunk.length;
    if (this.#unread >= WINDOW_BYTES) this.#request.pause();
  }

  #read(bytes: number): void {
    this.#unread -= bytes;
    if (this.#unread < WINDOW_BYTES && this.#request.isPaused()) this.#request.resume();
  }

  #head({ status, headers, isFlushed }: AnswerHead): void {
    if (this.#response.destroyed) return;
    this.#response.writeHead(status, isDraining ? { ...headers, connection: 'close' } : headers);
    if (isFlushed) this.#response.flushHeaders();
  }

  #data(bytes: Buffer): void {
    this.#unacknowledged += bytes.length;
    if (this.#response.write(bytes) && this.#unacknowledged >= ACKNOWLEDGED_BYTES) this.#tellTaken();
  }

  #tellTaken(): void {
    if (this.#unacknowledged === 0) return;
    channel.send(FRAME.taken, this.#id, { bytes: this.#unacknowledged });
    this.#unacknowledged = 0;
  }

  #relay(handedOver: HandedOver, bytes: Buffer): void {
    const { engine, method, path, headers, hasBody, reads, ownHeaders, leftOut, movesOn, movesOnAt, tellsFirst } =
      handedOver;
    const since = performance.now();
    const found = upstreamAt(engine);
    const exchange = new Failures();
    const client = new SettledFirst(this.#response, handedOver.setHeaders);
    const errors = errorShapeOf(this.#request.url!);
    let failure: SettledExchange['failure'];
    let end: ExchangeEnd | undefined;
    const upstream: Pick<Upstream, 'start'> = {
      start: (request, listener, options) =>
        found.upstream.start(request, listener, {
          ...options,
          ended: (said) => {
            end = said;
          },
        }),
    };
    const request = { method, path, headers, body: hasBody ? bytes : null };
    relay(
      upstream,
      request,
      { raw: client, exchange },
      {
        headers: () => ({
          ...ownHeaders,
          [RESPONSE_HEADERS.summary]: withError(exchange.errorSource, ownHeaders[RESPONSE_HEADERS.summary] ?? ''),
          ...(isDraining && { connection: 'close' }),
        }),
        leftOut,
        body: new UntouchedBody(errors),
        errors,
        now: () => performance.now(),
        reads,
        onAccepted: () => channel.send(FRAME.accepted, this.#id),
        onFirstData: tellsFirst.data ? () => channel.send(FRAME.firstData, this.#id) : undefined,
        onFirstContent: tellsFirst.content ? () => channel.send(FRAME.firstContent, this.#id) : undefined,
        movesOn:
          movesOn &&
          ((failed) => {
            if (!movesOnAfter(failed, movesOn)) return false;
            failure = 'status' in failed ? failed : { code: failed.error.code, ...causeOf(failed.error) };
            return true;
          }),
        movesOnAt: movesOnAt && new Set(movesOnAt),
        onSettled: ({ status, complete, sniffer, movedOn }) => {
          const { answers, usage, completionTokens, estimatedTokens, prefilled, firstContentAt } = sniffer;
          const { errorCode, errorSource } = exchange;
          const retries = found.upstream.retries - found.toldRetries;
          found.toldRetries += retries;
          const settled: SettledExchange = {
            status,
            complete,
            failure: movedOn ? failure : undefined,
            sniffed: { answers, usage, completionTokens, estimatedTokens, prefilled },
            firstContentMs: firstContentAt === undefined ? undefined : firstContentAt - since,
            errorCode,
            errorSource,
            end,
            retries,
          };
          channel.send(FRAME.settled, this.#id, settled);
          // A client that has its whole answer may go on through another worker: by then, this is to be known.
          channel.flush();
          client.settled();
        },
      },
    );
  }

  #closed(): void {
    exchanges.delete(this.#id);
    open.ended(this.#number);
    const { statusCode, writableFinished } = this.#response;
    channel.send(FRAME.closed, this.#id, { status: statusCode, isFinished: writableFinished });
    // The connection counts as idle once this event is over.
    if (isDraining) setImmediate(endIfDone);
  }
}

/** What a relay notes of an exchange, for the process that decides. */
class Failures implements RelayedExchange {
  errorCode: RelayedExchange['errorCode'];
  errorSource: ErrorSource | undefined;

  failed(code: NonNullable<RelayedExchange['errorCode']>, source: ErrorSource): void {
    this.errorCode = code;
    this.errorSource = source;
  }
}

/** The response to a client, whose end waits until the process that decides knows that the exchange is settled. */
class SettledFirst implements ClientResponse {
  readonly #response: ServerResponse;
  readonly #setHeaders: OutgoingHttpHeaders;
  /** No function that ends it: one in a field kept every request alive until the next full collection. */
  #hasEnded = false;
  #rest: Buffer | string | undefined;

  constructor(response: ServerResponse, setHeaders: OutgoingHttpHeaders) {
    this.#response = response;
    this.#setHeaders = setHeaders;
  }

  get destroyed(): boolean {
    return this.#response.destroyed;
  }

  get headersSent(): boolean {
    return this.#response.headersSent;
  }

  get writableFinished(): boolean {
    return this.#response.writableFinished;
  }

  on(event: 'drain', listener: () => void): void {
    this.#response.on(event, listener);
  }

  once(event: 'close', listener: () => void): void {
    this.#response.once(event, listener);
  }

  prependListener(event: 'close', listener: () => void): void {
    this.#response.prependListener(event, listener);
  }

  removeListener(event: 'close', listener: () => void): void {
    this.#response.removeListener(event, listener);
  }

  writeHead(status: number, headers: OutgoingHttpHeaders): void {
    this.#response.writeHead(status, { ...this.#setHeaders, ...headers });
  }

  flushHeaders(): void {
    // The turn is remembered before its client hears of it.
    channel.flush();
    this.#response.flushHeaders();
  }

  write(data: Buffer | string, callback?: (error?: Error | null) => void): boolean {
    return this.#response.write(data, callback);
  }

  end(data?: Buffer | string): void {
    this.#hasEnded = true;
    this.#rest = data;
  }

  destroy(): void {
    this.#response.destroy();
  }

  settled(): void {
    if (this.#hasEnded) this.#response.end(this.#rest);
  }
}

function movesOnAfter(failure: EngineFailure, may: NonNullable<HandedOver['movesOn']>): boolean {
  if ('status' in failure) return may.status;
  const { code } = failure.error;
  const { cause } = causeOf(failure.error);
  if (code === 'WARMPATH_UPSTREAM_UNREACHABLE' || cause === 'UND_ERR_CONNECT_TIMEOUT') return may.unsent;
  // One that did not answer in time may be computing still, and so would the next one.
  return code !== 'WARMPATH_UPSTREAM_TIMEOUT' && may.begun;
}

function causeOf({ cause }: WarmpathError): { readonly cause?: string } {
  const code: unknown = (cause as NodeJS.ErrnoException | undefined)?.code;
  return typeof code === 'string' ? { cause: code } : {};
}
