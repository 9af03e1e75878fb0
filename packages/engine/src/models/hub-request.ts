import type { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import { type Dispatcher, request } from 'undici';

const MAX_REDIRECTS = 8;

/** A failure that another try may mend. */
export class TransientFailure extends Error {
  override readonly name = 'TransientFailure';
  /** Milliseconds that the server asks to wait, if it does. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, options: { readonly cause?: unknown; readonly retryAfterMs?: number | undefined } = {}) {
    super(message, { cause: options.cause });
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** What is known about the content that a partial download belongs to. */
export interface ContentIdentity {
  /** The serving host's entity tag, as it came. */
  readonly etag?: string | undefined;
  /** The hub's own tag of the content; 64 hexadecimal digits are its SHA-256. */
  readonly linkedEtag?: string | undefined;
  readonly totalBytes?: number | undefined;
}

export interface HubRequest {
  readonly url: URL;
  /** Sent to the origin of `url` and to no other. */
  readonly token?: string | undefined;
  readonly dispatcher: Dispatcher;
  readonly signal: AbortSignal;
  /** Bytes that are there already, and of which content. */
  readonly resume?: { readonly bytes: number; readonly identity: ContentIdentity } | undefined;
}

export interface HubResponse {
  readonly status: number;
  /** One value a header, names in lower case. */
  readonly header: (name: string) => string | undefined;
  readonly body: ArrivingBytes;
  /** What the hub and the serving host say about the content together. */
  readonly identity: ContentIdentity;
}

/**
 * Asks the hub for a file and follows its redirects (8 at most) to the host that serves the bytes. The token goes to
 * the hub's origin only; a redirect from https to http is refused. The hub names the content (`x-linked-etag`,
 * `x-linked-size`) on its own answer, before the redirect; when that name is not the one of the bytes already there,
 * the range is left out of what follows.
 *
 * Errors: {@link TransientFailure} for the network; `WARMPATH_DOWNLOAD_FAILED` for redirects that lead nowhere; the
 * signal's reason.
 */
export async function requestHubFile({ url, token, dispatcher, signal, resume }: HubRequest): Promise<HubResponse> {
  let target = url;
  let linked: ContentIdentity = {};
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const headers = {
      // Compressed bytes would have other lengths and ranges than the file.
      'accept-encoding': 'identity',
      'user-agent': 'warmpath',
      ...(token !== undefined && target.origin === url.origin && { authorization: `Bearer ${token}` }),
      ...rangeHeaders(resume, linked),
    };
    const response = await networked(request(target, { dispatcher, signal, headers }), signal);
    const header = headerReader(response.headers);
    linked = {
      linkedEtag: linked.linkedEtag ?? unquote(header('x-linked-etag')),
      totalBytes: linked.totalBytes ?? wholeNumber(header('x-linked-size')),
    };
    const location = header('location');
    if (response.statusCode < 300 || response.statusCode >= 400 || location === undefined) {
      return {
        status: response.statusCode,
        header,
        body: new ArrivingBytes(response.body),
        identity: { ...linked, etag: header('etag') },
      };
    }
    // The rest of a redirect does not matter, nor how it ends; without a listener an error would end the process.
    response.body.on('error', () => undefined);
    await networked(response.body.dump(), signal);
    target = redirectTarget(location, target);
  }
  throw new WarmpathError('WARMPATH_DOWNLOAD_FAILED', {
    detail: `the server redirects more than ${MAX_REDIRECTS} times`,
  });
}

/** Turns a failure of the network into a {@link TransientFailure}; an abort stays what it is. */
export async function networked<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await work;
  } catch (cause) {
    signal.throwIfAborted();
    const { code, message } = cause as NodeJS.ErrnoException;
    throw new TransientFailure(code ?? message, { cause });
  }
}

/** Whole number of 0 or more that a header holds, if it does. */
export function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

/**
 * Asks for the rest only where it is certain to be the rest of the same content: a strong entity tag lets the server
 * decide (`If-Range`); without one, the hub's own tag has to be known and the same.
 */
function rangeHeaders(resume: HubRequest['resume'], linked: ContentIdentity): Record<string, string> {
  if (resume === undefined) return {};
  const { etag, linkedEtag } = resume.identity;
  if (linked.linkedEtag !== undefined && linkedEtag !== linked.linkedEtag) return {};
  const range = `bytes=${resume.bytes}-`;
  if (etag?.startsWith('"')) return { range, 'if-range': etag };
  return linkedEtag !== undefined && linkedEtag === linked.linkedEtag ? { range } : {};
}

function redirectTarget(location: string, from: URL): URL {
  const target = URL.canParse(location, from.href) ? new URL(location, from) : undefined;
  const secureEnough = target?.protocol === 'https:' || (target?.protocol === 'http:' && from.protocol === 'http:');
  if (target === undefined || !secureEnough) {
    throw new WarmpathError('WARMPATH_DOWNLOAD_FAILED', {
      detail: 'the server redirects to an address that is not https',
    });
  }
  return target;
}

function headerReader(headers: Record<string, string | string[] | undefined>): (name: string) => string | undefined {
  return (name) => {
    const value = headers[name];
    return Array.isArray(value) ? value[0] : value;
  };
}

function unquote(tag: string | undefined): string | undefined {
  return tag?.replace(/^(?:W\/)?"(.*)"$/, '$1');
}

/** Bytes that may wait for the disk before the network is paused. */
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
