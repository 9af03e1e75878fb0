import type { IncomingHttpHeaders } from 'node:http';
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
