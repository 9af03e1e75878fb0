import {
  ConversationLog,
  type ConversationLogOptions,
  type ConversationName,
  MAX_ANSWERS,
  MAX_RENDERINGS,
  readSessionEntry,
  type SentTurn,
  type SessionEntry,
  type SessionFilter,
  type TurnLookup,
  type TurnName,
  WarmpathError,
} from '@warmpath/core';
import type { SessionStore, SessionStoreListener, StoreFailure } from '../session-store.js';
import type { StoreAddress } from './store-client.js';
import { type StoreCall, StoreConnection } from './store-connection.js';
import { StoreKeys, scopeOf } from './store-keys.js';
import { FIND_TURNS, KEEP_TURN } from './store-scripts.js';
import { StoreWalk } from './store-walk.js';
import { readTurn, writeTurn } from './turn-record.js';

/** Bounds of what this process holds, and where the rest is. */
export interface RedisSessionStoreOptions extends StoreAddress {
  /** What every key of the store begins with. */
  readonly prefix: string;
  readonly memory: Required<ConversationLogOptions>;
}

/** Links that one request looks up, the latest ones; of a longer conversation only this process knows the rest. */
const MAX_LINKS = 1_024;
/** Milliseconds between two questions for what other gateways have forgotten. */
const HEAR_MS = 1_000;

/** A turn that is told to the server. */
interface Told {
  readonly name: ConversationName;
  readonly turn: SentTurn;
}

/**
 * Conversations in a server that several gateways share (Redis, Valkey, or any other that speaks the protocol and runs scripts).
 * This process's memory stands in front of it: a request asks the server once for all its links, gets what the memory lacks, and is
 * answered from the memory. So what this gateway served itself travels only once, and without the server it goes on as one gateway
 * alone would. The server forgets what was not used for `maxAgeMs`; a turn that is used keeps those before it, and what a server has
 * lost is told to it again with the next turn that stands on it.
 */
export class RedisSessionStore implements SessionStore {
  readonly #options: RedisSessionStoreOptions;
  readonly #memory: ConversationLog;
  readonly #keys: StoreKeys;
  #listener: SessionStoreListener | undefined;
  #connection: StoreConnection | undefined;
  #walk: StoreWalk | undefined;
  #hearing: NodeJS.Timeout | undefined;

  constructor(options: RedisSessionStoreOptions) {
    this.#options = options;
    this.#memory = new ConversationLog(options.memory);
    this.#keys = new StoreKeys(options.prefix);
  }

  get turns(): number {
    return this.#memory.turns;
  }

  get bytes(): number {
    return this.#memory.bytes;
  }

  get isUp(): boolean {
    return this.#connection?.isUp ?? false;
  }

  async open(listener: SessionStoreListener): Promise<void> {
    this.#listener = listener;
    this.#connection = await StoreConnection.open({ address: this.#options, keys: this.#keys }, listener);
    this.#walk = new StoreWalk(this.#connection, {
      keys: this.#keys,
      maxAgeMs: this.#options.memory.maxAgeMs,
      unreadable: () => listener.failed('find', 'unreadable'),
    });
    this.#hearing = setInterval(() => void this.#hear(), HEAR_MS).unref();
  }

  async close(): Promise<void> {
    clearInterval(this.#hearing);
    await this.#connection?.close();
  }

  find(
    name: ConversationName,
    links: readonly string[],
    now: number,
    missed?: (failure: StoreFailure) => void,
  ): TurnLookup | Promise<TurnLookup> {
    this.#memory.expire(now);
    const known = this.#memory.lookup(name, now);
    const asked = links.slice(-MAX_LINKS);
    const start = this.#keys.startOf(name);
    const call = {
      script: FIND_TURNS,
      keys: asked.map((link) => `${start}${link}`),
      values: asked.map(
        (link) =>
          ` ${known(link)
            .map(({ id }) => id)
            .join(' ')} `,
      ),
    };
    const learned = this.#connection?.ask(call, {
      take: (found) => this.#learn(name, { links: asked, found, now }),
      missed: missed ?? (() => {}),
    });
    // A conversation that was not known when the server was asked may be now.
    return learned === undefined ? known : learned.then(() => this.#memory.lookup(name, now));
  }

  sent(name: ConversationName, turn: SentTurn, now: number): void {
    this.#memory.sent(name, turn, now);
    const record = writeTurn(name, turn);
    if (record === undefined) this.#listener?.failed('keep', 'too-large');
    else this.#tell({ name, turn }, { record, answers: turn.answers, now });
  }

  answered(name: ConversationName, { link, id }: TurnName, answer: string, now: number): void {
    this.#memory.answered(name, { link, id }, answer, now);
    const turns = this.#memory.lookup(name, now)(link);
    const turn = turns.find((known) => known.id === id);
    if (turn !== undefined) this.#tell({ name, turn }, { record: '', answers: [answer], now });
  }

  /** What the server holds; what only this process holds, because the server was away, is told to it with the next turn. */
  export(filter: SessionFilter): AsyncIterable<SessionEntry> {
    return this.#opened().export(filter);
  }

  async restore(input: unknown): Promise<boolean> {
    const { tenant, user, session, idleMs, turns } = readSessionEntry(input);
    const { maxAgeMs } = this.#options.memory;
    if (idleMs >= maxAgeMs) return false;
    const name = { tenant, user: user ?? undefined, session };
    for (const [i, turn] of turns.entries()) {
      const record = writeTurn(name, turn);
      if (record === undefined) {
        throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
          path: `turns[${i}]`,
          detail: 'A turn of more than 4 MiB is not shared.',
        });
      }
      const { answers } = turn;
      await this.#connection!.require(this.#keepCall(name, [turn], { record, answers, timeToLive: maxAgeMs - idleMs }));
    }
    return true;
  }

  async forget(filter: SessionFilter): Promise<number> {
    // Here at once, also where the server is away: what is not held is not told to it again.
    this.#memory.forget(filter);
    const { turns, heard } = await this.#opened().forget(filter);
    for (const forgotten of [filter, ...heard]) this.#memory.forget(forgotten);
    return turns;
  }

  /** What others forgot is forgotten here, too. */
  async #hear(): Promise<void> {
    if (!this.isUp || this.#memory.turns === 0) return;
    for (const forgotten of await this.#walk!.news()) this.#memory.forget(forgotten);
  }

  #opened(): StoreWalk {
    if (this.#walk === undefined)
      throw new WarmpathError('WARMPATH_STORE_UNAVAILABLE', { detail: 'it was not opened' });
    return this.#walk;
  }

  /** Tells the server of a turn, and again of whatever it should know of those before it and does not. */
  #tell(
    { name, turn }: Told,
    { record, answers, now }: { readonly record: string; readonly answers: readonly string[]; readonly now: number },
  ): void {
    const turns = [turn, ...this.#before(name, turn, now)];
    void this.#keep(name, turns, { record, answers })?.then((missing) => {
      if (!Array.isArray(missing)) return;
      for (const place of missing as readonly number[]) {
        const lost = turns[place - 1];
        const again = lost === undefined ? undefined : writeTurn(name, lost);
        if (again !== undefined) void this.#keep(name, [lost!], { record: again, answers: lost!.answers });
      }
    });
  }

  #keep(
    name: ConversationName,
    turns: readonly SentTurn[],
    { record, answers }: { readonly record: string; readonly answers: readonly string[] },
  ): Promise<unknown> | undefined {
    const timeToLive = this.#options.memory.maxAgeMs;
    return this.#connection?.tell(this.#keepCall(name, turns, { record, answers, timeToLive }));
  }

  #keepCall(
    name: ConversationName,
    turns: readonly SentTurn[],
    { record, answers, timeToLive }: { record: string; answers: readonly string[]; timeToLive: number },
  ): StoreCall {
    const start = this.#keys.startOf(name);
    const limits = [Math.ceil(timeToLive), MAX_RENDERINGS, MAX_ANSWERS].map(String);
    return {
      script: KEEP_TURN,
      keys: turns.map(({ link }) => `${start}${link}`),
      values: [...limits, record, answers.join(' '), ...turns.map(({ id }) => id)],
    };
  }

  /** The turns that this one stands on, the latest first, as far as this process knows them. */
  #before(name: ConversationName, turn: SentTurn, now: number): readonly SentTurn[] {
    const known = this.#memory.lookup(name, now);
    const turns: SentTurn[] = [];
    for (let { parent } = turn; parent !== undefined; parent = turns.at(-1)!.parent) {
      const { link, id }: TurnName = parent;
      const found = known(link).find((candidate) => candidate.id === id);
      if (found === undefined) break;
      turns.push(found);
    }
    return turns;
  }

  /** Takes over what the server said. From the latest link to the first, so that a turn is always older than those it stands on. */
  #learn(
    name: ConversationName,
    { links, found, now }: { readonly links: readonly string[]; readonly found: unknown; readonly now: number },
  ): void {
    const scope = scopeOf(name);
    const lists: readonly unknown[] = Array.isArray(found) ? found : [];
    for (let i = links.length - 1; i >= 0; i--) {
      const list = lists[i];
      if (!Array.isArray(list)) continue;
      const link = links[i]!;
      const known = this.#memory.lookup(name, now)(link);
      const { turns, isNew } = this.#merge(known, list, { scope, link });
      if (!isNew) continue;
      const { tenant, user = null, session } = name;
      const entry = { version: 2, tenant, user, session, link, idleMs: 0, turns };
      this.#memory.restore(entry, now);
    }
  }

  /** The turns at one link: those that the server does not know, then the server's in its order, with the answers of both. */
  #merge(
    known: readonly SentTurn[],
    list: readonly unknown[],
    place: { readonly scope: string; readonly link: string },
  ): { readonly turns: readonly SentTurn[]; readonly isNew: boolean } {
    const shared: SentTurn[] = [];
    for (let i = 0; i + 2 < list.length; i += 3) {
      const [id, answers, record] = [String(list[i]), String(list[i + 1]), String(list[i + 2])];
      const held = known.find((turn) => turn.id === id);
      const turn = held ?? readTurn(record, { ...place, id })?.turn;
      if (turn !== undefined) shared.push(withAnswers(turn, answers.split(' ')));
      // Without a record, it was held when the server was asked, and is forgotten since.
      else if (record !== '') this.#listener?.failed('find', 'unreadable');
    }
    const own = known.filter(({ id }) => !shared.some((turn) => turn.id === id));
    const turns = [...own, ...shared].slice(-MAX_RENDERINGS);
    return { turns, isNew: turns.length !== known.length || turns.some((turn, i) => turn !== known[i]) };
  }
}

/** The turn itself if it has these answers already. */
function withAnswers(turn: SentTurn, answers: readonly string[]): SentTurn {
  const fresh = answers.filter((answer) => answer !== '' && !turn.answers.includes(answer));
  if (fresh.length === 0) return turn;
  return { ...turn, answers: [...turn.answers, ...fresh].slice(-MAX_ANSWERS) };
}
