import { performance } from 'node:perf_hooks';
import {
  type ConversationName,
  isAmong,
  type SentTurn,
  type SessionEntry,
  type SessionFilter,
  WarmpathError,
} from '@warmpath/core';
import type { StoreConnection } from './store-connection.js';
import type { StoreKeys } from './store-keys.js';
import { DROP_LINK, FORGOTTEN, READ_LINK } from './store-scripts.js';
import { readTurn } from './turn-record.js';

/** Links that are read, or removed, at the same time: what a walk holds in memory, and puts before the requests of clients. */
const AT_ONCE = 8;
/** Walks that forget, the one under way included; each looks at every key of the store. */
const MAX_FORGETTING = 8;
/** Of what was forgotten lately, how much is kept for gateways that have not heard of it. */
const MAX_TOLD = 10_000;

/** Where a walk goes, and how long the store remembers. */
export interface StoreWalkOptions {
  readonly keys: StoreKeys;
  readonly maxAgeMs: number;
  /** A record of the store that cannot be read. */
  readonly unreadable: () => void;
}

/** What is done with many conversations of a shared store at once, for an operator or for privacy. */
export class StoreWalk {
  readonly #connection: StoreConnection;
  readonly #options: StoreWalkOptions;
  /** Up to where this process has heard of what was forgotten. */
  #heardTo = '0';
  #forgetting = 0;
  #last: Promise<unknown> = Promise.resolve();

  constructor(connection: StoreConnection, options: StoreWalkOptions) {
    this.#connection = connection;
    this.#options = options;
  }

  /** What the store holds of these conversations, in no order; `idleMs` as of the beginning. Error: `WARMPATH_STORE_UNAVAILABLE`. */
  async *export(filter: SessionFilter): AsyncGenerator<SessionEntry> {
    const began = performance.now();
    for await (const links of this.#links(filter)) {
      const entries = await Promise.all(links.map((key) => this.#read(key, began)));
      for (const entry of entries) if (entry !== undefined && isAmong(entry, filter)) yield entry;
    }
  }

  /**
   * Removes these conversations from the store and lets every gateway know; answers how many turns they had, and what
   * others forgot meanwhile. One walk after the other. Errors: `WARMPATH_STORE_UNAVAILABLE`, `WARMPATH_OVERLOADED`.
   */
  async forget(filter: SessionFilter): Promise<{ readonly turns: number; readonly heard: readonly SessionFilter[] }> {
    if (this.#forgetting >= MAX_FORGETTING) throw new WarmpathError('WARMPATH_OVERLOADED');
    this.#forgetting++;
    const walk = this.#last.then(async () => {
      const heard = this.#readNews(await this.#connection.require(this.#news(JSON.stringify(filter)), 'forget'));
      let turns = 0;
      for await (const keys of this.#links(filter)) {
        const removed = keys.map((key) => this.#drop(key, filter));
        for (const count of await Promise.all(removed)) turns += Number(count);
      }
      return { turns, heard };
    });
    this.#last = walk.catch(() => {});
    try {
      return await walk;
    } finally {
      this.#forgetting--;
    }
  }

  /** Removes a link; of an end user's conversations, only the record says whose it is. */
  async #drop(key: string, filter: SessionFilter): Promise<unknown> {
    if (filter.user !== undefined && filter.session === undefined) {
      const entry = await this.#read(key, performance.now());
      if (entry === undefined || !isAmong(entry, filter)) return 0;
    }
    return this.#connection.require({ script: DROP_LINK, keys: [key], values: [] }, 'forget');
  }

  /** What other gateways have forgotten since this one asked last; nothing if the store does not say. Never rejects. */
  async news(): Promise<readonly SessionFilter[]> {
    return this.#readNews(await this.#connection.tell(this.#news(''), 'forget'));
  }

  #news(forgotten: string) {
    const { keys, maxAgeMs } = this.#options;
    const values = [this.#heardTo, forgotten, `${maxAgeMs}`, `${MAX_TOLD}`];
    return { script: FORGOTTEN, keys: [keys.forgotten], values };
  }

  #readNews(reply: unknown): readonly SessionFilter[] {
    if (!Array.isArray(reply)) return [];
    const [heardTo, ...forgotten] = reply.map(String) as [string, ...string[]];
    this.#heardTo = heardTo;
    return forgotten.flatMap((text) => readFilter(text) ?? []);
  }

  async *#links(filter: SessionFilter): AsyncGenerator<readonly string[]> {
    const { keys } = this.#options;
    for await (const found of this.#connection.keys(keys.patternFor(filter))) {
      const links = found.filter((key) => keys.read(key) !== undefined);
      for (let from = 0; from < links.length; from += AT_ONCE) yield links.slice(from, from + AT_ONCE);
    }
  }

  async #read(key: string, began: number): Promise<SessionEntry | undefined> {
    const { keys, maxAgeMs, unreadable } = this.#options;
    const place = keys.read(key)!;
    const reply = await this.#connection.require({ script: READ_LINK, keys: [key], values: [] });
    if (!Array.isArray(reply)) return undefined;
    const [timeLeft, list] = reply as [unknown, readonly unknown[]];
    const turns: SentTurn[] = [];
    let name: ConversationName | undefined;
    for (let i = 0; i + 2 < list.length; i += 3) {
      const [id, answers, record] = list.slice(i, i + 3).map(String) as [string, string, string];
      const found = readTurn(record, { ...place, id });
      name = found?.name ?? name;
      if (found === undefined) unreadable();
      else turns.push({ ...found.turn, answers: answers.split(' ').filter((answer) => answer !== '') });
    }
    if (name === undefined) return undefined;
    const idleMs = Math.max(0, maxAgeMs - Number(timeLeft) - (performance.now() - began));
    const { tenant, user = null, session } = name;
    return { version: 2, tenant, user, session, link: place.link, idleMs, turns };
  }
}

/** What was forgotten, as another gateway wrote it; `undefined` for what none wrote. */
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
