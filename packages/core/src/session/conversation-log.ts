import { entryBytes, TenantCache } from '../tenant-cache.js';
import {
  type ConversationName,
  MAX_ANSWERS,
  MAX_RENDERINGS,
  type SentTurn,
  type TurnLookup,
  type TurnName,
} from './recall.js';
import { matchesFilter, readSessionEntry, type SessionEntry, type SessionFilter } from './session-entry.js';

/** Bounds of the log. */
export interface ConversationLogOptions {
  /** Bytes of all turns, conversations, users and tenants. Default 64 MiB. */
  readonly maxBytes?: number;
  /** Milliseconds without use after which a conversation is forgotten. Default one hour. */
  readonly maxAgeMs?: number;
}

const DEFAULTS: Required<ConversationLogOptions> = { maxBytes: 67_108_864, maxAgeMs: 3_600_000 };

/** Estimated bytes of a turn beside its texts, and of one step of its path. */
const TURN_BYTES = 1_024;
const STEP_BYTES = 128;
/** Bytes of a character of a document, and of an added text, whose UTF-8 is kept too. */
const CHARACTER_BYTES = 2;
const ADDED_CHARACTER_BYTES = 4;
/** Estimated bytes of a conversation beside its turns. */
const CONVERSATION_BYTES = 320;
/** Largest part of the log for one conversation. A larger one is forgotten. */
const LARGEST_PART = 1 / 4;

/** A conversation: its turns, by the link of the hash chain at which each ended. */
interface Conversation {
  readonly name: ConversationName;
  readonly turnsAt: Map<string, SentTurn[]>;
  bytes: number;
  usedAt: number;
}

/**
 * Remembers what was sent in named conversations, so that later turns send the same bytes again. Bounded in bytes,
 * shared fairly among tenants and their end users (`TenantCache`), and in age. A conversation is forgotten as a whole.
 * `now` in milliseconds of the caller's clock.
 */
export class ConversationLog {
  readonly #limits: Required<ConversationLogOptions>;
  readonly #conversations: TenantCache<Conversation>;
  /** All conversations in order of use. */
  readonly #byAge = new Set<Conversation>();
  /** Time of the last use; and whether all conversations are in order of use, which restored ones may not be. */
  #latestAt = Number.NEGATIVE_INFINITY;
  #isSorted = true;

  constructor(options: ConversationLogOptions = {}) {
    this.#limits = { ...DEFAULTS, ...options };
    this.#conversations = new TenantCache(this.#limits.maxBytes, (removed) => this.#byAge.delete(removed));
  }

  /** Turns remembered. O(turns). */
  get turns(): number {
    let count = 0;
    for (const { turnsAt } of this.#byAge) for (const turns of turnsAt.values()) count += turns.length;
    return count;
  }

  /** Bytes of the turns remembered. */
  get bytes(): number {
    return this.#conversations.bytes;
  }

  /** Conversations remembered. */
  get size(): number {
    return this.#conversations.size;
  }

  /** Looks up turns for `recallConversation`. Changes nothing. Does not find expired ones. */
  lookup(name: ConversationName, now: number): TurnLookup {
    const conversation = this.#find(name);
    if (conversation === undefined || this.#isOld(conversation, now)) return NOTHING;
    return (link) => conversation.turnsAt.get(link) ?? NO_TURNS;
  }

  /** A turn is sent to the engine. A turn that was sent before becomes the latest rendering. */
  sent(name: ConversationName, turn: SentTurn, now: number): void {
    this.expire(now);
    const conversation = this.#find(name) ?? emptyConversation(name);
    const turns = turnsOf(conversation, turn.link);
    const known = turns.findIndex(({ id }) => id === turn.id);
    if (known >= 0) turns.push(...turns.splice(known, 1));
    else addTurn(conversation, turns, turn);
    this.#keep(conversation, now);
  }

  /** The model answered a turn. Ignored if the turn is forgotten. */
  answered(name: ConversationName, { link, id }: TurnName, answer: string, now: number): void {
    const conversation = this.#find(name);
    const turns = conversation?.turnsAt.get(link);
    const place = turns?.findIndex((turn) => turn.id === id) ?? -1;
    if (conversation === undefined || turns === undefined || place < 0 || this.#isOld(conversation, now)) return;
    const known = turns[place]!;
    const answers = [...known.answers.filter((hash) => hash !== answer), answer].slice(-MAX_ANSWERS);
    turns[place] = { ...known, answers };
    this.#use(conversation, now);
  }

  /** Exports conversations, the least recently used first. Holds prompts and documents in the clear. */
  *export(now: number, filter: SessionFilter = {}): Generator<SessionEntry> {
    this.#sort();
    // A conversation that is used meanwhile would come twice.
    for (const conversation of [...this.#byAge]) {
      const { name, turnsAt, usedAt } = conversation;
      if (!this.#byAge.has(conversation) || this.#isOld(conversation, now) || !matchesFilter(name, filter)) continue;
      const { tenant, user = null, session } = name;
      for (const [link, turns] of turnsAt) {
        yield { version: 3, tenant, user, session, link, idleMs: now - usedAt, turns: [...turns] };
      }
    }
  }

  /**
   * Restores an exported entry. Turns that are remembered already stay.
   *
   * @returns false for an expired entry
   * @throws `WARMPATH_INVALID_REQUEST` with the path of the first invalid field
   */
  restore(input: unknown, now: number): boolean {
    const { tenant, user, session, link, idleMs, turns: restored } = readSessionEntry(input);
    if (idleMs > this.#limits.maxAgeMs) return false;
    if (restored.length === 0) return true;
    const name = { tenant, user: user ?? undefined, session };
    const usedAt = now - idleMs;
    const old = this.#find(name);
    if (old !== undefined && this.#isOld(old, now)) this.#drop(old);
    const known = this.#find(name);
    const isNewer = known === undefined || known.usedAt < usedAt;
    const conversation = known ?? emptyConversation(name);
    const bytesBefore = conversation.bytes;
    const turns = turnsOf(conversation, link);
    const before = turns.splice(0);
    for (const turn of before) conversation.bytes -= bytesOf(turn);
    for (const turn of mergeTurns(isNewer ? before : restored, isNewer ? restored : before)) {
      addTurn(conversation, turns, turn);
    }
    if (this.#isTooLarge(conversation)) {
      this.#drop(conversation);
      return true;
    }
    if (isNewer) {
      this.#isSorted &&= usedAt >= this.#latestAt;
      this.#markUsed(conversation, usedAt);
    }
    // A restored turn was sent before, so its tenant is no newcomer: the conversation is set once more.
    if (known === undefined) this.#set(conversation, 0);
    if (isNewer) this.#set(conversation, bytesBefore);
    // Eviction needs the order of use.
    if (this.bytes + conversation.bytes > this.#limits.maxBytes) this.#sort();
    this.#conversations.resize(tenant, keyOf(name), conversation.bytes);
    return true;
  }

  /** Forgets conversations. O(conversations). @returns how many */
  forget(filter: SessionFilter): number {
    let forgotten = 0;
    for (const conversation of this.#byAge) {
      if (!matchesFilter(conversation.name, filter)) continue;
      this.#drop(conversation);
      forgotten++;
    }
    return forgotten;
  }

  /** Forgets expired conversations. O(forgotten). */
  expire(now: number): void {
    this.#sort();
    for (const conversation of this.#byAge) {
      if (!this.#isOld(conversation, now)) return;
      this.#drop(conversation);
    }
  }

  #find(name: ConversationName): Conversation | undefined {
    return this.#conversations.peek(name.tenant, keyOf(name));
  }

  /** Keeps a conversation that has grown, unless it is too large. */
  #keep(conversation: Conversation, now: number): void {
    if (this.#isTooLarge(conversation)) {
      this.#drop(conversation);
      return;
    }
    this.#markUsed(conversation, now);
    this.#set(conversation, conversation.bytes);
  }

  #set(conversation: Conversation, bytes: number): void {
    const { name } = conversation;
    this.#conversations.set(name.tenant, keyOf(name), conversation, bytes, userKey(name));
  }

  #markUsed(conversation: Conversation, now: number): void {
    conversation.usedAt = now;
    this.#latestAt = Math.max(this.#latestAt, now);
    this.#byAge.delete(conversation);
    this.#byAge.add(conversation);
  }

  #use(conversation: Conversation, now: number): void {
    this.#markUsed(conversation, now);
    this.#conversations.get(conversation.name.tenant, keyOf(conversation.name));
  }

  /** Sorts restored conversations among the others by last use. O(n log n), once. */
  #sort(): void {
    if (this.#isSorted) return;
    this.#isSorted = true;
    const sorted = [...this.#byAge].sort((one, other) => one.usedAt - other.usedAt);
    for (const conversation of sorted) this.#use(conversation, conversation.usedAt);
  }

  #drop(conversation: Conversation): void {
    this.#conversations.take(conversation.name.tenant, keyOf(conversation.name));
  }

  #isTooLarge({ name, bytes }: Conversation): boolean {
    return entryBytes(keyOf(name), bytes) > LARGEST_PART * this.#limits.maxBytes;
  }

  #isOld({ usedAt }: Conversation, now: number): boolean {
    return now - usedAt > this.#limits.maxAgeMs;
  }
}

/** The name object of the caller may hold more, which must not be kept. */
function emptyConversation({ tenant, user, session }: ConversationName): Conversation {
  return { name: { tenant, user, session }, turnsAt: new Map(), bytes: CONVERSATION_BYTES, usedAt: 0 };
}

function addTurn(conversation: Conversation, turns: SentTurn[], turn: SentTurn): void {
  turns.push(turn);
  conversation.bytes += bytesOf(turn);
  if (turns.length > MAX_RENDERINGS) conversation.bytes -= bytesOf(turns.shift()!);
}

/** Key of an end user in its tenant. No name is equal to the key of the absent user. */
function userKey({ user }: ConversationName): string {
  return user === undefined ? '' : `=${user}`;
}

function keyOf(name: ConversationName): string {
  return JSON.stringify([userKey(name), name.session]);
}

const NO_TURNS: readonly never[] = [];
const NOTHING: TurnLookup = () => NO_TURNS;

function turnsOf({ turnsAt }: Conversation, link: string): SentTurn[] {
  let turns = turnsAt.get(link);
  if (turns === undefined) {
    turns = [];
    turnsAt.set(link, turns);
  }
  return turns;
}

/** Merges renderings and their answers; those of `later` come last. O(renderings). */
function mergeTurns(earlier: readonly SentTurn[], later: readonly SentTurn[]): readonly SentTurn[] {
  const own = earlier.filter(({ id }) => !later.some((turn) => turn.id === id));
  const shared = later.map((turn) => {
    const before = earlier.find(({ id }) => id === turn.id)?.answers.filter((hash) => !turn.answers.includes(hash));
    if (before === undefined || before.length === 0) return turn;
    return { ...turn, answers: [...before, ...turn.answers].slice(-MAX_ANSWERS) };
  });
  return [...own, ...shared].slice(-MAX_RENDERINGS);
}

function bytesOf(turn: SentTurn): number {
  let bytes = TURN_BYTES + STEP_BYTES * (turn.steps.length + turn.order.length);
  for (const { text } of turn.edits) bytes += ADDED_CHARACTER_BYTES * text.length;
  for (const { content, shown, title, label } of turn.documents)
    bytes += CHARACTER_BYTES * (content.length + (shown?.length ?? 0) + (title?.length ?? 0) + label.length);
  return bytes;
}
