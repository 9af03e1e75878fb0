import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { engineHeaders } from '../dispatch/forward.js';
import { requestHeaders } from '../dispatch/headers.js';
import { askModels } from '../engines/engine-probe.js';
import type { Gateway } from '../gateway.js';

/**
 * `GET /healthz`: the process answers. `GET /readyz`: it takes requests and its engine answers HTTP; 503 otherwise.
 * An engine that wants a key the gateway does not have is there nevertheless, so any status below 500 counts.
 */
export function healthRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.get('/healthz', () => ({ status: 'ok' }));
  app.get('/readyz', async (request, reply) => {
    if (gateway.draining) throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
    const failure = await probeEngine(gateway, request.exchange.requestId);
    // Without its shared store a gateway serves all the same.
    const { isUp } = gateway.conversations.store;
    if (failure === undefined) return { status: 'ready', sessionStore: isUp ? 'up' : 'down' };
    request.exchange.failed(failure.code, 'upstream');
    return reply.code(503).send(failure.toOpenAI());
  });
}

/** Asks the engine for its models, within the time that a connection may take. Resolves with why it cannot, if so. */
export async function probeEngine(gateway: Gateway, requestId: string): Promise<WarmpathError | undefined> {
  const { upstream } = gateway;
  const headers = requestHeaders({}, engineHeaders(gateway, requestId));
  const answer = await askModels(upstream, headers, upstream.connectMs);
  if ('code' in answer) return answer;
  return answer.status < 500 ? undefined : unhealthy(answer.status);
}

function unhealthy(status: number): WarmpathError {
  return new WarmpathError('WARMPATH_UPSTREAM_UNREACHABLE', { detail: `The engine answers with status ${status}.` });
}
