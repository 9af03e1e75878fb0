import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIPv4 } from 'node:net';
import { WarmpathError } from '@warmpath/core';

export interface AccessRule {
  readonly host: string;
  /** The key that each request must carry. Without one, requests of this machine's programs are answered. */
  readonly key?: string | undefined;
}

/**
 * Checks that a request has the key. Where there is none to check, that no web page sent it: a page of another origin,
 * or one whose name was led to this address (DNS rebinding).
 *
 * @throws WARMPATH_UNAUTHORIZED, WARMPATH_HOST_NOT_ALLOWED, WARMPATH_ORIGIN_NOT_ALLOWED.
 */
export function checkAccess({ headers }: Pick<IncomingMessage, 'headers'>, { host, key }: AccessRule): void {
  if (key !== undefined) {
    if (!isSame(headers.authorization ?? '', `Bearer ${key}`)) {
      throw new WarmpathError('WARMPATH_UNAUTHORIZED', {
        detail: 'This engine answers its own gateway only: send the request to the gateway.',
      });
    }
    return;
  }
  const name = nameOf(headers.host);
  if (isLoopback(host) && !isLoopback(name) && name !== host.toLowerCase()) {
    throw new WarmpathError('WARMPATH_HOST_NOT_ALLOWED', {
      detail: 'The Host of this request is not a name of this machine, and this engine checks no keys.',
    });
  }
  const { origin, 'sec-fetch-site': site = 'none' } = headers;
  const isOwn = origin === undefined ? site === 'none' || site === 'same-origin' : origin === `http://${headers.host}`;
  if (!isOwn) {
    throw new WarmpathError('WARMPATH_ORIGIN_NOT_ALLOWED', {
      detail: 'A web page of another origin sent this request, and this engine checks no keys.',
    });
  }
}

/** Whether two texts are the same, in a time that does not tell where they differ. */
function isSame(given: string, expected: string): boolean {
  return timingSafeEqual(hash('sha256', given, 'buffer'), hash('sha256', expected, 'buffer'));
}

/** The name or address of a `Host` header; empty for what is none. */
function nameOf(host = ''): string {
  const url = `http://${host}`;
  if (!URL.canParse(url) || /[/?#@\\]/.test(host)) return '';
  return new URL(url).hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}
