import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { type Engine, unhealthy } from '../engines/engine.js';
import type { Gateway } from '../gateway.js';

/**
 * `GET /healthz`: the process answers. `GET /readyz`: it takes requests and its engine, or one of several, answers
 * HTTP; 503 otherwise. An engine that wants a key the gateway does not have is there nevertheless, so any status below
 * 500 counts.
 */
export function healthRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.get('/healthz', () => ({ status: 'ok' }));
  app.get('/readyz', async (request, reply) => {
    if (gateway.lifecycle.leaving) throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
    const { requestId } = request.exchange;
    const engines = await Promise.all(
      gateway.engines.all.filter((engine) => !engine.isRemoved).map((engine) => healthOf(engine, requestId)),
    );
    // Without its shared store a gateway serves all the same, and without some of its engines.
    const { isUp } = gateway.conversations.store;
    const sessionStore = isUp ? 'up' : 'down';
    const failure = engines.every((engine) => engine.failure !== undefined) ? engines[0]!.failure : undefined;
    if (failure === undefined) {
      if (engines.length === 1) return { status: 'ready', sessionStore };
      return { status: 'ready', sessionStore, engines: engines.map(({ name, state }) => ({ name, state })) };
    }
    request.exchange.failed(failure.code, 'upstream');
    return reply.code(503).send(failure.toOpenAI());
  });
}

/** How an engine is, as it answers now and as its requests went. */
async function healthOf(engine: Engine, requestId: string) {
  const failure = await engine.ping(requestId);
  const state = failure === undefined ? stateOf(engine) : 'failing';
  return { name: engine.name, state, failure: engine.isDraining ? (failure ?? unhealthy(503)) : failure };
}

/** How an engine that answers takes requests. */
function stateOf({ isDraining, health }: Engine): 'ready' | 'draining' | 'ejected' {
  if (isDraining) return 'draining';
  return health.state === 'up' ? 'ready' : 'ejected';
}
