import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { WarmpathError } from '@warmpath/core';
import { TenantShares } from '../limits/load.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Media types of the route's body; JSON alone if left out. `engine`: what the engine reads. */
    readonly mediaTypes?: ReadonlySet<string> | 'engine';
  }
}

export const JSON_TYPE = 'application/json';
/** Documents that come line by line. */
export const JSON_LINES = 'application/x-ndjson';

const JSON_ONLY: ReadonlySet<string> = new Set([JSON_TYPE]);
/** What a browser sends to another site without asking it first. Forms with files are for the engine. */
const SIMPLE: ReadonlySet<string> = new Set(['', 'text/plain', 'application/x-www-form-urlencoded']);
/** Encodings in which the bytes of JSON are those that the gateway reads. */
const UTF_8: ReadonlySet<string> = new Set(['utf-8', 'utf8', 'us-ascii']);
const CHARSET = /;\s*charset\s*=\s*"?([^";\s]*)/i;

/** The encoding that a `content-type` names. */
export function charsetOf(type: string): string | undefined {
  return CHARSET.exec(type)?.[1];
}

/** The media type of a body, without parameters; empty where the header is missing. */
export function mediaTypeOf({ 'content-type': type = '' }: IncomingHttpHeaders): string {
  return type.split(';', 1)[0]!.trim().toLowerCase();
}

/**
 * Checks the type of a body before it is read.
 *
 * @returns `WARMPATH_MEDIA_TYPE` for a type that the route does not read, and for JSON in another encoding than UTF-8.
 */
export function checkMediaType(
  headers: IncomingHttpHeaders,
  allowed: ReadonlySet<string> | 'engine' = JSON_ONLY,
): WarmpathError | undefined {
  if (!hasBody(headers)) return undefined;
  const type = mediaTypeOf(headers);
  if (allowed === 'engine' ? SIMPLE.has(type) : !allowed.has(type)) {
    const given =
      type === '' ? 'The body has no content-type.' : `A body of type ${type.slice(0, 100)} is not read here.`;
    const detail = allowed === 'engine' ? given : `${given} Types that are: ${[...allowed].join(', ')}.`;
    return new WarmpathError('WARMPATH_MEDIA_TYPE', { path: 'content-type', detail });
  }
  const charset = charsetOf(headers['content-type'] ?? '');
  if (charset === undefined || ![JSON_TYPE, JSON_LINES].includes(type) || UTF_8.has(charset.toLowerCase()))
    return undefined;
  return new WarmpathError('WARMPATH_MEDIA_TYPE', { path: 'content-type', detail: 'JSON is read in UTF-8 only.' });
}

function hasBody({ 'content-length': length, 'transfer-encoding': encoding }: IncomingHttpHeaders): boolean {
  return encoding !== undefined || (length !== undefined && Number(length) !== 0);
}

const DECODERS: ReadonlyMap<string, () => Transform> = new Map([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
] as const);

/**
 * Checks how a body is encoded, before it is read. Several encodings are refused: bytes within bytes may take far more
 * work than the body that they make.
 *
 * @returns `WARMPATH_CONTENT_ENCODING`.
 */
export function checkCodings(headers: IncomingHttpHeaders): WarmpathError | undefined {
  const { 'transfer-encoding': transfer = 'chunked' } = headers;
  if (transfer.trim().toLowerCase() !== 'chunked') return refused('transfer-encoding');
  const codings = codingsOf(headers);
  if (codings.length === 0 || (codings.length === 1 && DECODERS.has(codings[0]!))) return undefined;
  return refused('content-encoding');
}

function refused(path: string): WarmpathError {
  return new WarmpathError('WARMPATH_CONTENT_ENCODING', { path });
}

/** A body as it comes in. */
interface BodySource {
  readonly stream: Readable;
  /** Bytes that the stream will give, where that is known. */
  readonly length: number | undefined;
  /** What the client sends of it, in bytes. */
  readonly sentLength: number | undefined;
  /** Stops reading. */
  stop(): void;
}

/** The body of a request, decoded. `failed` is called when the connection breaks, or the body is not what it says. */
function bodySource(request: IncomingMessage, failed: (error: WarmpathError) => void): BodySource {
  const { 'content-length': given } = request.headers;
  const sentLength = given === undefined ? undefined : Number(given);
  request.on('error', () => failed(new WarmpathError('WARMPATH_CLIENT_CLOSED')));
  const [coding] = codingsOf(request.headers);
  if (coding === undefined) {
    return { stream: request, length: sentLength, sentLength, stop: () => request.pause() };
  }
  const decoder = DECODERS.get(coding)!();
  decoder.on('error', () => {
    const detail = `The body is not valid ${coding}.`;
    failed(new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'content-encoding', detail }));
  });
  const stop = () => {
    request.unpipe(decoder).pause();
    decoder.destroy();
  };
  return { stream: request.pipe(decoder), length: undefined, sentLength, stop };
}

/** Without `identity`, which says nothing. */
function codingsOf({ 'content-encoding': given = '' }: IncomingHttpHeaders): string[] {
  const codings = given.split(',').map((coding) => coding.trim().toLowerCase());
  return codings.filter((coding) => coding !== '' && coding !== 'identity');
}

/** Part of the memory for bodies that a single active tenant may use: another tenant finds room at once. */
const SINGLE_TENANT_PART = 7 / 8;
/** Part that a tenant may use beside others. */
const TENANT_PART = 1 / 2;

/**
 * The memory for request bodies, from the first byte until the answer is over. A body that does not fit is refused
 * before it is read.
 */
export class BodyMemory {
  readonly maxBytes: number;
  readonly #shares = new TenantShares();

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  /** Bytes that are reserved. */
  get bytes(): number {
    return this.#shares.total;
  }

  /** The largest body that fits when there is no other. */
  get largestBody(): number {
    return Math.floor(this.maxBytes * SINGLE_TENANT_PART);
  }

  /** @throws WarmpathError `WARMPATH_OVERLOADED` when the bytes do not fit, or exceed the tenant's part. O(1). */
  reserve(tenant: string, bytes: number): void {
    if (bytes === 0) return;
    const own = this.#shares.of(tenant);
    const isSingle = own === this.bytes;
    // A tenant without bodies may use all that is left, so that its first request is served.
    const maxOwn = own === 0 ? this.maxBytes : this.maxBytes * (isSingle ? SINGLE_TENANT_PART : TENANT_PART);
    if (this.bytes + bytes > this.maxBytes || own + bytes > maxOwn) {
      const detail =
        `No memory for this body of ${bytes} bytes: bodies of this tenant take ${own} bytes, of all tenants ` +
        `${this.bytes} (limit ${this.maxBytes}, a part of \`limits.memoryBytes\`).`;
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail });
    }
    this.#shares.add(tenant, bytes);
  }

  release(tenant: string, bytes: number): void {
    this.#shares.add(tenant, -bytes);
  }
}

/** How bodies are received. */
export interface RequestBodiesOptions {
  readonly memory: BodyMemory;
  /** The largest body. */
  readonly limitBytes: number;
  /** Milliseconds in which `MIN_PACE_BYTES` of a body must come, and `MIN_PACE_PART` of a large one. */
  readonly stallMs: number;
}

/** A body that came completely. */
export interface ReceivedBody {
  readonly bytes: Buffer;
  /** Gives its memory back. */
  release(): void;
}

/** Called once, with an error or a body. */
export type BodyListener = (error: WarmpathError | null, body?: ReceivedBody) => void;

/** Bytes that must come in every `stallMs`: slower senders must not hold memory. */
const MIN_PACE_BYTES = 65_536;
/** The same for a large body, as a part of it. */
const MIN_PACE_PART = 1 / 16;
/** First buffer of a body of unknown length; it doubles. */
const FIRST_BUFFER_BYTES = 16_384;

/** Receives request bodies within the memory for them, and ends bodies that stall. */
export class RequestBodies {
  readonly #options: RequestBodiesOptions;
  /** Bodies that have not come completely. */
  readonly #incomplete = new Set<BodyReader>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: RequestBodiesOptions) {
    this.#options = options;
  }

  /**
   * Receives and decodes a body. After an error it reads no more, and the caller must close the connection.
   *
   * Errors: `WARMPATH_BODY_TOO_LARGE`; `WARMPATH_OVERLOADED` before the body is read; `WARMPATH_BODY_STALLED`;
   * `WARMPATH_CLIENT_CLOSED`; `WARMPATH_INVALID_REQUEST` for a body that cannot be decoded.
   */
  receive(request: IncomingMessage, tenant: string, done: BodyListener): void {
    const over: BodyListener = (error, body) => {
      this.#incomplete.delete(reader);
      done(error, body);
    };
    const reader: BodyReader = new BodyReader(request, tenant, this.#options, over);
    if (!reader.start()) return;
    this.#incomplete.add(reader);
    // One timer for all bodies: a timer costs more than receiving a small body.
    this.#timer ??= setInterval(() => this.#checkPace(), this.#options.stallMs).unref();
  }

  #checkPace(): void {
    for (const reader of this.#incomplete) reader.checkPace();
    if (this.#incomplete.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

/** One body while it comes, and after it came. */
class BodyReader implements ReceivedBody {
  readonly #source: BodySource;
  readonly #tenant: string;
  readonly #options: RequestBodiesOptions;
  readonly #done: BodyListener;
  /** Reserved bytes. */
  #room = 0;
  #buffer: Buffer = NOTHING;
  #length = 0;
  /** `#length` at the last check of the pace. */
  #checkedLength: number | undefined;
  #isOver = false;

  constructor(request: IncomingMessage, tenant: string, options: RequestBodiesOptions, done: BodyListener) {
    this.#source = bodySource(request, (error) => {
      if (!this.#isOver) this.#fail(error);
    });
    this.#tenant = tenant;
    this.#options = options;
    this.#done = done;
  }

  get bytes(): Buffer {
    return this.#length === this.#buffer.length ? this.#buffer : this.#buffer.subarray(0, this.#length);
  }

  release(): void {
    this.#options.memory.release(this.#tenant, this.#room);
    this.#room = 0;
    this.#buffer = NOTHING;
  }

  /** Begins to read; false for a body that is refused at once. */
  start(): boolean {
    const { stream, length, sentLength = 0 } = this.#source;
    try {
      if (sentLength > this.#options.limitBytes) throw tooLarge(this.#options.limitBytes);
      if (length !== undefined) this.#reserve(length);
    } catch (error) {
      this.#isOver = true;
      this.#source.stop();
      this.#done(error as WarmpathError);
      return false;
    }
    stream.on('end', () => this.#end());
    stream.on('data', (chunk: Buffer) => this.#data(chunk));
    return true;
  }

  /** Ends a body of which too little came since the last check. The first check only notes the length. */
  checkPace(): void {
    const least = Math.max(MIN_PACE_BYTES, Math.ceil(this.#room * MIN_PACE_PART));
    if (this.#checkedLength !== undefined && this.#length - this.#checkedLength < least) {
      const detail = `Fewer than ${least} bytes came within ${this.#options.stallMs} ms.`;
      this.#fail(new WarmpathError('WARMPATH_BODY_STALLED', { detail }));
    }
    this.#checkedLength = this.#length;
  }

  #data(chunk: Buffer): void {
    if (this.#isOver) return;
    const length = this.#length + chunk.length;
    try {
      if (length > this.#room) this.#reserve(Math.max(length, FIRST_BUFFER_BYTES, 2 * this.#room), length);
    } catch (error) {
      this.#fail(error as WarmpathError);
      return;
    }
    // Most bodies come as one chunk, which needs no copy.
    if (chunk.length === this.#room) this.#buffer = chunk;
    else this.#append(chunk);
    this.#length = length;
  }

  #append(chunk: Buffer): void {
    if (this.#buffer.length < this.#room) {
      const grown = Buffer.allocUnsafe(this.#room);
      if (this.#length > 0) this.#buffer.copy(grown, 0, 0, this.#length);
      this.#buffer = grown;
    }
    chunk.copy(this.#buffer, this.#length);
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#done(null, this);
  }

  /** Reserves `wanted` bytes, at most the limit; the body is refused where `needed` bytes exceed the limit. */
  #reserve(wanted: number, needed = wanted): void {
    const { memory, limitBytes } = this.#options;
    if (needed > limitBytes) throw tooLarge(limitBytes);
    const bytes = Math.min(wanted, limitBytes);
    memory.reserve(this.#tenant, bytes - this.#room);
    this.#room = bytes;
  }

  #fail(error: WarmpathError): void {
    this.#isOver = true;
    this.#source.stop();
    this.release();
    this.#done(error);
  }
}

/** The bytes of a request's body, without a byte order mark: JSON has none (RFC 8259, section 8.1). */
export function bodyOf({ body }: { readonly body: unknown }): Buffer {
  const bytes = (body as Buffer | undefined) ?? NOTHING;
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;
}

const NOTHING = Buffer.alloc(0);

function tooLarge(limitBytes: number): WarmpathError {
  const detail = `The limit is ${limitBytes} bytes (\`server.bodyLimitBytes\`, and a part of \`limits.memoryBytes\`).`;
  return new WarmpathError('WARMPATH_BODY_TOO_LARGE', { detail });
}
