import { WarmpathError } from '@warmpath/core';
import { ANONYMOUS_TENANT } from '@warmpath/core/internal';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { identifiesTenants, isLoopback, type ServerConfig } from '../config/schema-server.js';
import type { Overload } from '../limits/overload.js';
import { type Authenticator, type Caller, OPERATOR } from './authenticate.js';
import { checkCodings, checkMediaType } from './body-type.js';
import { type Cors, checkHost, checkOrigin } from './browser-requests.js';
import type { RateLimits } from './rate-limits.js';

/** Routes that need no key: load balancers have none, and the dashboard's page holds no data. */
const OPEN_ROUTES: ReadonlySet<string | undefined> = new Set(['/', '/healthz', '/readyz', '/ui']);

/** The dashboard's page, without data. */
const PAGE_ROUTES: ReadonlySet<string | undefined> = new Set(['/', '/ui']);

/** The dashboard's data: for the operator. */
const DASHBOARD_DATA: readonly (string | undefined)[] = ['/ui/events', '/ui/tree', '/ui/requests/:id'];

/** Show texts of prompts, and change what happens to prompts. */
const PROMPT_KINDS: readonly (string | undefined)[] = ['/v1/prompts', '/v1/prompts/:id'];

/** For the gateway's own page, and for no other web page. */
const OWN_PAGE_ONLY: ReadonlySet<string | undefined> = new Set([...DASHBOARD_DATA, ...PROMPT_KINDS]);

/** Answer a tenant about what is its own, and the operator about everything. */
const SHARED_WITH_OPERATOR: ReadonlySet<string | undefined> = new Set(['/v1/requests/:id', ...PROMPT_KINDS]);

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
  const origins = PROMPT_KINDS.includes(route) ? { ...server, cors: [] } : server;
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
        throw forbidden("The operator's key is for /metrics, /ui, /v1/requests/{id} and /v1/prompts alone.");
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
