import type { ConversationName, TurnLookup } from './recall.js';
import type { SentTurn, TurnName } from './sent-turn.js';
import type { SessionEntry, SessionFilter } from './session-entry.js';

/**
 * Where conversations are remembered: in one process, or in a server that several gateways share. A store may forget
 * whatever it likes; it must never give the turns of one tenant, or of one end user, to another. `now` is the caller's
 * monotonic clock, in milliseconds.
 */
export interface ConversationStore {
  /**
   * The turns that were sent at these links of a conversation's hash chain. Never rejects.
   *
   * @param missed called at most once, when turns that other processes sent may be missing from the answer.
   */
  find(
    name: ConversationName,
    links: readonly string[],
    now: number,
    missed?: (failure: StoreFailure) => void,
  ): TurnLookup | Promise<TurnLookup>;
  /** A turn goes to the engine. */
  sent(name: ConversationName, turn: SentTurn, now: number): void;
  /** The model answered a turn; `answer` is the answer's hash (`answerHash`). */
  answered(name: ConversationName, turn: TurnName, answer: string, now: number): void;
  /**
   * Everything that is remembered of these conversations, as plain data: prompts and documents in the clear.
   *
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE`, at once or on the way.
   */
  export(filter: SessionFilter, now: number): AsyncIterable<SessionEntry> | Iterable<SessionEntry>;
  /**
   * Takes an exported entry in. What is remembered there already stays.
   *
   * @returns false for an entry that was not used for too long.
   * @throws WarmpathError `WARMPATH_INVALID_REQUEST` with the path, for what no export wrote;
   * `WARMPATH_STORE_UNAVAILABLE`.
   */
  restore(entry: unknown, now: number): boolean | Promise<boolean>;
  /**
   * Forgets these conversations in this process and in the server.
   *
   * @returns how many turns they had.
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE`; `WARMPATH_OVERLOADED` where too many callers wait for the same.
   */
  forget(filter: SessionFilter): number | Promise<number>;
  /**
   * Sends the other gateways over the same server a note, and answers what they sent since the last call, in the order
   * of its sending: what must be known soon, and may be lost. The first call answers what was sent within the last
   * minute. `undefined` where the server did not get it. Left out where there are no others. Never rejects; one call at
   * a time.
   *
   * @param note nothing is sent where it is empty.
   */
  exchange?(note: string): Promise<readonly PeerNote[] | undefined>;
  /** Conversations that this process holds. */
  readonly conversations: number;
  /** Turns that this process holds. */
  readonly turns: number;
  /** Bytes that this process holds. */
  readonly bytes: number;
  /** Whether the server can be asked. While it cannot, the store answers from what this process knows. */
  readonly isUp: boolean;
  /**
   * Called once, before anything else. A server that is away is tried again later.
   *
   * @throws WarmpathError for a configuration that can never work.
   */
  open(listener: ConversationStoreListener): Promise<void>;
  /** Called once, after everything else. What was recorded is written by then, or given up. */
  close(): Promise<void>;
}

/** What another gateway sent. */
export interface PeerNote {
  /** What that gateway is called, for as long as it runs. */
  readonly from: string;
  readonly text: string;
  /** Milliseconds since it was sent. */
  readonly ageMs: number;
}

/** What a store was asked to do. */
export type StoreOperation = 'find' | 'keep' | 'forget' | 'exchange';

/** Why a store did not do it; `overflow`: too much waits to be written already. */
export type StoreFailure = 'down' | 'timeout' | 'refused' | 'unreadable' | 'overflow' | 'too-large';

/** Hears how a store does, for metrics and the log. Must not throw. */
export interface ConversationStoreListener {
  /** `ms`: how long the store took. */
  done(operation: StoreOperation, ms: number): void;
  failed(operation: StoreOperation, failure: StoreFailure): void;
  /** The server came or went; `reason` holds no secret. */
  changed(isUp: boolean, reason: string): void;
}
