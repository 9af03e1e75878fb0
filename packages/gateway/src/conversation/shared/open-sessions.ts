import type { FastifyBaseLogger } from 'fastify';
import type { GatewayConfig } from '../../config/schema.js';
import type { Gateway } from '../../gateway.js';
import { bytesOfPart } from '../../observe/memory-budget.js';
import { MemorySessionStore, type SessionStore } from '../session-store.js';
import { RedisSessionStore } from './redis-session-store.js';

/** The store that the configuration asks for, not yet open. */
export function sessionStore({ session, limits }: Pick<GatewayConfig, 'session' | 'limits'>): SessionStore {
  const { store, maxAgeMs } = session;
  const maxBytes = Math.floor(bytesOfPart('conversations', limits.memoryBytes) / 2);
  const memory = { maxAgeMs, maxBytes };
  const { kind, url, ...settings } = store;
  // The schema has no server without a URL.
  return kind === 'memory' || url === undefined
    ? new MemorySessionStore(memory)
    : new RedisSessionStore({ url, ...settings, memory });
}

/** How the store of a configuration stands. */
export interface SessionStoreProbe {
  readonly kind: GatewayConfig['session']['store']['kind'];
  readonly isUp: boolean;
  /** `connected`, or why not: a system's code or a word of the server's. Holds no secret. */
  readonly reason: string;
}

/** Connects to the store of a configuration, once, and leaves it again. Error: where its library is not installed. */
export async function probeSessionStore(config: GatewayConfig): Promise<SessionStoreProbe> {
  const store = sessionStore(config);
  let reason = 'connected';
  await store.open({
    done: () => {},
    failed: () => {},
    changed: (_, said) => {
      reason = said;
    },
  });
  const { isUp } = store;
  await store.close();
  return { kind: config.session.store.kind, isUp, reason };
}

/** Opens the store; what becomes of it shows in the metrics, and in the log where the server comes or goes. */
export async function openSessions({ conversations, metrics }: Gateway, log: FastifyBaseLogger): Promise<void> {
  await conversations.store.open({
    done: (operation, ms) => metrics.stored(operation, ms),
    failed: (operation, failure) => metrics.notStored(operation, failure),
    changed: (isUp, reason) => {
      if (isUp) log.info({ reason }, 'session store up');
      else log.warn({ reason }, 'session store down');
    },
  });
}
