import type { ConversationName, SentTurn, TurnLookup, TurnName } from './recall.js';
import type { SessionEntry, SessionFilter } from './session-entry.js';

/**
 * Stores conversations in one process, or in a server that several gateways share. A store may forget anything. It must
 * never return turns of another tenant or end user. `now` is the caller's monotonic clock in milliseconds.
 */
export interface ConversationStore {
  /**
   * Finds the turns at these links of the hash chain. Never rejects.
   *
   * @param missed called at most once, if turns that other processes sent may be missing
   */
  find(
    name: ConversationName,
    links: readonly string[],
    now: number,
    missed?: (failure: StoreFailure) => void,
  ): TurnLookup | Promise<TurnLookup>;
  /** A turn is sent to the engine. */
  sent(name: ConversationName, turn: SentTurn, now: number): void;
  /** The model answered a turn. `answer`: hash of the answer (`answerHash`). */
  answered(name: ConversationName, turn: TurnName, answer: string, now: number): void;
  /**
   * Exports conversations as plain data: prompts and documents in the clear.
   *
   * @throws `WARMPATH_STORE_UNAVAILABLE`, at once or while iterating
   */
  export(filter: SessionFilter, now: number): AsyncIterable<SessionEntry> | Iterable<SessionEntry>;
  /**
   * Restores an exported entry. Turns that are remembered already stay.
   *
   * @returns false for an expired entry
   * @throws `WARMPATH_INVALID_REQUEST` with the path of the first invalid field; `WARMPATH_STORE_UNAVAILABLE`
   */
  restore(entry: unknown, now: number): boolean | Promise<boolean>;
  /**
   * Forgets conversations in this process and in the server.
   *
   * @returns how many turns they had
   * @throws `WARMPATH_STORE_UNAVAILABLE`; `WARMPATH_OVERLOADED` if too many callers wait
   */
  forget(filter: SessionFilter): number | Promise<number>;
  /**
   * Sends a note to the other gateways of the server, and returns the notes that they sent since the last call, in
   * order. Notes may be lost. The first call returns those of the last minute; `undefined` if the server did not get
   * the note. Absent without a server. Never rejects; one call at a time.
   *
   * @param note an empty one is not sent
   */
  exchange?(note: string): Promise<readonly PeerNote[] | undefined>;
  /** Records that all gateways of the server share. Absent without a server. */
  readonly records?: SharedRecords;
  /** Conversations in this process. */
  readonly conversations: number;
  /** Turns in this process. */
  readonly turns: number;
  /** Bytes in this process. */
  readonly bytes: number;
  /** Whether the server is reachable. If not, the store uses what this process knows. */
  readonly isUp: boolean;
  /**
   * Called once, first. A server that is down is tried again later.
   *
   * @throws WarmpathError for a configuration that can never work
   */
  open(listener: ConversationStoreListener): Promise<void>;
  /** Called once, last. Pending writes are done or given up. */
  close(): Promise<void>;
}

/** Few, small records in the server. They do not expire. */
export interface SharedRecords {
  /**
   * All records by key; `undefined` if none changed since the last call, or the server is too slow.
   *
   * @throws `WARMPATH_STORE_UNAVAILABLE`
   */
  read(): Promise<ReadonlyMap<string, string> | undefined>;
  /**
   * Writes a record, or removes it if it is `undefined`.
   *
   * @param key not `version`
   * @throws `WARMPATH_STORE_UNAVAILABLE`
   */
  write(key: string, record: string | undefined): Promise<void>;
}

/** A note from another gateway. */
export interface PeerNote {
  /** Name of that gateway while it runs. */
  readonly from: string;
  readonly text: string;
  /** Milliseconds since it was sent. */
  readonly ageMs: number;
}

/** Operation of a store. */
export type StoreOperation = 'find' | 'keep' | 'forget' | 'exchange';

/** Why an operation failed. `overflow`: too many writes are pending. */
export type StoreFailure = 'down' | 'timeout' | 'refused' | 'unreadable' | 'overflow' | 'too-large';

/** Receives results of a store, for metrics and the log. Must not throw. */
export interface ConversationStoreListener {
  /** An operation took `ms`. */
  done(operation: StoreOperation, ms: number): void;
  failed(operation: StoreOperation, failure: StoreFailure): void;
  /** The server became reachable or unreachable. `reason` holds no secret. */
  changed(isUp: boolean, reason: string): void;
}
