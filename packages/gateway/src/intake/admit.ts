import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import { ANONYMOUS_TENANT } from '@warmpath/core/internal';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { GatewayConfig } from '../config/schema.js';
import { identifiesTenants, isLoopback, type ServerConfig } from '../config/schema-server.js';
import { BodyView, invalid } from '../json/json-body.js';
import type { JsonMember } from '../json/json-scanner.js';
import type { Overload } from '../limits/load.js';
import { type Authenticator, type Caller, OPERATOR } from './authenticate.js';
import type { RateLimits } from './rate-limits.js';
import { checkCodings, checkMediaType } from './request-body.js';

/** Routes that need no key: load balancers have none, and the dashboard's page holds no data. */
const OPEN_ROUTES: ReadonlySet<string | undefined> = new Set(['/', '/healthz', '/readyz', '/ui', '/ui/']);

/** The dashboard's page, without data. */
const PAGE_ROUTES: ReadonlySet<string | undefined> = new Set(['/', '/ui', '/ui/']);

/** The dashboard's data: for the operator. */
const DASHBOARD_DATA: readonly (string | undefined)[] = ['/ui/events', '/ui/tree', '/ui/requests/:id'];

/** Show texts of prompts, and change what happens to prompts. */
const TEXT_ROUTES: readonly (string | undefined)[] = [
  '/v1/prompts',
  '/v1/prompts/:id',
  '/v1/capture',
  '/v1/capture/:id',
];

/** Accounts of sessions. */
const SESSIONS_ROUTE = '/v1/sessions';

/** For the gateway's own page, and for no other web page. */
const OWN_PAGE_ONLY: ReadonlySet<string | undefined> = new Set([...DASHBOARD_DATA, SESSIONS_ROUTE, ...TEXT_ROUTES]);

/** Answer a tenant about what is its own, and the operator about everything. */
const SHARED_WITH_OPERATOR: ReadonlySet<string | undefined> = new Set([
  '/v1/requests/:id',
  SESSIONS_ROUTE,
  ...TEXT_ROUTES,
]);

/** Who may send requests. A reload of the configuration replaces both. */
export interface Access {
  authenticator: Authenticator;
  cors: Cors;
}

export interface AdmitParts {
  readonly config: { readonly server: ServerConfig };
  readonly access: Access;
  readonly rateLimits: RateLimits;
  readonly overload: Overload;
}

/**
 * Decides who sends a request and whether it goes on, before its body is read. Every path that is not open needs a key
 * where keys are configured, unknown paths included.
 *
 * @param done Gets the error. Not called for a preflight, which is answered here.
 */
export function admit(
  parts: AdmitParts,
  request: FastifyRequest,
  reply: FastifyReply,
  done: (error?: Error) => void,
): void {
  const { url: route, config } = request.routeOptions;
  const { server } = parts.config;
  const { authenticator, cors } = parts.access;
  const isDashboard = DASHBOARD_DATA.includes(route);
  const isOwnPageOnly = OWN_PAGE_ONLY.has(route);
  // `server.cors` lets no page choose what happens to prompts.
  const origins = TEXT_ROUTES.includes(route) ? { ...server, cors: [] } : server;
  const foreign = checkHost(server, request.raw) ?? checkOrigin(origins, request.raw, PAGE_ROUTES.has(route));
  if (foreign !== undefined) {
    done(foreign);
    return;
  }
  if (!isOwnPageOnly && cors.answer(request, reply)) return;
  const unread =
    checkCodings(request.headers) ??
    (route === undefined ? undefined : checkMediaType(request.headers, config.mediaTypes));
  if (unread !== undefined) {
    done(unread);
    return;
  }
  if (OPEN_ROUTES.has(route)) {
    done();
    return;
  }
  try {
    if (isDashboard || route === '/metrics') {
      requireOperator(parts, request);
      done();
      return;
    }
    if (authenticator.isOperator(request.headers)) {
      if (!SHARED_WITH_OPERATOR.has(route))
        throw forbidden(
          "The operator's key is for /metrics, /ui, /v1/requests/{id}, /v1/sessions, /v1/prompts and /v1/capture alone.",
        );
      request.report.caller = OPERATOR;
      done();
      return;
    }
    const caller = authenticator.callerOf(request.headers);
    if (!(caller instanceof Promise)) done(enter(parts, request, reply, caller));
    else caller.then((known) => enter(parts, request, reply, known)).then(done, done);
  } catch (error) {
    done(error as WarmpathError);
  }
}

/** Whether a caller may act for its tenant. An anonymous caller may only where this machine alone can ask. */
export function canActForTenant(server: ServerConfig, { tenant }: Caller): boolean {
  return tenant !== ANONYMOUS_TENANT || isLoopback(server.host);
}

/** Whether a caller is the operator. Where this machine alone can ask and no keys are configured, every caller is. */
export function isOperator(server: ServerConfig, caller: Caller): boolean {
  const isOwnMachine = isLoopback(server.host) && !identifiesTenants(server) && server.operatorKey === undefined;
  return caller.isOperator || isOwnMachine;
}

/**
 * The tenant of which a caller may see a list: its own. The operator may name one, or sees all (`undefined`).
 *
 * @throws WarmpathError `WARMPATH_FORBIDDEN` for another tenant, and for an anonymous caller where others can ask.
 */
export function listedTenant(server: ServerConfig, caller: Caller, named: unknown): string | undefined {
  if (named !== undefined && typeof named !== 'string') throw invalid('tenant', 'one name was expected');
  if (isOperator(server, caller)) return named;
  if (!canActForTenant(server, caller)) throw new WarmpathError('WARMPATH_FORBIDDEN');
  if (named !== undefined && named !== caller.tenant) throw forbidden('This key may see its own tenant alone.');
  return caller.tenant;
}

/**
 * @param why Why the operator alone may do it, without a full stop.
 * @throws WarmpathError `WARMPATH_FORBIDDEN` for everybody else.
 */
export function requireOperatorOf(server: ServerConfig, caller: Caller, why: string): void {
  if (isOperator(server, caller)) return;
  const remedy =
    server.operatorKey === undefined ? 'configure `server.operatorKey`' : 'send its key (`server.operatorKey`)';
  throw forbidden(`${why}: ${remedy}.`);
}

/**
 * Whether callers without a key may see data of no tenant. Never where keys are configured: a request through a proxy
 * on this machine looks like one from this machine.
 */
export function isPrivate(server: ServerConfig): boolean {
  return !identifiesTenants(server) && (server.open || isLoopback(server.host));
}

/** Records the caller. @returns The error where it may send no more for now. */
function enter(
  { rateLimits, overload }: AdmitParts,
  { report }: FastifyRequest,
  reply: FastifyReply,
  caller: Caller,
): WarmpathError | undefined {
  report.caller = caller;
  const overloaded = overload.refusal();
  if (overloaded !== undefined) return overloaded;
  const { key } = caller;
  if (key === undefined) return undefined;
  const refusal = rateLimits.enter(key);
  if (refusal !== undefined) return refusal;
  if (reply.raw.destroyed) rateLimits.leave(key);
  else reply.raw.once('close', () => rateLimits.leave(key));
  return undefined;
}

/**
 * @throws WarmpathError `WARMPATH_UNAUTHORIZED` without the operator's key; `WARMPATH_FORBIDDEN` where no such key is
 * configured and other machines can ask.
 */
function requireOperator({ config, access }: AdmitParts, { headers }: FastifyRequest): void {
  if (config.server.operatorKey !== undefined) {
    if (access.authenticator.isOperator(headers)) return;
    throw new WarmpathError('WARMPATH_UNAUTHORIZED', {
      detail: "This path needs the operator's key (`server.operatorKey`).",
    });
  }
  if (isPrivate(config.server)) return;
  const remedy = identifiesTenants(config.server) ? '' : ', or set `server.open: true`';
  throw forbidden(`This path is closed: configure \`server.operatorKey\`${remedy}.`);
}

function forbidden(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_FORBIDDEN', { detail });
}

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
function checkHost(server: ServerConfig, { url = '', headers, rawHeaders }: IncomingMessage) {
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
function checkOrigin(server: ServerConfig, { headers }: IncomingMessage, isPage: boolean): WarmpathError | undefined {
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

/** Paths for which an engine keeps nothing, so that no tenant can read another tenant's data. */
const STATELESS = {
  GET: /^\/v1\/models(?:\/|$)/,
  POST: /^\/v1\/(?:embeddings|rerank|reranking|score|similarity|classify|pooling|moderations|tokenize|detokenize|audio\/(?:transcriptions|translations|speech)|images\/(?:generations|edits|variations))\/?$/,
} as const;

/** Fields of a prompt that refer to data on the engine, and the path of that data. */
const STORED = [
  ['previous_response_id', '/v1/responses/'],
  ['conversation', '/v1/conversations/'],
  ['container', '/v1/containers/'],
  ['prompt', '/v1/prompts/'],
  ['background', '/v1/responses/'],
] as const;

/**
 * Whether tenants share one account at the engine: requests carry the gateway's key, or none. With the clients' own
 * keys the engine separates them.
 */
function isShared({ server, upstream, engines = [] }: GatewayConfig): boolean {
  if (identifiesTenants(server)) return true;
  const hasKey = upstream.apiKey !== undefined || engines.some(({ apiKey }) => apiKey !== undefined);
  return hasKey && !isLoopback(server.host);
}

/** @param path Normalised. @throws WarmpathError `WARMPATH_PATH_CLOSED`. */
export function checkEnginePath(config: GatewayConfig, method: string, path: string): void {
  if (!isShared(config) || !path.startsWith('/v1/') || isListed(config, path)) return;
  const stateless = method === 'HEAD' ? STATELESS.GET : STATELESS[method as keyof typeof STATELESS];
  if (stateless?.test(path) !== true) throw new WarmpathError('WARMPATH_PATH_CLOSED');
}

/**
 * Refuses a prompt that refers to data on the engine: it may be another tenant's.
 *
 * @throws WarmpathError `WARMPATH_PATH_CLOSED`; those of reading the body.
 */
export function checkStoredState(config: GatewayConfig, bytes: Buffer): void {
  if (!isShared(config)) return;
  const body = new BodyView(bytes);
  for (const [field, path] of STORED) {
    for (const { key, valueStart, end } of body.members) {
      if (key !== field || isListed(config, path)) continue;
      const text = body.scan.text({ start: valueStart, end });
      // The prompt of a completion is text or tokens. A stored prompt is an object.
      if (text === 'null' || text === 'false' || (field === 'prompt' && !text.startsWith('{'))) continue;
      const detail = `The engine keeps this for all tenants together, under ${path}.`;
      throw new WarmpathError('WARMPATH_PATH_CLOSED', { path: field, detail });
    }
  }
  checkItems(config, body);
}

/** Lists of a Responses request whose elements may name an item or a container on the engine. */
const ITEMS = [
  ['input', '/v1/responses/', isItemReference],
  ['tools', '/v1/containers/', namesContainer],
] as const;

function checkItems(config: GatewayConfig, body: BodyView): void {
  for (const [field, path, refers] of ITEMS) {
    const span = body.value(field);
    if (span === undefined || !body.scan.isArray(span) || isListed(config, path)) continue;
    for (const [place, element] of body.scan.elements(span.start).entries()) {
      if (!body.scan.isObject(element) || !refers(body, body.scan.members(element.start))) continue;
      const detail = `The engine keeps this for all tenants together, under ${path}.`;
      throw new WarmpathError('WARMPATH_PATH_CLOSED', { path: `${field}[${place}]`, detail });
    }
  }
}

/** The type may be left out: an item with content of its own has a role, a content or another type. */
function isItemReference({ scan }: BodyView, members: readonly JsonMember[]): boolean {
  let isOwn = false;
  for (const { key, valueStart, end } of members) {
    const type = key === 'type' ? scan.string({ start: valueStart, end }) : undefined;
    if (type === 'item_reference') return true;
    if (type !== undefined || key === 'role' || key === 'content') isOwn = true;
  }
  return !isOwn && members.some(({ key }) => key === 'id');
}

function namesContainer({ scan }: BodyView, members: readonly JsonMember[]): boolean {
  return members.some(({ key, valueStart, end }) => key === 'container' && scan.isString({ start: valueStart, end }));
}

function isListed({ passthrough }: GatewayConfig, path: string): boolean {
  return passthrough.some((open) => path === open || path.startsWith(open.endsWith('/') ? open : `${open}/`));
}
