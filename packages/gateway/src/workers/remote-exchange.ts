import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import { Readable, Writable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import type { ClientResponse } from '../answer/held-reply.js';
import type { EngineFailure, RelayOptions } from '../answer/relay.js';
import { UntouchedBody } from '../answer/response-body.js';
import type { SniffedAnswer } from '../answer/response-sniffer.js';
import type { Upstream, UpstreamRequest, UpstreamTracking } from '../dispatch/upstream.js';
import type { Exchange } from '../observe/exchange.js';
import type { Channel } from './channel.js';
import {
  ACKNOWLEDGED_BYTES,
  type ClosedAnswer,
  FRAME,
  type HandedOver,
  type RequestHead,
  type SettledExchange,
  WINDOW_BYTES,
} from './messages.js';

/** Where the messages of one exchange go. */
interface Line {
  readonly channel: Channel;
  readonly exchange: number;
}

/** One request of a client whose connection a worker has: what Fastify takes for Node's own request and response. */
export class RemoteExchange {
  readonly request: RemoteRequest;
  readonly response: RemoteResponse;

  constructor(channel: Channel, exchange: number, head: RequestHead) {
    const line = { channel, exchange };
    this.request = new RemoteRequest(line, head);
    this.response = new RemoteResponse(line);
  }

  /** The client has its answer, or is gone. */
  closed(closed: ClosedAnswer): void {
    this.request.left();
    this.response.ended(closed);
  }

  /** The worker is gone, and the client with it. */
  lost(): void {
    this.request.left();
    this.response.lost();
  }
}

/** A request as a worker tells it; stands for an `IncomingMessage`. */
class RemoteRequest extends Readable {
  readonly method: string;
  readonly url: string;
  readonly httpVersion: string;
  readonly httpVersionMajor = 1;
  readonly headers: IncomingHttpHeaders;
  /** What is open on one connection only the worker knows: each request has a connection of its own here. */
  readonly socket = {};
  complete = false;
  readonly #line: Line;
  #read = 0;
  #isRead = true;

  constructor(line: Line, { method, url, httpVersion, headers }: RequestHead) {
    super();
    this.#line = line;
    this.method = method;
    this.url = url;
    this.httpVersion = httpVersion;
    this.headers = headers;
  }

  body(chunk: Buffer): void {
    this.#read += chunk.length;
    this.#isRead = this.push(chunk);
    this.#tell();
  }

  bodyEnd(): void {
    this.complete = true;
    this.push(null);
  }

  /** Nothing more comes of it. */
  left(): void {
    // One that has come and was not read yet would never end for its reader either.
    const isHeard = !this.readableEnded && this.listenerCount('error') > 0;
    this.destroy(isHeard ? new WarmpathError('WARMPATH_CLIENT_CLOSED') : undefined);
  }

  override _read(): void {
    this.#isRead = true;
    this.#tell();
  }

  #tell(): void {
    if (!this.#isRead || this.#read < ACKNOWLEDGED_BYTES) return;
    this.#line.channel.send(FRAME.read, this.#line.exchange, { bytes: this.#read });
    this.#read = 0;
  }
}

/** An exchange with an engine that the worker has. */
interface ExchangeElsewhere {
  readonly exchange: Exchange;
  readonly options: RelayOptions;
  readonly tracking: UpstreamTracking;
  readonly since: number;
}

/** An answer that goes through a worker; stands for a `ServerResponse`. */
export class RemoteResponse extends Writable implements ClientResponse {
  statusCode = 200;
  headersSent = false;
  readonly #line: Line;
  readonly #headers: OutgoingHttpHeaders = {};
  #head: OutgoingHttpHeaders | undefined;
  #isHeadTold = false;
  #untaken = 0;
  #held: (() => void) | undefined;
  #finish: (() => void) | undefined;
  #elsewhere: ExchangeElsewhere | undefined;
  /** Whether the worker wrote the answer by itself. */
  #isWrittenElsewhere = false;
  #isClosed = false;

  constructor(line: Line) {
    super({ highWaterMark: WINDOW_BYTES });
    this.#line = line;
    // As with Node's own: what is written to a client that is gone is nobody's.
    this.on('error', () => {});
  }

  setHeader(name: string, value: number | string | readonly string[]): this {
    this.#headers[name.toLowerCase()] = value as string | string[];
    return this;
  }

  getHeader(name: string): OutgoingHttpHeaders[string] {
    return this.#headers[name.toLowerCase()];
  }

  getHeaders(): OutgoingHttpHeaders {
    return { ...this.#headers };
  }

  hasHeader(name: string): boolean {
    return name.toLowerCase() in this.#headers;
  }

  removeHeader(name: string): void {
    delete this.#headers[name.toLowerCase()];
  }

  writeHead(status: number, headers: OutgoingHttpHeaders = {}): this {
    this.statusCode = status;
    this.headersSent = true;
    this.#head = { ...this.#headers, ...headers };
    return this;
  }

  flushHeaders(): void {
    this.#tellHead(true);
  }

  /** The engine's answer goes from the worker to the client by itself, if it goes as it is. */
  takeOver(upstream: Upstream, request: UpstreamRequest, exchange: Exchange, options: RelayOptions): boolean {
    if (!(options.body instanceof UntouchedBody) || this.destroyed || this.headersSent) return false;
    const { movesOn, movesOnAt } = options;
    const handedOver: HandedOver = {
      engine: upstream.url,
      method: request.method,
      path: request.path,
      headers: request.headers,
      hasBody: request.body !== null,
      reads: options.reads,
      ownHeaders: options.headers(),
      setHeaders: this.#headers,
      leftOut: options.leftOut,
      tellsFirst: { data: options.onFirstData !== undefined, content: options.onFirstContent !== undefined },
      movesOn: movesOn && {
        status: movesOn({ status: 503 }),
        unsent: movesOn({ error: UNSENT }),
        begun: movesOn({ error: BEGUN }),
      },
      movesOnAt: movesOnAt && [...movesOnAt],
    };
    this.#elsewhere = { exchange, options, tracking: upstream.track(request), since: options.now() };
    const body = typeof request.body === 'string' ? Buffer.from(request.body) : (request.body ?? undefined);
    this.#line.channel.send(FRAME.relay, this.#line.exchange, handedOver, body);
    return true;
  }

  accepted(): void {
    this.#elsewhere?.options.onAccepted();
  }

  firstData(): void {
    this.#elsewhere?.options.onFirstData?.();
  }

  firstContent(): void {
    this.#elsewhere?.options.onFirstContent?.();
  }

  /** The exchange that was handed over is over. */
  settled(settled: SettledExchange): void {
    const elsewhere = this.#elsewhere;
    if (elsewhere === undefined) return;
    this.#elsewhere = undefined;
    const { exchange, options, tracking, since } = elsewhere;
    const { status, complete, sniffed, firstContentMs, failure, errorCode, errorSource, end, retries } = settled;
    tracking.retried(retries);
    if (end !== undefined) tracking.ended(end);
    tracking.settled();
    // It was asked when the exchange was handed over: now it hears which of the failures it was.
    if (failure !== undefined) options.movesOn?.(asFailure(failure));
    else {
      this.#isWrittenElsewhere = true;
      if (errorCode !== undefined) exchange.errorCode = errorCode;
      if (errorSource !== undefined) exchange.errorSource = errorSource;
    }
    const firstContentAt = firstContentMs === undefined ? undefined : since + firstContentMs;
    const sniffer: SniffedAnswer = { ...sniffed, firstContentAt };
    options.onSettled({ status, complete, sniffer, movedOn: failure !== undefined });
  }

  /** The client took so many bytes. */
  taken(bytes: number): void {
    this.#untaken -= bytes;
    if (this.#untaken >= WINDOW_BYTES) return;
    const go = this.#held;
    this.#held = undefined;
    go?.();
  }

  /** The client has it all, or is gone. */
  ended({ status, isFinished }: ClosedAnswer): void {
    this.#isClosed = true;
    // The worker tells of an exchange before its end, unless the client had left when it was handed over.
    if (this.#elsewhere !== undefined) this.settled(LOST);
    if (isFinished && this.#isWrittenElsewhere) {
      this.statusCode = status;
      this.end();
    } else if (isFinished && this.#finish !== undefined) this.#finish();
    else this.destroy();
  }

  lost(): void {
    this.#isClosed = true;
    if (this.#elsewhere !== undefined) this.settled(LOST);
    this.destroy();
  }

  override _write(chunk: Buffer, _: BufferEncoding, callback: () => void): void {
    this.#tellHead(false);
    this.#line.channel.send(FRAME.data, this.#line.exchange, undefined, chunk);
    this.#untaken += chunk.length;
    if (this.#untaken < WINDOW_BYTES) callback();
    else this.#held = callback;
  }

  override _final(callback: () => void): void {
    if (this.#isWrittenElsewhere) {
      callback();
      return;
    }
    this.#tellHead(false);
    this.#line.channel.send(FRAME.end, this.#line.exchange);
    this.#finish = callback;
  }

  override _destroy(_: Error | null, callback: (error: null) => void): void {
    if (!this.#isClosed) this.#line.channel.send(FRAME.destroy, this.#line.exchange);
    callback(null);
  }

  #tellHead(isFlushed: boolean): void {
    if (this.#isHeadTold) return;
    this.#isHeadTold = true;
    if (this.#head === undefined) this.writeHead(this.statusCode);
    const head = { status: this.statusCode, headers: this.#head, isFlushed };
    this.#line.channel.send(FRAME.head, this.#line.exchange, head);
  }
}

/** Failures of the two kinds, to be asked about beforehand. */
const UNSENT = new WarmpathError('WARMPATH_UPSTREAM_UNREACHABLE');
const BEGUN = new WarmpathError('WARMPATH_UPSTREAM_CUT');

/** What is left of an exchange whose worker is gone: its client is gone, too. */
const LOST: SettledExchange = {
  status: undefined,
  complete: false,
  failure: undefined,
  sniffed: { answers: [], usage: undefined, completionTokens: undefined, estimatedTokens: 0, prefilled: false },
  firstContentMs: undefined,
  errorCode: 'WARMPATH_CLIENT_CLOSED',
  errorSource: undefined,
  end: undefined,
  retries: 0,
};

function asFailure(failure: NonNullable<SettledExchange['failure']>): EngineFailure {
  if ('status' in failure) return failure;
  const { code, cause } = failure;
  return { error: new WarmpathError(code, { cause: cause === undefined ? undefined : { code: cause } }) };
}
