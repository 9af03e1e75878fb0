import { WarmpathError } from '@warmpath/core';
import { ANONYMOUS_TENANT } from '@warmpath/core/internal';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { identifiesTenants, isLoopback } from '../config/schema-server.js';
import type { Gateway } from '../gateway.js';
import { type Caller, OPERATOR } from './authenticate.js';
import { checkCodings, checkMediaType } from './body-type.js';
import { checkHost, checkOrigin } from './browser-requests.js';

/** Open to all: load balancers have no key, and the page of the dashboard holds nothing until it has one. */
const OPEN_ROUTES: ReadonlySet<string | undefined> = new Set(['/', '/healthz', '/readyz', '/ui']);

/** The dashboard's page, without data. */
const PAGE_ROUTES: ReadonlySet<string | undefined> = new Set(['/', '/ui']);

/** What the page asks for: the operator's, and read by no other page. */
const DASHBOARD_DATA: ReadonlySet<string | undefined> = new Set(['/ui/events', '/ui/tree', '/ui/requests/:id']);

/** The one route of the operator's that has a tenant's answer as well. */
const REQUESTS_ROUTE = '/v1/requests/:id';

/**
 * Decides, before the body is read, who sends a request and whether it goes on: `done` gets the error if not, and is
 * not called for what is answered here. Everything that is not named as open needs the key that the configuration asks
 * for, unknown paths included.
 */
export function admit(
  gateway: Gateway,
  request: FastifyRequest,
  reply: FastifyReply,
  done: (error?: Error) => void,
): void {
  const { url: route, config } = request.routeOptions;
  const { server } = gateway.config;
  const isDashboard = DASHBOARD_DATA.has(route);
  const foreign = checkHost(server, request.raw) ?? checkOrigin(server, request.raw, PAGE_ROUTES.has(route));
  if (foreign !== undefined) {
    done(foreign);
    return;
  }
  if (!isDashboard && gateway.cors.answer(request, reply)) return;
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
      requireOperator(gateway, request);
      done();
      return;
    }
    if (gateway.authenticator.isOperator(request.headers)) {
      if (route !== REQUESTS_ROUTE)
        throw forbidden("The operator's key is for /metrics, /ui and /v1/requests/{id} alone.");
      request.exchange.caller = OPERATOR;
      done();
      return;
    }
    const caller = gateway.authenticator.callerOf(request.headers);
    if (!(caller instanceof Promise)) done(enter(gateway, request, reply, caller));
    else caller.then((known) => enter(gateway, request, reply, known)).then(done, done);
  } catch (error) {
    done(error as WarmpathError);
  }
}

/**
 * Whether a caller may act on what is its tenant's alone: one that could be anybody may where only this machine can
 * ask.
 */
export function mayActForTenant({ config: { server } }: Gateway, { tenant }: Caller): boolean {
  return tenant !== ANONYMOUS_TENANT || isLoopback(server.host);
}

/**
 * Whether callers without a key may see what belongs to no tenant. Never where keys are configured: a request that a
 * TLS proxy on this machine passes on looks like one from this machine.
 */
export function isPrivate({ config: { server } }: Gateway): boolean {
  return !identifiesTenants(server) && (server.open || isLoopback(server.host));
}

/** Notes the caller. Returns why it may send no more for now, if so. */
function enter(
  { rateLimits, overload }: Gateway,
  { exchange }: FastifyRequest,
  reply: FastifyReply,
  caller: Caller,
): WarmpathError | undefined {
  exchange.caller = caller;
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
 * Error: `WARMPATH_UNAUTHORIZED` without the operator's key; `WARMPATH_FORBIDDEN` where there is none and others could
 * ask.
 */
function requireOperator(gateway: Gateway, { headers }: FastifyRequest): void {
  if (gateway.config.server.operatorKey !== undefined) {
    if (gateway.authenticator.isOperator(headers)) return;
    throw new WarmpathError('WARMPATH_UNAUTHORIZED', {
      detail: "This path needs the operator's key (`server.operatorKey`).",
    });
  }
  if (isPrivate(gateway)) return;
  const remedy = identifiesTenants(gateway.config.server) ? '' : ', or set `server.open: true`';
  throw forbidden(`This path is closed: configure \`server.operatorKey\`${remedy}.`);
}

function forbidden(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_FORBIDDEN', { detail });
}
