import { WarmpathError } from '@warmpath/core';
import type { ConversationStore } from '@warmpath/core/internal';
import type { FastifyInstance } from 'fastify';
import type { Lifecycle } from '../dispatch/forward.js';
import { type Engine, unhealthy } from '../engines/engine.js';
import type { Engines } from '../engines/engines.js';

export interface HealthParts {
  readonly engines: Engines;
  readonly store: Pick<ConversationStore, 'isUp'>;
  readonly lifecycle: Lifecycle;
}

/**
 * `GET /healthz`: the process answers. `GET /readyz`: the gateway takes requests and at least one engine answers with a
 * status below 500; otherwise 503. An engine that asks for a key is ready.
 */
export function healthRoutes(app: FastifyInstance, { engines: known, store, lifecycle }: HealthParts): void {
  app.get('/healthz', () => ({ status: 'ok' }));
  app.get('/readyz', async (request, reply) => {
    if (lifecycle.leaving) throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
    const { requestId } = request.report;
    const engines = await Promise.all(
      known.all.filter((engine) => !engine.isRemoved).map((engine) => healthOf(engine, requestId)),
    );
    // A gateway without its shared store is ready, and one without some of its engines.
    const sessionStore = store.isUp ? 'up' : 'down';
    const failure = engines.every((engine) => engine.failure !== undefined) ? engines[0]!.failure : undefined;
    if (failure === undefined) {
      if (engines.length === 1) return { status: 'ready', sessionStore };
      return { status: 'ready', sessionStore, engines: engines.map(({ name, state }) => ({ name, state })) };
    }
    request.report.failed(failure.code, 'upstream');
    return reply.code(503).send(failure.toOpenAI());
  });
}

/** The state of an engine, from its answer now and from its requests so far. */
async function healthOf(engine: Engine, requestId: string) {
  const failure = await engine.ping(requestId);
  const state = failure === undefined ? stateOf(engine) : 'failing';
  return { name: engine.name, state, failure: engine.isDraining ? (failure ?? unhealthy(503)) : failure };
}

/** Whether an engine that answers gets requests. */
function stateOf({ isDraining, health }: Engine): 'ready' | 'draining' | 'ejected' {
  if (isDraining) return 'draining';
  return health.state === 'up' ? 'ready' : 'ejected';
}
