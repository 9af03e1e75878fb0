import {
  type ConversationName,
  type SentTurn,
  SessionMemory,
  type SessionMemoryOptions,
  type TurnLookup,
  type TurnName,
} from '@warmpath/core';

/**
 * Where the gateway remembers conversations. `find` may answer later, so that a database that several gateways share can stand
 * behind it: one look-up of all links of a request. What is told of turns needs no answer. A store may forget whatever it
 * likes; it must never give one tenant's turns to another.
 */
export interface SessionStore {
  /** Whether anything may be remembered of this tenant: a request of one that is unknown is not even parsed. Answers at once. */
  holds(tenant: string): boolean;
  /** The turns that were sent at these links of the hash chain. */
  find(name: ConversationName, links: readonly string[], now: number): TurnLookup | Promise<TurnLookup>;
  /** A turn goes to the engine. */
  sent(name: ConversationName, turn: SentTurn, now: number): void;
  /** The model answered it, with an answer of this print. */
  answered(name: ConversationName, turn: TurnName, answer: string, now: number): void;
  /** Turns and bytes that this process holds. */
  readonly turns: number;
  readonly bytes: number;
}

/** The memory of this process. */
export class MemorySessionStore implements SessionStore {
  readonly #memory: SessionMemory;

  constructor(options: SessionMemoryOptions) {
    this.#memory = new SessionMemory(options);
  }

  get turns(): number {
    return this.#memory.turns;
  }

  get bytes(): number {
    return this.#memory.bytes;
  }

  holds(tenant: string): boolean {
    return this.#memory.holds(tenant);
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
}
