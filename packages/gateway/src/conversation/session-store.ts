import {
  ConversationLog,
  type ConversationLogOptions,
  type ConversationName,
  type SentTurn,
  type SessionEntry,
  type SessionFilter,
  type TurnLookup,
  type TurnName,
} from '@warmpath/core';

/**
 * Where the gateway remembers conversations. `find` may answer later, so that a database that several gateways share can stand
 * behind it: one look-up of all links of a request. What is told of turns needs no answer. A store may forget whatever it
 * likes; it must never give one tenant's turns to another.
 */
export interface SessionStore {
  /** The turns that were sent at these links of the hash chain; `missed` is told, once, why others than this process's are not among them. */
  find(
    name: ConversationName,
    links: readonly string[],
    now: number,
    missed?: (failure: StoreFailure) => void,
  ): TurnLookup | Promise<TurnLookup>;
  /** A turn goes to the engine. */
  sent(name: ConversationName, turn: SentTurn, now: number): void;
  /** The model answered it, with an answer of this print. */
  answered(name: ConversationName, turn: TurnName, answer: string, now: number): void;
  /**
   * Everything that is remembered of these conversations, as plain data, some at a time: prompts and documents in the clear. Error:
   * `WARMPATH_STORE_UNAVAILABLE`, then or on the way.
   */
  export(filter: SessionFilter, now: number): AsyncIterable<SessionEntry> | Iterable<SessionEntry>;
  /**
   * Takes an exported entry in; what is remembered there already stays. Answers false for one that was not used for too long. Errors:
   * `WARMPATH_INVALID_REQUEST` with the path of what no export wrote; `WARMPATH_STORE_UNAVAILABLE`.
   */
  restore(entry: unknown, now: number): boolean | Promise<boolean>;
  /**
   * Forgets these conversations, here and in whatever stands behind; answers how many turns they had. Errors:
   * `WARMPATH_STORE_UNAVAILABLE`; `WARMPATH_OVERLOADED` where too many wait for the same.
   */
  forget(filter: SessionFilter): number | Promise<number>;
  /** Turns and bytes that this process holds. */
  readonly turns: number;
  readonly bytes: number;
  /** Whether it can be asked; one that cannot still answers, from what this process knows. */
  readonly isUp: boolean;
  /** Called once, before anything else. Error: what keeps the gateway from starting; a server that is away does not. */
  open(listener: SessionStoreListener): Promise<void>;
  /** Called once, after everything else: what was told of turns is on its way, or given up. */
  close(): Promise<void>;
}

/** What a store was asked. */
export type StoreOperation = 'find' | 'keep' | 'forget';

/** Why it did not do it: away, too slow, refused, not to be read, more than may wait, or larger than a turn may be. */
export type StoreFailure = 'down' | 'timeout' | 'refused' | 'unreadable' | 'overflow' | 'too-large';

/** Told what becomes of a store. Must not throw. */
export interface SessionStoreListener {
  /** Milliseconds that the store took. */
  done(operation: StoreOperation, ms: number): void;
  failed(operation: StoreOperation, failure: StoreFailure): void;
  /** The server is there again, or away; `reason` holds no secret. */
  changed(isUp: boolean, reason: string): void;
}

/** The memory of this process. */
export class MemorySessionStore implements SessionStore {
  readonly isUp = true;
  readonly #memory: ConversationLog;

  constructor(options: ConversationLogOptions) {
    this.#memory = new ConversationLog(options);
  }

  get turns(): number {
    return this.#memory.turns;
  }

  get bytes(): number {
    return this.#memory.bytes;
  }

  find(name: ConversationName, _links: readonly string[], now: number): TurnLookup {
    this.#memory.expire(now);
    return this.#memory.lookup(name, now);
  }

  sent(name: ConversationName, turn: SentTurn, now: number): void {
    this.#memory.sent(name, turn, now);
  }

  answered(name: ConversationName, turn: TurnName, answer: string, now: number): void {
    this.#memory.answered(name, turn, answer, now);
  }

  export(filter: SessionFilter, now: number): Iterable<SessionEntry> {
    return this.#memory.export(now, filter);
  }

  restore(entry: unknown, now: number): boolean {
    return this.#memory.restore(entry, now);
  }

  forget(filter: SessionFilter): number {
    const { turns } = this;
    this.#memory.forget(filter);
    return turns - this.turns;
  }

  async open(): Promise<void> {}

  async close(): Promise<void> {}
}
