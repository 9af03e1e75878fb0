import { performance } from 'node:perf_hooks';
import { WarmpathError } from '@warmpath/core';
import type { ConversationName, SentTurn } from '@warmpath/core/internal';
import { matchesFilter, type SessionEntry, type SessionFilter } from '@warmpath/core/internal';
import type { Connection } from './connection.js';
import { readRecord, renderingsOf, type StoredTurns } from './stored-turns.js';

/**
 * Links that are read, or removed, at the same time: what a scan holds in memory and puts before the requests of
 * clients.
 */
const CONCURRENT_LINKS = 8;
/** Calls of `forget` that run or wait; each looks at every key of the store. */
const MAX_FORGETTING = 8;
/** Walks through the store by which one filter is forgotten; each but the first removes what came back meanwhile. */
const MAX_REMOVALS = 3;

export interface StoredConversationsOptions {
  readonly stored: StoredTurns;
  readonly maxAgeMs: number;
  /** Called for every record that cannot be read. */
  readonly unreadable: () => void;
  /** Called for every filter that a gateway, this one included, has published since this one last asked. */
  readonly forgotten: (filter: SessionFilter) => void;
}

/**
 * All conversations of the server: exported, or forgotten and hidden from every gateway. For operators, and for
 * privacy.
 */
export class StoredConversations {
  readonly #connection: Connection;
  readonly #options: StoredConversationsOptions;
  /** Up to where this gateway has read the list of filters that were forgotten. */
  #position = '0';
  #forgetting = 0;
  #last: Promise<unknown> = Promise.resolve();

  constructor(connection: Connection, options: StoredConversationsOptions) {
    this.#connection = connection;
    this.#options = options;
  }

  /**
   * What the server holds of these conversations, in no order; `idleMs` as of the beginning.
   *
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE`.
   */
  async *export(filter: SessionFilter): AsyncGenerator<SessionEntry> {
    const began = performance.now();
    for await (const keys of this.#keys(filter)) {
      const entries = await Promise.all(keys.map((key) => this.#read(key, began)));
      for (const entry of entries) if (entry !== undefined && matchesFilter(entry, filter)) yield entry;
    }
  }

  /**
   * Removes these conversations and publishes the filter to every gateway. One call runs after the other.
   *
   * A gateway that has applied the filter may find, and hold again, what is removed only later. So the filter is
   * published again after a removal, and what was written back before that is removed again.
   *
   * @returns how many turns they had.
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE`, `WARMPATH_OVERLOADED`.
   */
  async forget(filter: SessionFilter): Promise<number> {
    if (this.#forgetting >= MAX_FORGETTING) throw new WarmpathError('WARMPATH_OVERLOADED');
    this.#forgetting++;
    const removal = this.#last.then(async () => {
      await this.#publish(filter);
      const turns = await this.#removeAll(filter);
      let removed = turns;
      for (let removals = 1; removed > 0; removals++) {
        await this.#publish(filter);
        if (removals === MAX_REMOVALS) break;
        removed = await this.#removeAll(filter);
      }
      return turns;
    });
    this.#last = removal.catch(() => {});
    try {
      return await removal;
    } finally {
      this.#forgetting--;
    }
  }

  /** Reads which filters were published since the last call; none if the server does not answer. Never rejects. */
  async readPublished(): Promise<void> {
    this.#applyPublished(await this.#connection.attempt('forget', this.#forgottenCall('')));
  }

  async #publish(filter: SessionFilter): Promise<void> {
    this.#applyPublished(await this.#connection.run('forget', this.#forgottenCall(JSON.stringify(filter))));
  }

  /** Answers how many turns there were. */
  async #removeAll(filter: SessionFilter): Promise<number> {
    let turns = 0;
    for await (const keys of this.#keys(filter)) {
      const removed = keys.map((key) => this.#remove(key, filter));
      for (const count of await Promise.all(removed)) turns += Number(count);
    }
    return turns;
  }

  #forgottenCall(filter: string) {
    const { stored, maxAgeMs } = this.#options;
    return stored.forgotten(this.#position, filter, maxAgeMs);
  }

  #applyPublished(reply: unknown): void {
    if (!Array.isArray(reply)) return;
    const [position, ...published] = reply.map(String) as [string, ...string[]];
    this.#position = position;
    for (const text of published) {
      const filter = readFilter(text);
      if (filter !== undefined) this.#options.forgotten(filter);
    }
  }

  async *#keys(filter: SessionFilter): AsyncGenerator<readonly string[]> {
    const { stored } = this.#options;
    for await (const found of this.#connection.keys(stored.patternFor(filter))) {
      const keys = found.filter((key) => stored.placeOf(key) !== undefined);
      for (let from = 0; from < keys.length; from += CONCURRENT_LINKS) yield keys.slice(from, from + CONCURRENT_LINKS);
    }
  }

  /** Removes a link. Which end user's it is, only its record says. */
  async #remove(key: string, filter: SessionFilter): Promise<unknown> {
    if (filter.user !== undefined && filter.session === undefined) {
      const entry = await this.#read(key, performance.now());
      if (entry === undefined || !matchesFilter(entry, filter)) return 0;
    }
    return this.#connection.run('forget', this.#options.stored.remove(key));
  }

  async #read(key: string, began: number): Promise<SessionEntry | undefined> {
    const { stored, maxAgeMs, unreadable } = this.#options;
    const place = stored.placeOf(key)!;
    const reply = await this.#connection.run('keep', stored.read(key));
    if (!Array.isArray(reply)) return undefined;
    const [timeLeft, list] = reply as [unknown, readonly unknown[]];
    const turns: SentTurn[] = [];
    let name: ConversationName | undefined;
    for (const rendering of renderingsOf(list)) {
      const found = readRecord(rendering, place);
      name = found?.name ?? name;
      if (found === undefined) unreadable();
      else turns.push({ ...found.turn, answers: rendering.answers });
    }
    if (name === undefined) return undefined;
    const idleMs = Math.max(0, maxAgeMs - Number(timeLeft) - (performance.now() - began));
    const { tenant, user = null, session } = name;
    return { version: 3, tenant, user, session, link: place.link, idleMs, turns };
  }
}

/** A filter as a gateway published it; `undefined` for what none wrote. */
function readFilter(text: string): SessionFilter | undefined {
  try {
    const { tenant, user, session } = JSON.parse(text) as Record<string, unknown>;
    const isText = (value: unknown): value is string | undefined => value === undefined || typeof value === 'string';
    const isFilter = isText(tenant) && isText(session) && (user === null || isText(user));
    return isFilter ? { tenant, user, session } : undefined;
  } catch {
    return undefined;
  }
}
