import { WarmpathError } from '@warmpath/core';
import type { ConversationStore, SessionEntry, SessionFilter, TurnLookup, TurnName } from '@warmpath/core/internal';
import {
  ConversationLog,
  type ConversationLogOptions,
  type ConversationName,
  type SentTurn,
} from '@warmpath/core/internal';
import type { GatewayConfig } from '../config/schema.js';
import { bytesOfPart } from '../limits/memory-budget.js';

/** Conversations in the memory of this process. */
export class MemoryConversationStore implements ConversationStore {
  readonly isUp = true;
  readonly #log: ConversationLog;

  constructor(options: ConversationLogOptions) {
    this.#log = new ConversationLog(options);
  }

  get conversations(): number {
    return this.#log.size;
  }

  get turns(): number {
    return this.#log.turns;
  }

  get bytes(): number {
    return this.#log.bytes;
  }

  find(name: ConversationName, _links: readonly string[], now: number): TurnLookup {
    this.#log.expire(now);
    return this.#log.lookup(name, now);
  }

  sent(name: ConversationName, turn: SentTurn, now: number): void {
    this.#log.sent(name, turn, now);
  }

  answered(name: ConversationName, turn: TurnName, answer: string, now: number): void {
    this.#log.answered(name, turn, answer, now);
  }

  export(filter: SessionFilter, now: number): Iterable<SessionEntry> {
    return this.#log.export(now, filter);
  }

  restore(entry: unknown, now: number): boolean {
    return this.#log.restore(entry, now);
  }

  forget(filter: SessionFilter): number {
    const { turns } = this;
    this.#log.forget(filter);
    return turns - this.turns;
  }

  async open(): Promise<void> {}

  async close(): Promise<void> {}
}

/** Settings of gateways that share a server. */
export interface SharedStoreSettings {
  /** Prefix of all keys in the server. */
  readonly prefix?: string;
  /** Milliseconds that a request waits for the server. */
  readonly timeoutMs?: number;
}

const KEY_PREFIX = 'warmpath:';
const STORE_TIMEOUT_MS = 50;

/**
 * Creates the configured store, not yet open.
 *
 * @throws WarmpathError `WARMPATH_CONFIG_INVALID` if the store's package is not installed
 */
export async function createConversationStore(
  { session, limits }: Pick<GatewayConfig, 'session' | 'limits'>,
  { prefix = KEY_PREFIX, timeoutMs = STORE_TIMEOUT_MS }: SharedStoreSettings = {},
): Promise<ConversationStore> {
  const { store, maxAgeMs } = session;
  const memory = { maxAgeMs, maxBytes: Math.floor(bytesOfPart('conversations', limits.memoryBytes) / 2) };
  const { url } = store;
  if (url === undefined) return new MemoryConversationStore(memory);
  const { RedisConversationStore } = await loadRedis();
  return new RedisConversationStore({ url, prefix, timeoutMs, memory });
}

async function loadRedis(): Promise<typeof import('@warmpath/redis')> {
  try {
    return await import('@warmpath/redis');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'session.store.url',
      detail: 'The package @warmpath/redis cannot be loaded. Run: npm install @warmpath/redis',
      cause,
    });
  }
}

/** Whether the configured store is reachable. */
export interface ConversationStoreProbe {
  readonly kind: 'memory' | 'redis';
  readonly isUp: boolean;
  /** `connected`, or the error code of the system or server. Holds no secret. */
  readonly reason: string;
}

/**
 * Connects to the store of a configuration once, and disconnects.
 *
 * @throws WarmpathError `WARMPATH_CONFIG_INVALID`, as `createConversationStore` does.
 */
export async function probeConversationStore(config: GatewayConfig): Promise<ConversationStoreProbe> {
  const store = await createConversationStore(config);
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
  return { kind: config.session.store.url === undefined ? 'memory' : 'redis', isUp, reason };
}
