import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type { Dispatcher } from 'undici';
import { EVENT_STREAM_HEADERS } from '../http/exchange.js';
import { isUnread } from '../http/slow-clients.js';
import {
  CONTINUE_HEADER,
  continuedBody,
  RECORDS_HEADER,
  type RecordListener,
  type RecordMarks,
} from './answer-records.js';
import type { Worker } from './worker.js';

/** One request as a client sent it, and what its client has of the answer. */
export interface RelayedRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** `null` when it has none. */
  readonly body: Buffer | null;
  /** The stream that its client has the beginning of, with which another worker can go on. */
  answer?: RelayedAnswer;
}

/** What a client has of a stream: at most the request's own limit of tokens. */
interface RelayedAnswer {
  /** Its `AnswerOrigin` in JSON. */
  readonly origin: string;
  /** Tokens whose text was passed on. */
  readonly tokens: number[];
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
 * Sends a request to the worker and its answer to the client. A stream passes event by event; any other answer is
 * passed on when it is whole. So a request whose worker crashes can be sent again, and a stream goes on behind what its
 * client has. When the client goes away, or leaves too much of its stream unread, the connection to the worker is
 * closed.
 */
export function relay(
  { pool, records }: Pick<Worker, 'pool' | 'records'>,
  request: RelayedRequest,
  client: ServerResponse,
): Promise<RelayOutcome> {
  return new Promise((resolve) => {
    const exchange: RelayExchange = new RelayExchange(request, client, (outcome) => {
      records.leave(stream);
      resolve(outcome);
    });
    const stream = records.join(exchange);
    try {
      pool.dispatch(toWorker(request, stream), exchange);
    } catch (error) {
      exchange.onResponseError(undefined, error as Error);
    }
  });
}

function toWorker({ method, path, headers, body, answer }: RelayedRequest, stream: number): Dispatcher.DispatchOptions {
  const passed = endToEnd(headers);
  passed[RECORDS_HEADER] = String(stream);
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

class RelayExchange implements Dispatcher.DispatchHandler, RecordListener {
  readonly #request: RelayedRequest;
  readonly #client: ServerResponse;
  readonly #resolve: (outcome: RelayOutcome) => void;
  readonly #onClose = (): void => this.#leave();
  #controller: Dispatcher.DispatchController | undefined;
  #head: { readonly status: number; readonly headers: IncomingHttpHeaders } | undefined;
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
    if (status >= 200) {
      this.#head = { status, headers };
    }
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#parts.push(chunk);
  }

  onResponseEnd(): void {
    const answer = { ...this.#head!, body: Buffer.concat(this.#parts) };
    if (this.#settled || answer.headers[RECORDS_HEADER] !== undefined) {
      // A stream has come to its end with its last record.
      return;
    }
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
    this.#settle({ kind: 'lost', cause, sent: this.#controller !== undefined });
  }

  onRecord(content: Buffer, marks: RecordMarks): void {
    const client = this.#client;
    if (marks === 'begin') {
      // One that goes on has its head.
      this.#request.answer ??= beginStream(client, content.toString());
    } else if (marks === 'end') {
      client.end(content);
      this.#settle({ kind: 'answered' });
    } else {
      this.#request.answer!.tokens.push(...marks);
      client.write(content);
      if (isUnread(client)) {
        client.destroy();
        this.#leave();
      }
    }
  }

  onRecordsLost(): void {
    const cause = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'The engine streams no more.' });
    this.#settle({ kind: 'lost', cause, sent: this.#controller !== undefined });
  }

  #leave(): void {
    this.#controller?.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
    this.#settle({ kind: 'left' });
  }

  #settle(outcome: RelayOutcome): void {
    if (!this.#settled) {
      this.#settled = true;
      this.#client.off('close', this.#onClose);
      this.#resolve(outcome);
    }
  }
}

function beginStream(client: ServerResponse, origin: string): RelayedAnswer {
  client.writeHead(200, EVENT_STREAM_HEADERS);
  return { origin, tokens: [] };
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
