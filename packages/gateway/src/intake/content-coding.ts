import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { WarmpathError } from '@warmpath/core';

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
