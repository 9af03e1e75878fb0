import { WarmpathError } from '@warmpath/core';
import {
  ConversationLog,
  type ConversationLogOptions,
  type ConversationName,
  type ConversationStore,
  type ConversationStoreListener,
  MAX_ANSWERS,
  type PeerNote,
  readSessionEntry,
  type SentTurn,
  type SessionEntry,
  type SessionFilter,
  type StoreFailure,
  type TurnLookup,
  type TurnName,
} from '@warmpath/core/internal';
import type { ServerAddress } from './client.js';
import { Connection } from './connection.js';
import { PeerNotes } from './peer-notes.js';
import { RedisRecords } from './shared-records.js';
import { StoredConversations } from './stored-conversations.js';
import { readRecord, renderingsOf, StoredTurns, scopeOf, writeRecord } from './stored-turns.js';

/** Where the server is, and bounds of what this process holds. */
export interface RedisConversationStoreOptions extends ServerAddress {
  /** What every key of the store begins with. */
  readonly prefix: string;
  readonly memory: Required<ConversationLogOptions>;
}

/** Links that one request looks up, the latest ones. Of a longer conversation, only this process knows the rest. */
const MAX_LINKS = 1_024;
/** Milliseconds between two requests for what other gateways have forgotten. */
const FORGOTTEN_POLL_MS = 1_000;

/** What is written of a turn. */
interface TurnUpdate {
  /** Empty where only answers are written. */
  readonly record: string;
  readonly answers: readonly string[];
  readonly now: number;
}

/**
 * Conversations in a server that several gateways share: Redis, Valkey, or any other that speaks the protocol and runs
 * scripts. A log in this process stands in front. A request asks the server once for all its links, adds what the log
 * lacks, and is answered from the log. So turns that this gateway served itself travel only once, and without the
 * server it goes on as a gateway alone would. The server forgets what was not used for `maxAgeMs`. A turn that is used
 * keeps the turns before it, and what the server has lost of them is written again.
 */
export class RedisConversationStore implements ConversationStore {
  readonly #options: RedisConversationStoreOptions;
  readonly #log: ConversationLog;
  readonly #stored: StoredTurns;
  readonly #notes: PeerNotes;
  readonly records: RedisRecords;
  #listener: ConversationStoreListener | undefined;
  #connection: Connection | undefined;
  #conversations: StoredConversations | undefined;
  #polling: NodeJS.Timeout | undefined;

  constructor(options: RedisConversationStoreOptions) {
    this.#options = options;
    this.#log = new ConversationLog(options.memory);
    this.#stored = new StoredTurns(options.prefix);
    this.#notes = new PeerNotes(options.prefix);
    this.records = new RedisRecords(`${options.prefix}consents`, () => this.#connection);
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

  get isUp(): boolean {
    return this.#connection?.isUp ?? false;
  }

  async open(listener: ConversationStoreListener): Promise<void> {
    this.#listener = listener;
    this.#connection = await Connection.open(this.#options, this.#stored.probe(), listener);
    this.#conversations = new StoredConversations(this.#connection, {
      stored: this.#stored,
      maxAgeMs: this.#options.memory.maxAgeMs,
      unreadable: () => listener.failed('find', 'unreadable'),
      forgotten: (filter) => this.#log.forget(filter),
    });
    this.#polling = setInterval(() => void this.#applyPublished(), FORGOTTEN_POLL_MS).unref();
  }

  async close(): Promise<void> {
    clearInterval(this.#polling);
    await this.#connection?.close();
  }

  find(
    name: ConversationName,
    links: readonly string[],
    now: number,
    missed: (failure: StoreFailure) => void = () => {},
  ): TurnLookup | Promise<TurnLookup> {
    this.#log.expire(now);
    const held = this.#log.lookup(name, now);
    const wanted = links.slice(-MAX_LINKS);
    const merged = this.#connection?.find('find', this.#stored.find(name, wanted, held), {
      answered: (reply) => this.#merge(name, { links: wanted, reply, now }),
      missed,
    });
    // A conversation that was not held when the server was asked may be held now.
    return merged === undefined ? held : merged.then(() => this.#log.lookup(name, now));
  }

  async exchange(note: string): Promise<readonly PeerNote[] | undefined> {
    let notes: readonly PeerNote[] | undefined;
    await this.#connection?.find('exchange', this.#notes.exchange(note), {
      // What comes too late is read again with the next call.
      answered: (reply) => {
        notes ??= this.#notes.read(reply);
      },
      missed: (failure) => {
        if (failure === 'timeout') notes = [];
      },
    });
    return notes;
  }

  sent(name: ConversationName, turn: SentTurn, now: number): void {
    this.#log.sent(name, turn, now);
    const record = writeRecord(name, turn);
    if (record === undefined) this.#listener?.failed('keep', 'too-large');
    else void this.#write(name, this.#withParents(name, turn, now), { record, answers: turn.answers, now });
  }

  answered(name: ConversationName, { link, id }: TurnName, answer: string, now: number): void {
    this.#log.answered(name, { link, id }, answer, now);
    const turn = this.#held(name, { link, id }, now);
    if (turn !== undefined) {
      void this.#write(name, this.#withParents(name, turn, now), { record: '', answers: [answer], now });
    }
  }

  /** What the server holds. What only this process holds, because the server was away, is not there. */
  export(filter: SessionFilter): AsyncIterable<SessionEntry> {
    return this.#opened(this.#conversations).export(filter);
  }

  async restore(input: unknown): Promise<boolean> {
    const { tenant, user, session, idleMs, turns } = readSessionEntry(input);
    const { maxAgeMs } = this.#options.memory;
    if (idleMs >= maxAgeMs) return false;
    const name = { tenant, user: user ?? undefined, session };
    for (const [i, turn] of turns.entries()) {
      const record = writeRecord(name, turn);
      if (record === undefined) {
        const detail = 'A turn of more than 4 MiB is not shared.';
        throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: `turns[${i}]`, detail });
      }
      const update = { record, answers: turn.answers, timeToLiveMs: maxAgeMs - idleMs };
      await this.#opened(this.#connection).run('keep', this.#stored.keep(name, [turn], update));
    }
    return true;
  }

  async forget(filter: SessionFilter): Promise<number> {
    // In this process at once, also while the server is away: what is not held is not written again.
    this.#log.forget(filter);
    const turns = await this.#opened(this.#conversations).forget(filter);
    // What was found here while the server still had it.
    this.#log.forget(filter);
    return turns;
  }

  /** Forgets what other gateways have forgotten. */
  async #applyPublished(): Promise<void> {
    if (this.isUp && this.#log.turns > 0) await this.#conversations!.readPublished();
  }

  #opened<Part>(part: Part | undefined): Part {
    if (part === undefined) throw new WarmpathError('WARMPATH_STORE_UNAVAILABLE', { detail: 'it was not opened' });
    return part;
  }

  /** Writes the first of these turns, and again those before it that the server has lost. */
  async #write(
    name: ConversationName,
    turns: readonly SentTurn[],
    { record, answers, now }: TurnUpdate,
  ): Promise<void> {
    const timeToLiveMs = this.#options.memory.maxAgeMs;
    const write = (some: readonly SentTurn[], update: Pick<TurnUpdate, 'record' | 'answers'>) =>
      this.#connection?.attempt('keep', this.#stored.keep(name, some, { ...update, timeToLiveMs }));
    const missing = await write(turns, { record, answers });
    if (!Array.isArray(missing) || missing.length === 0) return;
    // They may be missing because another gateway has forgotten them a moment ago.
    await this.#applyPublished();
    for (const position of missing as readonly number[]) {
      const named = turns[position - 1];
      const lost = named && this.#held(name, named, now);
      const lostRecord = lost && writeRecord(name, lost);
      if (lostRecord !== undefined) void write([lost!], { record: lostRecord, answers: lost!.answers });
    }
  }

  /** A turn and those that it stands on, the latest first, as far as this process holds them. */
  #withParents(name: ConversationName, turn: SentTurn, now: number): readonly SentTurn[] {
    const turns = [turn];
    for (let { parent } = turn; parent !== undefined; parent = turns.at(-1)!.parent) {
      const found = this.#held(name, parent, now);
      if (found === undefined) break;
      turns.push(found);
    }
    return turns;
  }

  #held(name: ConversationName, { link, id }: TurnName, now: number): SentTurn | undefined {
    return this.#log
      .lookup(
        name,
        now,
      )(link)
      .find((turn) => turn.id === id);
  }

  /**
   * Adds the server's reply to the log, from the latest link to the first: a turn is always older than those it stands
   * on.
   */
  #merge(
    name: ConversationName,
    { links, reply, now }: { readonly links: readonly string[]; readonly reply: unknown; readonly now: number },
  ): void {
    const scope = scopeOf(name);
    const { tenant, user = null, session } = name;
    const lists: readonly unknown[] = Array.isArray(reply) ? reply : [];
    for (let i = links.length - 1; i >= 0; i--) {
      const list = lists[i];
      if (!Array.isArray(list)) continue;
      const link = links[i]!;
      const held = this.#log.lookup(name, now)(link);
      const turns = this.#turnsIn(list, { scope, link }, held);
      const isHeld = turns.every((turn, at) => turn === held[held.length - turns.length + at]);
      if (!isHeld) this.#log.restore({ version: 3, tenant, user, session, link, idleMs: 0, turns }, now);
    }
  }

  /** The turns of one link as the server has them; those that it has no news of are the held ones themselves. */
  #turnsIn(
    list: readonly unknown[],
    place: { readonly scope: string; readonly link: string },
    held: readonly SentTurn[],
  ): readonly SentTurn[] {
    const turns: SentTurn[] = [];
    for (const rendering of renderingsOf(list)) {
      const known = held.find(({ id }) => id === rendering.id);
      const turn = known ?? readRecord(rendering, place)?.turn;
      if (turn !== undefined) turns.push(withAnswers(turn, rendering.answers));
      // Without a record, it was held when the server was asked, and is forgotten since.
      else if (rendering.record !== '') this.#listener?.failed('find', 'unreadable');
    }
    return turns;
  }
}

/** The turn itself if it has these answers already. */
function withAnswers(turn: SentTurn, answers: readonly string[]): SentTurn {
  const added = answers.filter((answer) => !turn.answers.includes(answer));
  return added.length === 0 ? turn : { ...turn, answers: [...turn.answers, ...added].slice(-MAX_ANSWERS) };
}
