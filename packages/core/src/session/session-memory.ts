import type { ConversationName, TurnLookup } from './recall.js';
import type { SentTurn, TurnName } from './sent-turn.js';
import { isAmong, readSessionEntry, type SessionEntry, type SessionFilter } from './session-entry.js';

/** Bounds of what is remembered of conversations. */
export interface SessionMemoryOptions {
  /** Turns remembered. Default 65,536. */
  readonly maxTurns?: number;
  /** Bytes of them, two a character. Default 64 MiB. */
  readonly maxBytes?: number;
  /** Milliseconds without use after which a turn is forgotten. Default one hour. */
  readonly maxAgeMs?: number;
}

interface Entry {
  readonly name: ConversationName;
  readonly link: string;
  readonly turns: SentTurn[];
  bytes: number;
  usedAt: number;
}

const DEFAULTS: Required<SessionMemoryOptions> = { maxTurns: 65_536, maxBytes: 67_108_864, maxAgeMs: 3_600_000 };

/** Renderings remembered of one and the same request: retries with other documents, users who asked alike. */
const MAX_RENDERINGS = 8;
/** Answers remembered of one rendering. */
const MAX_ANSWERS = 8;
/** Bytes of a turn beside its texts: objects, names, map slot. Generous. */
const TURN_BYTES = 1_024;
const STEP_BYTES = 128;

/**
 * The turns that were sent, by tenant, session and link. Bounded in turns, bytes and age; the least recently used turn goes
 * first, and since using a turn uses all before it, never one that a later one is built on. What is forgotten costs a repetition,
 * not a document. `now` is the caller's clock, in milliseconds.
 */
export class SessionMemory {
  readonly #limits: Required<SessionMemoryOptions>;
  /** In order of last use, the oldest first. */
  readonly #entries = new Map<string, Entry>();
  /** Entries by tenant. */
  readonly #tenants = new Map<string, number>();
  #turns = 0;
  #bytes = 0;

  constructor(options: SessionMemoryOptions = {}) {
    this.#limits = { ...DEFAULTS, ...options };
  }

  get turns(): number {
    return this.#turns;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether anything is remembered of this tenant. O(1). */
  holds(tenant: string): boolean {
    return this.#tenants.has(tenant);
  }

  /** What `recallHistory` looks turns up with. Changes nothing; what is too old is not found. */
  lookup(name: ConversationName, now: number): TurnLookup {
    return (link) => {
      const entry = this.#entries.get(keyOf(name, link));
      return entry === undefined || this.#isOld(entry, now) ? [] : entry.turns;
    };
  }

  /** A turn goes to the engine. One that was sent before is used again. O(turns before it). */
  sent(name: ConversationName, turn: SentTurn, now: number): void {
    const key = keyOf(name, turn.link);
    const entry = this.#entries.get(key) ?? this.#enter(key, name, turn.link);
    const known = entry.turns.findIndex(({ id }) => id === turn.id);
    if (known >= 0) entry.turns.push(...entry.turns.splice(known, 1));
    else this.#add(entry, turn);
    this.#use(name, turn, now);
    this.#shrink(now);
  }

  /** The model answered a turn; one that is forgotten already stays so. O(turns before it). */
  answered(name: ConversationName, turn: TurnName, answer: string, now: number): void {
    const entry = this.#entries.get(keyOf(name, turn.link));
    const place = entry?.turns.findIndex(({ id }) => id === turn.id) ?? -1;
    if (entry === undefined || place < 0) return;
    const known = entry.turns[place]!;
    const answers = [...known.answers.filter((print) => print !== answer), answer].slice(-MAX_ANSWERS);
    entry.turns[place] = { ...known, answers };
    this.#use(name, known, now);
  }

  /**
   * What is remembered of these conversations, the least recently used first, so that `restore` finds the order. Holds prompts and
   * documents in the clear. What is forgotten or begun meanwhile may be missing.
   */
  *export(now: number, filter: SessionFilter = {}): Generator<SessionEntry> {
    // What is used meanwhile moves to the end, and would come again.
    for (const [key, entry] of [...this.#entries]) {
      if (this.#entries.get(key) !== entry || this.#isOld(entry, now) || !isAmong(entry.name, filter)) continue;
      const { name, link, turns, usedAt } = entry;
      yield {
        version: 1,
        tenant: name.tenant,
        session: name.session ?? null,
        link,
        idleMs: now - usedAt,
        turns: [...turns],
      };
    }
  }

  /**
   * Takes an exported entry in, as the most recently used one; entries come in the order of the export, or `settle` follows. What
   * is remembered there already stays. Answers false for one that was not used for too long. Error: `WARMPATH_INVALID_REQUEST` for what
   * no export wrote, with the path.
   */
  restore(input: unknown, now: number): boolean {
    const { tenant, session, link, idleMs, turns } = readSessionEntry(input);
    if (idleMs > this.#limits.maxAgeMs) return false;
    const name = { tenant, session: session ?? undefined };
    const key = keyOf(name, link);
    const known = this.#entries.get(key);
    const usedAt = now - idleMs;
    const kept = known === undefined || this.#isOld(known, now) ? { turns: [], usedAt } : known;
    const together = kept.usedAt > usedAt ? mergeTurns(turns, kept.turns) : mergeTurns(kept.turns, turns);
    this.#drop(key);
    const entry = this.#enter(key, name, link);
    for (const turn of together) this.#add(entry, turn);
    entry.usedAt = Math.max(kept.usedAt, usedAt);
    this.#shrink(now);
    return true;
  }

  /** Puts what was restored among the rest by its last use; a turn goes before those it is built on. O(entries · log entries). */
  settle(): void {
    const lengthOf = ({ turns }: Entry) => turns[0]?.length ?? 0;
    const entries = [...this.#entries].sort(([, a], [, b]) => a.usedAt - b.usedAt || lengthOf(b) - lengthOf(a));
    this.#entries.clear();
    for (const [key, entry] of entries) this.#entries.set(key, entry);
  }

  /** Forgets these conversations; answers how many links of them. O(entries). */
  forget(filter: SessionFilter): number {
    let forgotten = 0;
    for (const [key, { name }] of this.#entries) {
      if (!isAmong(name, filter)) continue;
      this.#drop(key);
      forgotten++;
    }
    return forgotten;
  }

  /** Forgets what was not used for too long. O(forgotten). */
  expire(now: number): void {
    for (const [key, entry] of this.#entries) {
      if (!this.#isOld(entry, now)) return;
      this.#drop(key);
    }
  }

  clear(): void {
    this.#entries.clear();
    this.#tenants.clear();
    this.#turns = 0;
    this.#bytes = 0;
  }

  #enter(key: string, name: ConversationName, link: string): Entry {
    const entry = { name: { tenant: name.tenant, session: name.session }, link, turns: [], bytes: 0, usedAt: 0 };
    this.#entries.set(key, entry);
    this.#tenants.set(name.tenant, (this.#tenants.get(name.tenant) ?? 0) + 1);
    return entry;
  }

  #add(entry: Entry, turn: SentTurn): void {
    entry.turns.push(turn);
    const bytes = bytesOf(turn);
    entry.bytes += bytes;
    this.#bytes += bytes;
    this.#turns++;
    if (entry.turns.length <= MAX_RENDERINGS) return;
    const oldest = bytesOf(entry.turns.shift()!);
    entry.bytes -= oldest;
    this.#bytes -= oldest;
    this.#turns--;
  }

  /** The turn first and its ancestors after it: whoever is built upon is always the more recent. */
  #use(name: ConversationName, turn: SentTurn, now: number): void {
    let used: SentTurn | undefined = turn;
    while (used !== undefined) {
      const key = keyOf(name, used.link);
      const entry = this.#entries.get(key);
      if (entry === undefined) return;
      entry.usedAt = now;
      this.#entries.delete(key);
      this.#entries.set(key, entry);
      const parent: TurnName | undefined = used.parent;
      used = parent && this.#entries.get(keyOf(name, parent.link))?.turns.find(({ id }) => id === parent.id);
    }
  }

  #shrink(now: number): void {
    this.expire(now);
    for (const key of this.#entries.keys()) {
      if (this.#turns <= this.#limits.maxTurns && this.#bytes <= this.#limits.maxBytes) return;
      this.#drop(key);
    }
  }

  #drop(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
    this.#turns -= entry.turns.length;
    const { tenant } = entry.name;
    const left = this.#tenants.get(tenant)! - 1;
    if (left === 0) this.#tenants.delete(tenant);
    else this.#tenants.set(tenant, left);
  }

  #isOld(entry: Entry, now: number): boolean {
    return now - entry.usedAt > this.#limits.maxAgeMs;
  }
}

/** The renderings of both, the latter's as the latest, with the answers of both. O(renderings). */
function mergeTurns(earlier: readonly SentTurn[], later: readonly SentTurn[]): readonly SentTurn[] {
  const own = earlier.filter(({ id }) => !later.some((turn) => turn.id === id));
  const shared = later.map((turn) => {
    const before = earlier.find(({ id }) => id === turn.id)?.answers.filter((print) => !turn.answers.includes(print));
    if (before === undefined || before.length === 0) return turn;
    return { ...turn, answers: [...before, ...turn.answers].slice(-MAX_ANSWERS) };
  });
  return [...own, ...shared].slice(-MAX_RENDERINGS);
}

/** Named and inferred conversations never meet: a name is put behind a sign that stands for none. */
function keyOf({ tenant, session }: ConversationName, link: string): string {
  return session === undefined ? `${tenant}\n${link}` : `${tenant}\n${link}\n${session}`;
}

function bytesOf(turn: SentTurn): number {
  let characters = 0;
  for (const { text } of turn.edits) characters += text.length;
  for (const { content, shown, title, label } of turn.documents)
    characters += content.length + (shown?.length ?? 0) + (title?.length ?? 0) + label.length;
  return TURN_BYTES + STEP_BYTES * (turn.steps.length + turn.order.length) + 2 * characters;
}
