import { EventEmitter } from 'node:events';
import type { OutgoingHttpHeaders } from 'node:http';
import { withVary } from '../intake/headers.js';
import type { CallReply, ClientResponse } from '../shapes/shapes.js';

/** Bytes of an answer that are held; then reading from the engine pauses. */
const MAX_HELD_BYTES = 262_144;

/** Holds an answer that the client may never get: until it is released, or cancelled, which aborts the engine. */
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

  /** Whether only an error could be released; meaningful before `release`. */
  get hasFailed(): boolean {
    return this.#hasFailed || this.raw.destroyed || this.raw.status >= 400;
  }

  /** Whether a part of the answer has come, so that its prompt is computed. */
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

  /** Sends the held part to the client, and the rest as it comes. @param headers Replace held headers. */
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

/** Buffers a response until it has a client, then passes everything on. */
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

  /** 0 before the head. */
  get status(): number {
    return this.#head?.status ?? 0;
  }

  get hasData(): boolean {
    return this.#bytes > 0 || this.#isEnded;
  }

  get destroyed(): boolean {
    return this.#client?.destroyed ?? this.#isClosed;
  }

  get isHeld(): boolean {
    return this.#client === undefined;
  }

  get headersSent(): boolean {
    return this.#client?.headersSent ?? this.#head !== undefined;
  }

  get writableFinished(): boolean {
    return this.#client?.writableFinished ?? false;
  }

  getHeader(name: string): ReturnType<ClientResponse['getHeader']> {
    return this.#client?.getHeader(name);
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
    this.#isFull = this.#bytes >= MAX_HELD_BYTES;
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
    // First among the listeners: the others read what the end of the exchange has recorded.
    client.prependListener('close', () => this.emit('close'));
    client.on('drain', () => this.emit('drain'));
    if (this.#head === undefined) return;
    client.writeHead(this.#head.status, withVary(client, { ...this.#head.headers, ...headers() }));
    if (this.#isFlushed) client.flushHeaders();
    let isReady = true;
    for (const { data, callback } of this.#parts.splice(0)) isReady = client.write(data, callback);
    if (this.#isEnded) client.end();
    else if (this.#isFull && isReady) this.emit('drain');
  }
}
