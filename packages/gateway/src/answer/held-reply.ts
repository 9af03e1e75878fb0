import { EventEmitter } from 'node:events';
import type { OutgoingHttpHeaders } from 'node:http';
import type { CallReply, ClientResponse } from '../shapes/shapes.js';

/** Bytes of an answer that are held; beyond them the engine is not read. */
const MOST_HELD_BYTES = 262_144;

/**
 * An answer that may turn out to be nobody's: it is held until it is released to the client, or cancelled, which ends
 * it at the engine.
 */
export class HeldReply implements CallReply {
  readonly raw = new HeldResponse();
  #client: CallReply | undefined;
  #isTaken = false;
  #hasFailed = false;
  #isSuperseded = false;

  get sent(): boolean {
    return this.#isTaken;
  }

  get isSuperseded(): boolean {
    return this.#isSuperseded;
  }

  /** Whether there is nothing to release but an error: asked before `release`. */
  get hasFailed(): boolean {
    return this.#hasFailed || this.raw.destroyed || this.raw.status >= 400;
  }

  /** Whether a part of the answer has come: its prompt is computed. */
  get isAnswering(): boolean {
    return this.raw.hasData;
  }

  /** The engine gets the prompt. */
  hijack(): void {
    this.#isTaken = true;
    this.#client?.hijack();
  }

  send(error: unknown): void {
    this.#hasFailed = true;
    this.#client?.send(error);
  }

  /**
   * The answer goes to the client, what was held first. `headers` go before those that were held. One whose prompt has
   * not gone out yet may still be refused.
   */
  release(client: CallReply, headers: () => OutgoingHttpHeaders): void {
    this.#client = client;
    if (this.#isTaken) client.hijack();
    this.raw.release(client.raw, headers);
  }

  cancel(): void {
    this.#isSuperseded = true;
    this.raw.destroy();
  }
}

/** The response of a held answer: a client that takes everything, until it is the real one. */
class HeldResponse extends EventEmitter<{ drain: []; close: [] }> implements ClientResponse {
  #client: ClientResponse | undefined;
  #head: { readonly status: number; readonly headers: OutgoingHttpHeaders } | undefined;
  #isFlushed = false;
  #parts: { readonly data: Buffer | string; readonly callback: ((error?: Error | null) => void) | undefined }[] = [];
  #bytes = 0;
  #isFull = false;
  #isEnded = false;
  #isClosed = false;
  #moreHeaders: () => OutgoingHttpHeaders = () => ({});

  /** 0 before there is one. */
  get status(): number {
    return this.#head?.status ?? 0;
  }

  get hasData(): boolean {
    return this.#bytes > 0 || this.#isEnded;
  }

  get destroyed(): boolean {
    return this.#client?.destroyed ?? this.#isClosed;
  }

  get headersSent(): boolean {
    return this.#client?.headersSent ?? this.#head !== undefined;
  }

  get writableFinished(): boolean {
    return this.#client?.writableFinished ?? false;
  }

  writeHead(status: number, headers: OutgoingHttpHeaders): void {
    this.#head = { status, headers };
    this.#client?.writeHead(status, { ...headers, ...this.#moreHeaders() });
  }

  flushHeaders(): void {
    this.#isFlushed = true;
    this.#client?.flushHeaders();
  }

  write(data: Buffer | string, callback?: (error?: Error | null) => void): boolean {
    if (this.#client !== undefined) return this.#client.write(data, callback);
    this.#parts.push({ data, callback });
    this.#bytes += data.length;
    this.#isFull = this.#bytes >= MOST_HELD_BYTES;
    return !this.#isFull;
  }

  end(data?: Buffer | string): void {
    if (this.#client !== undefined) {
      this.#client.end(data);
      return;
    }
    if (data !== undefined && data.length > 0) this.#parts.push({ data, callback: undefined });
    this.#isEnded = true;
  }

  destroy(): void {
    if (this.#client !== undefined) this.#client.destroy();
    else if (!this.#isClosed) {
      this.#isClosed = true;
      this.#parts = [];
      this.emit('close');
    }
  }

  release(client: ClientResponse, headers: () => OutgoingHttpHeaders): void {
    this.#client = client;
    this.#moreHeaders = headers;
    // First among the listeners: the others look at what the end of the exchange has left.
    client.prependListener('close', () => this.emit('close'));
    client.on('drain', () => this.emit('drain'));
    if (this.#head === undefined) return;
    client.writeHead(this.#head.status, { ...this.#head.headers, ...headers() });
    if (this.#isFlushed) client.flushHeaders();
    let isReady = true;
    for (const { data, callback } of this.#parts.splice(0)) isReady = client.write(data, callback);
    if (this.#isEnded) client.end();
    else if (this.#isFull && isReady) this.emit('drain');
  }
}
