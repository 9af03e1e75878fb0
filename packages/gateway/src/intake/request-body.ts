import type { IncomingMessage } from 'node:http';
import { WarmpathError } from '@warmpath/core';

/** A tenant on its own may fill all of the memory for bodies but this part, so that another one finds room at once. */
const NEWCOMERS_PART = 1 / 8;
/** Beside others it may have this part. */
const TENANT_PART = 1 / 2;

/**
 * The memory for bodies: of requests that are being received, that wait, and whose answer is not over. What exceeds it is refused
 * before a byte of the body is read. All O(1).
 */
export class BodyMemory {
  readonly maxBytes: number;
  readonly #tenants = new Map<string, number>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  /** Bytes that are reserved. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The largest body that finds room when there is no other. */
  get largestBody(): number {
    return Math.floor(this.maxBytes * (1 - NEWCOMERS_PART));
  }

  /** Error: `WARMPATH_OVERLOADED` where it does not fit, or is more than a tenant may have. */
  reserve(tenant: string, bytes: number): void {
    if (bytes === 0) return;
    const own = this.#tenants.get(tenant) ?? 0;
    const isAlone = own === this.#bytes;
    const ownMost = own === 0 ? this.maxBytes : this.maxBytes * (isAlone ? 1 - NEWCOMERS_PART : TENANT_PART);
    if (this.#bytes + bytes > this.maxBytes || own + bytes > ownMost) {
      throw new WarmpathError('WARMPATH_OVERLOADED', {
        detail: `The bodies of requests under way take ${this.#bytes} bytes${own < this.#bytes ? `, ${own} of them yours` : ''}.`,
      });
    }
    this.#tenants.set(tenant, own + bytes);
    this.#bytes += bytes;
  }

  release(tenant: string, bytes: number): void {
    if (bytes === 0) return;
    const left = this.#tenants.get(tenant)! - bytes;
    if (left === 0) this.#tenants.delete(tenant);
    else this.#tenants.set(tenant, left);
    this.#bytes -= bytes;
  }
}

/** How the body of a request is received. */
export interface ReadBodyOptions {
  readonly memory: BodyMemory;
  readonly tenant: string;
  /** The largest body. */
  readonly limitBytes: number;
  /** Milliseconds in which `LEAST_BYTES` of a body must come, and `LEAST_PART` of a large one. */
  readonly stallMs: number;
}

/** A body and what gives its memory back. */
export interface ReceivedBody {
  readonly bytes: Buffer;
  release(): void;
}

/** Bytes that must come in every `stallMs`: a sender that is slower does not get to hold memory. */
const LEAST_BYTES = 65_536;
const LEAST_PART = 1 / 16;
/** Room for a body of unknown length at first; it doubles. */
const FIRST_BYTES = 16_384;

/**
 * Receives a body into one buffer of its length; one that does not say its length into a buffer that doubles. `done` is called once; after an
 * error nothing more is read, and the connection is to be closed.
 *
 * Errors: `WARMPATH_BODY_TOO_LARGE`; `WARMPATH_OVERLOADED` before the body is read; `WARMPATH_BODY_STALLED`; `WARMPATH_CLIENT_CLOSED`.
 */
export function readBody(
  request: IncomingMessage,
  options: ReadBodyOptions,
  done: (error: WarmpathError | null, body?: ReceivedBody) => void,
): void {
  new BodyReader(request, options, done).start();
}

class BodyReader {
  readonly #request: IncomingMessage;
  readonly #options: ReadBodyOptions;
  readonly #done: (error: WarmpathError | null, body?: ReceivedBody) => void;
  #buffer: Buffer = Buffer.alloc(0);
  #length = 0;
  /** Bytes that had come when it was last looked. */
  #seen = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    request: IncomingMessage,
    options: ReadBodyOptions,
    done: (error: WarmpathError | null, body?: ReceivedBody) => void,
  ) {
    this.#request = request;
    this.#options = options;
    this.#done = done;
  }

  start(): void {
    const request = this.#request;
    const given = request.headers['content-length'];
    try {
      if (given !== undefined) this.#makeRoom(Number(given));
    } catch (error) {
      this.#done(error as WarmpathError);
      return;
    }
    this.#timer = setInterval(() => this.#checkPace(), this.#options.stallMs);
    request.on('data', this.#data).on('end', this.#end).on('error', this.#broken).on('close', this.#broken);
  }

  readonly #data = (chunk: Buffer): void => {
    const length = this.#length + chunk.length;
    try {
      if (length > this.#buffer.length) this.#makeRoom(Math.max(length, FIRST_BYTES, 2 * this.#buffer.length), length);
    } catch (error) {
      this.#fail(error as WarmpathError);
      return;
    }
    chunk.copy(this.#buffer, this.#length);
    this.#length = length;
  };

  readonly #end = (): void => {
    this.#stop();
    const { memory, tenant } = this.#options;
    const reserved = this.#buffer.length;
    this.#done(null, {
      bytes: this.#length === reserved ? this.#buffer : this.#buffer.subarray(0, this.#length),
      release: () => memory.release(tenant, reserved),
    });
  };

  readonly #broken = (): void => this.#fail(new WarmpathError('WARMPATH_CLIENT_CLOSED'));

  /** `wanted`: bytes to have room for, if allowed; `needed`: those without which the body is refused. */
  #makeRoom(wanted: number, needed = wanted): void {
    const { memory, tenant, limitBytes } = this.#options;
    if (needed > limitBytes) throw new WarmpathError('WARMPATH_BODY_TOO_LARGE');
    const bytes = Math.min(wanted, limitBytes);
    memory.reserve(tenant, bytes - this.#buffer.length);
    const grown = Buffer.allocUnsafe(bytes);
    this.#buffer.copy(grown, 0, 0, this.#length);
    this.#buffer = grown;
  }

  #checkPace(): void {
    const least = Math.max(LEAST_BYTES, Math.ceil(this.#buffer.length * LEAST_PART));
    if (this.#length - this.#seen < least) {
      const detail = `Less than ${least} bytes came within ${this.#options.stallMs} ms.`;
      this.#fail(new WarmpathError('WARMPATH_BODY_STALLED', { detail }));
    }
    this.#seen = this.#length;
  }

  #fail(error: WarmpathError): void {
    this.#stop();
    // Read no further: the connection is closed behind the answer.
    this.#request.pause();
    this.#options.memory.release(this.#options.tenant, this.#buffer.length);
    this.#buffer = Buffer.alloc(0);
    this.#done(error);
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#request
      .off('data', this.#data)
      .off('end', this.#end)
      .off('error', this.#broken)
      .off('close', this.#broken)
      // A connection that breaks after this is nobody's concern any more.
      .on('error', ignored);
  }
}

function ignored(): void {}

/** The bytes that came; none, without a body. */
export function bodyOf({ body }: { readonly body: unknown }): Buffer {
  return (body as Buffer | undefined) ?? Buffer.alloc(0);
}
