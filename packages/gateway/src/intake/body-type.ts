import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { WarmpathError } from '@warmpath/core';

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
    const detail =
      type === '' ? 'The body has no content-type.' : `A body of type ${type.slice(0, 100)} is not read here.`;
    return new WarmpathError('WARMPATH_MEDIA_TYPE', { path: 'content-type', detail });
  }
  const charset = CHARSET.exec(headers['content-type'] ?? '')?.[1];
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
export interface BodySource {
  readonly stream: Readable;
  /** Bytes that the stream will give, where that is known. */
  readonly length: number | undefined;
  /** What the client sends of it, in bytes. */
  readonly sentLength: number | undefined;
  /** Stops reading. */
  stop(): void;
}

/** The body of a request, decoded. `failed` is called when the connection breaks, or the body is not what it says. */
export function bodySource(request: IncomingMessage, failed: (error: WarmpathError) => void): BodySource {
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
