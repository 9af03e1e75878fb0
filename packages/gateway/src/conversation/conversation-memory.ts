import { setTimeout as sleep } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import {
  ConversationLog,
  type ConversationLogOptions,
  type ConversationName,
  type ConversationStore,
  type RecalledConversation,
  recallConversation,
  type SentTurn,
  type SessionEntry,
  type SessionFilter,
  type StoreFailure,
  TenantCache,
  type TurnLookup,
  type TurnName,
} from '@warmpath/core/internal';
import type { PromptView } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import type { NamedConversation } from '../intake/parse-request.js';
import { bytesOfPart } from '../limits/memory-budget.js';
import type { RecognisedMessage, Sent, SentOrder } from '../shapes/shapes.js';

/** Options of `recall`. */
export interface RecallOptions {
  readonly tenant: string;
  readonly now: number;
  /** Called when a shared store was not asked, or did not answer. */
  readonly missed: (failure: StoreFailure) => void;
  /** Called when the store itself has a defect. */
  readonly failed: (defect: unknown) => void;
}

/** Milliseconds that a turn takes from the gateway that answered it to the shared store. */
const STORE_DELAY_MS = 50;
/** Estimated bytes of an order beside its ranks, and of a rank. */
const ORDER_BYTES = 200;
const RANK_BYTES = 8;

/**
 * Remembers what was sent, so that a message that comes again is sent with the same bytes.
 *
 * Turns of named conversations are in a store, with the texts that were added to them. Documents that stand in a
 * message have only their order here, by tenant and hash chain, because equal words prove nothing: an order holds no
 * text, and says something about the documents of that message alone.
 */
export class ConversationMemory {
  readonly #store: ConversationStore;
  readonly #orders: TenantCache<readonly SentOrder[]>;

  /** @param maxOrderBytes The store has a bound of its own. */
  constructor(store: ConversationStore, maxOrderBytes: number) {
    this.#store = store;
    this.#orders = new TenantCache(maxOrderBytes);
  }

  get bytes(): number {
    return this.#store.bytes + this.#orders.bytes;
  }

  /** Messages whose order is remembered. */
  get orderedMessages(): number {
    return this.#orders.size;
  }

  /**
   * How the documents of a message were sent; `undefined` if it is new or forgotten, or if other documents were found
   * in it. Counts as used. O(documents).
   */
  ordersOf(tenant: string, { link, blocks }: RecognisedMessage): readonly SentOrder[] | undefined {
    const orders = this.#orders.get(tenant, link);
    const fits =
      orders?.length === blocks.length && orders.every(({ order }, i) => order.length === blocks[i]!.documents.length);
    return fits ? orders : undefined;
  }

  /** A message is sent with its documents in these orders. */
  sentInOrder(tenant: string, { link }: RecognisedMessage, orders: readonly SentOrder[]): void {
    let bytes = 0;
    for (const { order, references, shortened } of orders) {
      bytes += ORDER_BYTES + RANK_BYTES * (order.length + references.length + shortened.length);
    }
    this.#orders.set(tenant, link, orders, bytes);
  }

  /** A turn of a named conversation is sent. */
  sentTurn({ history, sent }: NonNullable<Sent['turn']>, now: number): void {
    this.#store.sent(history, sent, now);
  }

  /** The model answered a turn. `answer`: its hash (`answerHash`). */
  answeredTurn({ history, sent }: NonNullable<Sent['turn']>, answer: string, now: number): void {
    this.#store.answered(history, sent, answer, now);
  }

  /**
   * A request without an end user continues no conversation, and none is remembered.
   *
   * @returns whether documents of earlier turns may be missing
   * @throws WarmpathError `WARMPATH_CONVERSATION_FORGOTTEN` if they may, unless the request asks for a marked answer
   */
  withoutEndUser(prompt: PromptView, { session, forgotten }: NamedConversation): boolean {
    const name = { tenant: '', session };
    const { isForgotten } = recallConversation({ ...name, messages: prompt, links: prompt.links() }, () => []);
    if (isForgotten && forgotten === 'refuse') throw withoutEndUser('WARMPATH_CONVERSATION_FORGOTTEN');
    return isForgotten;
  }

  /**
   * Finds the conversation that a prompt continues. O(body). Asks a shared store once, and once more 50 ms later
   * before the conversation counts as forgotten.
   *
   * @throws WarmpathError `WARMPATH_CONVERSATION_FORGOTTEN` if documents of earlier turns may be missing, unless the
   * request asks for a marked answer; `WARMPATH_STORE_UNAVAILABLE` if the shared store did not answer
   */
  recall(
    prompt: PromptView,
    conversation: NamedConversation,
    { tenant, now, missed, failed }: RecallOptions,
  ): RecalledConversation | Promise<RecalledConversation> {
    const name: ConversationName = { tenant, user: conversation.user, session: conversation.session };
    const links = prompt.links();
    let isMissed = false;
    const missedFor = (reason: StoreFailure) => {
      isMissed = true;
      missed(reason);
    };
    const find = () =>
      orInstead<TurnLookup>(
        () => this.#store.find(name, links, now, missedFor),
        (defect) => {
          isMissed = true;
          failed(defect);
          return () => [];
        },
      );
    const recalled = (turnsAt: TurnLookup) => recallConversation({ ...name, messages: prompt, links }, turnsAt);
    const unlessRefused = (history: RecalledConversation): RecalledConversation => {
      if (history.isForgotten && conversation.forgotten === 'refuse') throw forgotten(isMissed);
      return history;
    };
    const found = find();
    if (!(found instanceof Promise)) return unlessRefused(recalled(found));
    return found.then(async (turnsAt) => {
      const history = recalled(turnsAt);
      if (!history.isForgotten || isMissed) return unlessRefused(history);
      // The gateway that answered the last turn may not have written it yet.
      await sleep(STORE_DELAY_MS);
      return unlessRefused(recalled(await find()));
    });
  }
}

/**
 * The error for a request that names a conversation and has no end user, where the operator configured where end users
 * come from.
 */
export function withoutEndUser(code: 'WARMPATH_CONVERSATION_FORGOTTEN' | 'WARMPATH_FORBIDDEN'): WarmpathError {
  const detail =
    'This request has no end user. The operator of this gateway configured where end users come from (`server.jwt.endUserClaim` or `server.trustedHeaders.endUser`), so a request without one has no conversations.';
  return new WarmpathError(code, { detail });
}

/** The value of a call, or the value of `instead` if the call fails. */
function orInstead<Value>(
  call: () => Value | Promise<Value>,
  instead: (defect: unknown) => Value,
): Value | Promise<Value> {
  try {
    const value = call();
    return value instanceof Promise ? value.catch(instead) : value;
  } catch (defect) {
    return instead(defect);
  }
}

function forgotten(isMissed: boolean): WarmpathError {
  if (!isMissed) return new WarmpathError('WARMPATH_CONVERSATION_FORGOTTEN');
  const detail = 'The store of conversations did not answer, and this gateway does not know the earlier turns itself.';
  return new WarmpathError('WARMPATH_STORE_UNAVAILABLE', { detail });
}

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
