import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type { Dispatcher, Pool } from 'undici';

/** One request as a client sent it. */
export interface RelayedRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** `null` when it has none. */
  readonly body: Buffer | null;
}

/**
 * How one try went: the client has its answer, or a part of it and a broken end, or is gone; or it has nothing yet, and
 * the request can be sent again.
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

/** Headers that speak of one connection only. */
const CONNECTION_HEADERS = new Set([
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
 * Sends a request to the worker and its answer to the client. A stream passes byte for byte and with backpressure; any
 * other answer is passed on when it is whole, so that a request whose worker crashes can be sent again until then.
 * When the client goes away, the connection to the worker is closed.
 *
 * @param onBegun Called when the answer begins.
 */
export function relay(
  pool: Pool,
  request: RelayedRequest,
  client: ServerResponse,
  onBegun: () => void,
): Promise<RelayOutcome> {
  return new Promise((resolve) => {
    const exchange = new RelayExchange(client, onBegun, resolve);
    try {
      pool.dispatch(
        {
          method: request.method as Dispatcher.HttpMethod,
          path: request.path,
          headers: endToEnd(request.headers),
          body: request.body,
        },
        exchange,
      );
    } catch (error) {
      exchange.onResponseError(undefined, error as Error);
    }
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
  readonly #client: ServerResponse;
  readonly #onBegun: () => void;
  readonly #resolve: (outcome: RelayOutcome) => void;
  readonly #onClose = (): void => this.#leave();
  readonly #onDrain = (): void => this.#controller?.resume();
  #controller: Dispatcher.DispatchController | undefined;
  #head: { readonly status: number; readonly headers: IncomingHttpHeaders } | undefined;
  #isStream = false;
  #parts: Buffer[] = [];
  #settled = false;

  constructor(client: ServerResponse, onBegun: () => void, resolve: (outcome: RelayOutcome) => void) {
    this.#client = client;
    this.#onBegun = onBegun;
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
    this.#onBegun();
    this.#isStream = headers['content-type']?.startsWith('text/event-stream') ?? false;
    if (this.#isStream) {
      // The worker sends the head of a stream with its first token, so nothing can be sent again from here on.
      this.#client.on('drain', this.#onDrain);
      this.#client.writeHead(status, endToEnd(headers));
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) {
      return;
    }
    if (!this.#isStream) {
      this.#parts.push(chunk);
    } else if (!this.#client.write(chunk)) {
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
    } else {
      sendWhole(this.#client, answer);
      this.#settle({ kind: 'answered' });
    }
  }

  onResponseError(_: Dispatcher.DispatchController | undefined, cause: Error): void {
    if (this.#settled) {
      return;
    }
    if (this.#isStream) {
      this.#break();
      this.#settle({ kind: 'broken' });
    } else {
      this.#settle({ kind: 'lost', cause, sent: this.#controller !== undefined });
    }
  }

  #leave(): void {
    this.#controller?.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
    this.#settle({ kind: 'left' });
  }

  /** Half an answer must not look like a whole one: an error event, as the engine itself sends it, and no clean end. */
  #break(): void {
    const client = this.#client;
    const error = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'The engine crashed while it answered.' });
    const grace = setTimeout(() => client.destroy(), BREAK_GRACE_MS);
    // The blank line ends an event that was torn.
    client.write(`\n\ndata: ${JSON.stringify(error.toOpenAI())}\n\n`, () => {
      clearTimeout(grace);
      client.destroy();
    });
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
  try {
    return (JSON.parse(body.toString()) as { error?: { code?: unknown } }).error?.code === failed.code;
  } catch {
    return false;
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
