import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { identifiesTenants, isLoopback, type ServerConfig } from '../config/schema-server.js';

/** A name or an address with an optional port, without user information. */
const HOST = /^(?:\[[\da-f:.]+\]|[^\s:/?#@[\]\\]+)(?::\d*)?$/i;
/** The host in a request line with a whole URL (RFC 9112, section 3.2.2). */
const ABSOLUTE_FORM = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i;
/** Top-level domains that are not in the public DNS. */
const PRIVATE_NAME = /\.(?:local|localhost|internal|svc|lan|test|home\.arpa)$/;
/** Characters of a header that an error quotes. */
const MAX_QUOTED = 100;
/** Seconds for which a browser may cache the answer to a preflight. */
const MAX_AGE_S = '86400';

/**
 * Checks that a request without keys was sent to a name of this machine. This prevents DNS rebinding: a browser sends
 * the requests of a web page to any address that the page's name resolves to.
 *
 * @returns `WARMPATH_INVALID_REQUEST` for two `Host` headers; `WARMPATH_HOST_NOT_ALLOWED`.
 */
export function checkHost(server: ServerConfig, { url = '', headers, rawHeaders }: IncomingMessage) {
  const given = rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'host').length;
  if (given > 1) {
    return new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'host', detail: 'This header stands there twice.' });
  }
  if (identifiesTenants(server) || server.open) return undefined;
  for (const host of [headers.host ?? '', ABSOLUTE_FORM.exec(url)?.[1]]) {
    if (host === undefined || isOwnName(server, hostName(host))) continue;
    return new WarmpathError('WARMPATH_HOST_NOT_ALLOWED', {
      detail: `Host ${quoted(host)} is not a name of this machine, and this gateway checks no keys.`,
    });
  }
  return undefined;
}

/**
 * Checks that no web page of another origin sent a request without keys.
 *
 * @param isPage Whether the request is for the dashboard's page, which holds no data and may be opened by a link.
 * @returns `WARMPATH_ORIGIN_NOT_ALLOWED`.
 */
export function checkOrigin(
  server: ServerConfig,
  { headers }: IncomingMessage,
  isPage: boolean,
): WarmpathError | undefined {
  if (identifiesTenants(server)) return undefined;
  const { cors = [] } = server;
  const { origin } = headers;
  if (cors.includes('*')) return undefined;
  if (origin !== undefined) {
    if (cors.includes(origin) || isSameHost(origin, headers.host)) return undefined;
    return foreignOrigin(`A web page of origin ${quoted(origin)} sent this request.`);
  }
  const { 'sec-fetch-site': site, 'sec-fetch-dest': destination } = headers;
  if (site === undefined || site === 'none' || site === 'same-origin') return undefined;
  if (isPage && destination === 'document') return undefined;
  return foreignOrigin('A web page of another origin sent this request.');
}

/**
 * Lets web pages of the configured origins call the gateway. Pages send keys in headers, not in cookies. Preflights and
 * `access-control-…` headers are the gateway's own: none come from the engine.
 */
export class Cors {
  readonly #origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  /** Sets the headers of an answer. @returns Whether the request was a preflight, which is answered here. */
  answer({ method, headers }: FastifyRequest, reply: FastifyReply): boolean {
    const { origin } = headers;
    const isAllowed = origin !== undefined && (this.#origins.has('*') || this.#origins.has(origin));
    // On the raw response: relayed answers bypass Fastify.
    const { raw } = reply;
    if (this.#origins.size > 0) raw.setHeader('vary', 'origin');
    if (isAllowed) {
      raw.setHeader('access-control-allow-origin', origin);
      raw.setHeader('access-control-expose-headers', '*');
    }
    if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false;
    if (isAllowed) {
      raw.setHeader('access-control-allow-methods', 'GET, POST, DELETE');
      raw.setHeader('access-control-allow-headers', headers['access-control-request-headers'] ?? '*');
      raw.setHeader('access-control-max-age', MAX_AGE_S);
    }
    reply.code(204).send();
    return true;
  }
}

function foreignOrigin(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_ORIGIN_NOT_ALLOWED', { detail });
}

/** The name or address of a `Host` as browsers write it; empty for an invalid one. */
function hostName(host: string): string {
  const url = `http://${host}`;
  if (!HOST.test(host) || !URL.canParse(url)) return '';
  return new URL(url).hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
}

/**
 * Whether only this gateway's pages can have this name. A gateway for this machine has the names of this machine. One
 * for a network also has addresses, and names outside of the public DNS.
 */
function isOwnName({ host }: ServerConfig, name: string): boolean {
  if (name === '') return false;
  if (isLoopback(name) || name === host.toLowerCase()) return true;
  if (isLoopback(host)) return false;
  return isIP(name) !== 0 || !name.includes('.') || PRIVATE_NAME.test(name);
}

function isSameHost(origin: string, host: string | undefined): boolean {
  if (host === undefined || !URL.canParse(origin) || !URL.canParse(`http://${host}`)) return false;
  const { protocol, host: own } = new URL(origin);
  // Neither header has the default port of the scheme.
  return (protocol === 'http:' || protocol === 'https:') && own === new URL(`${protocol}//${host}`).host;
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, MAX_QUOTED));
}
