import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type { Exchange } from './exchange.js';
import { RESPONSE_HEADERS, responseHeaders } from './headers.js';
import { ResponseSniffer } from './response-sniffer.js';
import type { Upstream, UpstreamCall, UpstreamListener, UpstreamRequest } from './upstream.js';

/** After the error event of a cut stream, milliseconds that a slow client gets to take it before the connection is cut. */
const CUT_GRACE_MS = 1_000;

/** How a relayed exchange ended, and what the engine said on the way. */
export interface RelayResult {
  /** The engine's status; `undefined` if no response came. */
  readonly status: number | undefined;
  /** Whether the response came to its end. */
  readonly complete: boolean;
  readonly sniffer: ResponseSniffer;
}

/** What a relay needs beside the request. */
export interface RelayOptions {
  /** Added to the engine's response headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Called exactly once, when the exchange with the engine is over. Must not throw. */
  readonly onSettled: (result: RelayResult) => void;
}

/**
 * Sends the request to the engine and its response to the client, byte for byte and with backpressure. When the client
 * goes away, in any state, the engine's connection is closed. When the engine goes away in the middle of a stream, the
 * client gets an SSE `error` event and a broken connection, never a clean end.
 */
export function relay(
  upstream: Upstream,
  request: UpstreamRequest,
  client: { readonly raw: ServerResponse; readonly exchange: Exchange },
  options: RelayOptions,
): void {
  new Relay(client.raw, client.exchange, options).start(upstream, request);
}

class Relay implements UpstreamListener {
  readonly #client: ServerResponse;
  readonly #exchange: Exchange;
  readonly #options: RelayOptions;
  readonly #sniffer: ResponseSniffer;
  #call: UpstreamCall | undefined;
  #status: number | undefined;
  #isEventStream = false;
  #sniffing = true;

  constructor(client: ServerResponse, exchange: Exchange, options: RelayOptions) {
    this.#client = client;
    this.#exchange = exchange;
    this.#options = options;
    this.#sniffer = new ResponseSniffer(options.now);
  }

  start(upstream: Upstream, request: UpstreamRequest): void {
    // First among the listeners: the others look at what the end of the exchange has left.
    this.#client.prependListener('close', () => {
      if (!this.#client.writableFinished) this.#call?.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
    });
    this.#client.on('drain', () => this.#call?.resume());
    this.#call = upstream.start(request, this);
    if (this.#client.destroyed) this.#call.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
  }

  onHead(status: number, headers: IncomingHttpHeaders): void {
    this.#status = status;
    this.#isEventStream = headers['content-type']?.startsWith('text/event-stream') ?? false;
    const own: Record<string, string> = { ...this.#options.headers };
    if (status >= 400) {
      own[RESPONSE_HEADERS.errorSource] = 'upstream';
      this.#exchange.errorSource = 'upstream';
    }
    this.#client.writeHead(status, responseHeaders(headers, own));
    // A stream's client sees that it was accepted before the first token; other headers travel with their body.
    if (this.#isEventStream) this.#client.flushHeaders();
    this.#sniff(() => this.#sniffer.head(status, headers));
  }

  onData(chunk: Buffer): boolean {
    const ready = this.#client.write(chunk);
    this.#sniff(() => this.#sniffer.data(chunk));
    return ready;
  }

  onEnd(): void {
    this.#client.end();
    this.#sniff(() => this.#sniffer.end());
    this.#settle(true);
  }

  onError(error: WarmpathError): void {
    const source = error.code === 'WARMPATH_INVALID_REQUEST' ? 'gateway' : 'upstream';
    if (error.code === 'WARMPATH_CLIENT_CLOSED') this.#exchange.errorCode = error.code;
    else this.#exchange.failed(error.code, source);
    if (!this.#client.destroyed) {
      if (!this.#client.headersSent) sendError(this.#client, error, this.#options.headers, source);
      else this.#cut(error);
    }
    this.#settle(false);
  }

  #cut(error: WarmpathError): void {
    const client = this.#client;
    if (!this.#isEventStream) {
      client.destroy();
      return;
    }
    // Both `event: error` and an `error` member: clients look for the one or the other. The blank line ends a torn event.
    const grace = setTimeout(() => client.destroy(), CUT_GRACE_MS);
    client.write(`\n\nevent: error\ndata: ${JSON.stringify(error.toOpenAI())}\n\n`, () => {
      clearTimeout(grace);
      client.destroy();
    });
  }

  #settle(complete: boolean): void {
    this.#options.onSettled({ status: this.#status, complete, sniffer: this.#sniffer });
  }

  /** A defect in reading along must not touch what is relayed: it ends the reading, nothing else. */
  #sniff(read: () => void): void {
    if (!this.#sniffing) return;
    try {
      read();
    } catch {
      this.#sniffing = false;
    }
  }
}

/** Answers with the table's error in OpenAI's shape, on a response that nothing has been written to. */
export function sendError(
  client: ServerResponse,
  error: WarmpathError,
  headers: Readonly<Record<string, string>>,
  source: 'gateway' | 'upstream',
): void {
  const body = JSON.stringify(error.toOpenAI());
  client.writeHead(error.status, {
    ...headers,
    [RESPONSE_HEADERS.errorSource]: source,
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
  });
  client.end(body);
}
