import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type { Dispatcher, Pool } from 'undici';
import { CONTINUE_HEADER, continuedBody, RECORDS_HEADER, RelayedAnswer } from './answer-records.js';

/** One request as a client sent it, and what its client has of the answer. */
export interface RelayedRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** `null` when it has none. */
  readonly body: Buffer | null;
  /** The stream that was begun, when another worker can go on with it. */
  answer?: RelayedAnswer;
}

/**
 * How one try went: the client has its answer, or a broken end of it, or is gone; or the request can be sent again,
 * because the client has nothing yet, or a stream that another worker goes on with.
 */
export type RelayOutcome =
  | { readonly kind: 'answered' | 'broken' | 'left' }
  | {
      readonly kind: 'lost';
      readonly cause: unknown /** Whether the worker can have seen it. */;
      readonly sent: boolean;
    }
  /** The worker lives and says that the computation failed. */
  | { readonly kind: 'failed'; readonly answer: WholeAnswer };

/** An answer that is no stream, before the client has any of it. */
export interface WholeAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** After the error event of a broken stream, how long a slow client may take to read it. */
const BREAK_GRACE_MS = 1_000;

/** Headers that speak of one connection only, and those between front and worker. */
const CONNECTION_HEADERS = new Set([
  RECORDS_HEADER,
  CONTINUE_HEADER,
  'connection',
  'expect',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Sends a request to the worker and its answer to the client. A stream passes event by event and with backpressure; any
 * other answer is passed on when it is whole. So a request whose worker crashes can be sent again, and a stream goes on
 * behind what its client has. When the client goes away, the connection to the worker is closed.
 */
export function relay(pool: Pool, request: RelayedRequest, client: ServerResponse): Promise<RelayOutcome> {
  return new Promise((resolve) => {
    const exchange = new RelayExchange(request, client, resolve);
    try {
      pool.dispatch(toWorker(request), exchange);
    } catch (error) {
      exchange.onResponseError(undefined, error as Error);
    }
  });
}

function toWorker({ method, path, headers, body, answer }: RelayedRequest): Dispatcher.DispatchOptions {
  const passed = endToEnd(headers);
  passed[RECORDS_HEADER] = '1';
  if (answer === undefined || body === null) {
    return { method: method as Dispatcher.HttpMethod, path, headers: passed, body };
  }
  const continued = continuedBody(body, answer.origin, answer.tokens);
  passed[CONTINUE_HEADER] = '1';
  passed['content-length'] = String(continued.length);
  return { method: method as Dispatcher.HttpMethod, path, headers: passed, body: continued };
}

/**
 * Ends a stream that cannot go on. Half an answer must not look like a whole one: an error event, as the engine itself
 * sends it, and no clean end.
 */
export function breakStream(client: ServerResponse, error: object): void {
  const grace = setTimeout(() => client.destroy(), BREAK_GRACE_MS);
  // The blank line ends an event that was torn.
  client.write(`\n\ndata: ${JSON.stringify(error)}\n\n`, () => {
    clearTimeout(grace);
    client.destroy();
  });
}

/** Passes on an answer that is whole. */
export function sendWhole(client: ServerResponse, { status, headers, body }: WholeAnswer): void {
  client.writeHead(status, { ...endToEnd(headers), 'content-length': body.length });
  client.end(body);
}

/** Answers with an error of the table, on a response that nothing has been written to. */
export function sendError(client: ServerResponse, error: WarmpathError): void {
  const body = JSON.stringify(error.toOpenAI());
  client.writeHead(error.status, {
    ...(error.code === 'WARMPATH_OVERLOADED' && { 'retry-after': '1' }),
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
  });
  client.end(body);
}

class RelayExchange implements Dispatcher.DispatchHandler {
  readonly #request: RelayedRequest;
  readonly #client: ServerResponse;
  readonly #resolve: (outcome: RelayOutcome) => void;
  readonly #onClose = (): void => this.#leave();
  readonly #onDrain = (): void => this.#controller?.resume();
  #controller: Dispatcher.DispatchController | undefined;
  #head: { readonly status: number; readonly headers: IncomingHttpHeaders } | undefined;
  #isStream = false;
  #parts: Buffer[] = [];
  #settled = false;

  constructor(request: RelayedRequest, client: ServerResponse, resolve: (outcome: RelayOutcome) => void) {
    this.#request = request;
    this.#client = client;
    this.#resolve = resolve;
    client.once('close', this.#onClose);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#settled || this.#client.destroyed) {
      this.#leave();
    }
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (this.#settled || status < 200) {
      return;
    }
    this.#head = { status, headers };
    this.#isStream = headers['content-type']?.startsWith('text/event-stream') ?? false;
    if (!this.#isStream) {
      return;
    }
    this.#client.on('drain', this.#onDrain);
    if (this.#request.answer !== undefined) {
      this.#request.answer.beginAgain();
      return;
    }
    const origin = headers[RECORDS_HEADER];
    if (typeof origin === 'string') {
      this.#request.answer = new RelayedAnswer(origin);
    }
    this.#client.writeHead(status, endToEnd(headers));
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) {
      return;
    }
    const { answer } = this.#request;
    if (!this.#isStream) {
      this.#parts.push(chunk);
    } else if (answer === undefined) {
      this.#client.write(chunk);
    } else {
      answer.read(chunk, (events) => this.#client.write(events));
    }
    if (this.#isStream && this.#client.writableNeedDrain) {
      controller.pause();
    }
  }

  onResponseEnd(): void {
    if (this.#settled) {
      return;
    }
    if (this.#isStream) {
      this.#client.end();
      this.#settle({ kind: 'answered' });
      return;
    }
    const answer = { ...this.#head!, body: Buffer.concat(this.#parts) };
    if (hasFailed(answer)) {
      this.#settle({ kind: 'failed', answer });
    } else if (this.#request.answer !== undefined) {
      breakStream(this.#client, parsed(answer.body));
      this.#settle({ kind: 'broken' });
    } else {
      sendWhole(this.#client, answer);
      this.#settle({ kind: 'answered' });
    }
  }

  onResponseError(_: Dispatcher.DispatchController | undefined, cause: Error): void {
    if (this.#settled) {
      return;
    }
    const { answer } = this.#request;
    if (answer?.isEnded === true) {
      this.#client.end();
      this.#settle({ kind: 'answered' });
    } else if (this.#isStream && answer === undefined) {
      const error = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'The engine crashed while it answered.' });
      breakStream(this.#client, error.toOpenAI());
      this.#settle({ kind: 'broken' });
    } else {
      this.#settle({ kind: 'lost', cause, sent: this.#controller !== undefined });
    }
  }

  #leave(): void {
    this.#controller?.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
    this.#settle({ kind: 'left' });
  }

  #settle(outcome: RelayOutcome): void {
    if (!this.#settled) {
      this.#settled = true;
      this.#client.off('close', this.#onClose);
      this.#client.off('drain', this.#onDrain);
      this.#resolve(outcome);
    }
  }
}

/**
 * Whether the engine says that it failed while it computed; it sends no other error before an answer that is its own
 * fault.
 */
function hasFailed({ status, body }: WholeAnswer): boolean {
  const failed = new WarmpathError('WARMPATH_ENGINE_FAILED');
  if (status !== failed.status) {
    return false;
  }
  return (parsed(body) as { error?: { code?: unknown } }).error?.code === failed.code;
}

/** A body of JSON; an empty object for any other. */
function parsed(body: Buffer): object {
  try {
    const value: unknown = JSON.parse(body.toString());
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

function endToEnd(headers: IncomingHttpHeaders): Record<string, string | string[]> {
  const kept: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && !CONNECTION_HEADERS.has(name)) {
      kept[name] = value;
    }
  }
  return kept;
}
