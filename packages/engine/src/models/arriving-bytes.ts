import type { Readable } from 'node:stream';

/** Bytes that may wait for the disk before the network is told to pause. */
const QUEUE_BYTES = 1024 * 1024;

/**
 * Takes bytes off a response as soon as they come, and keeps those that came before the connection broke. (Iterating
 * over the stream itself would lose up to 64 KiB at every break: a stream that fails drops what nobody has read yet.)
 */
export class ArrivingBytes {
  readonly #body: Readable;
  readonly #queue: Buffer[] = [];
  #queued = 0;
  #state: 'open' | 'ended' | { readonly failure: unknown } = 'open';
  #wake: (() => void) | undefined;

  /** Starts to take bytes off at once. */
  constructor(body: Readable) {
    this.#body = body;
    body.on('data', (chunk: Buffer) => {
      this.#queue.push(chunk);
      this.#queued += chunk.length;
      if (this.#queued >= QUEUE_BYTES) body.pause();
      this.#wake?.();
    });
    body.on('end', () => this.#finish('ended'));
    body.on('error', (failure: unknown) => this.#finish({ failure }));
    body.on('close', () => this.#finish({ failure: new Error('the connection closed') }));
  }

  /** The next bytes; `undefined` at the end. Throws what broke the connection, once all bytes before it are out. */
  async next(): Promise<Buffer | undefined> {
    for (;;) {
      const chunk = this.#queue.shift();
      if (chunk !== undefined) {
        this.#queued -= chunk.length;
        if (this.#queue.length === 0) this.#body.resume();
        return chunk;
      }
      if (this.#state === 'ended') return undefined;
      if (this.#state !== 'open') throw this.#state.failure;
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
    }
  }

  /** Gives the connection up; what is left of the response is not wanted. */
  drop(): void {
    this.#body.destroy();
  }

  #finish(state: 'ended' | { readonly failure: unknown }): void {
    if (this.#state === 'open') this.#state = state;
    this.#wake?.();
  }
}
