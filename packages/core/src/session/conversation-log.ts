import type { ConversationName, TurnLookup } from './recall.js';
import { MAX_ANSWERS, MAX_RENDERINGS, type SentTurn, type TurnName } from './sent-turn.js';
import { matchesFilter, readSessionEntry, type SessionEntry, type SessionFilter } from './session-entry.js';
import { isAnonymousTenant } from './tenant.js';

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
/** Estimated bytes of a conversation, an end user and a tenant beside their content. */
const CONVERSATION_BYTES = 512;
const USER_BYTES = 512;
const TENANT_BYTES = 1_024;
/** Largest part of the log for one conversation. A larger one is forgotten. */
const LARGEST_PART = 1 / 4;
/** An anonymous tenant with more than this part of a full log loses its own conversations first. */
const LARGEST_ANONYMOUS_PART = 1 / 8;
/**
 * While newcomers (anonymous tenants with one turn) have more than this part, they lose conversations before returned
 * ones.
 */
const NEWCOMERS_PART = 1 / 4;

/** A conversation: its turns, by the link of the hash chain at which each ended. */
interface Conversation {
  readonly name: ConversationName;
  readonly turnsAt: Map<string, SentTurn[]>;
  bytes: number;
  usedAt: number;
}

/** The conversations of an end user, least recently used first. */
interface UserShare {
  readonly conversations: Map<string, Conversation>;
  bytes: number;
}

/** The conversations of a tenant. */
interface TenantShare {
  readonly users: Map<string, UserShare>;
  readonly bySize: SizeClasses;
  /** The conversations of an anonymous tenant, in order of use. */
  readonly byUse: Set<Conversation> | undefined;
  /** Whether it is anonymous and has sent only one turn. */
  isNewcomer: boolean;
  bytes: number;
}

/**
 * Remembers what was sent in named conversations, so that later turns send the same bytes again. Bounded in bytes and
 * age. A conversation is forgotten as a whole.
 *
 * When the log is full, anonymous tenants lose conversations first (`#anonymousVictim`). Then the largest user of the
 * largest tenant loses its least recently used one. `now` in milliseconds of the caller's clock. Operations are
 * amortised O(1) unless stated.
 */
export class ConversationLog {
  readonly #limits: Required<ConversationLogOptions>;
  readonly #tenants = new Map<string, TenantShare>();
  readonly #bySize = new SizeClasses();
  /** All conversations in order of use. */
  readonly #byAge = new Set<Conversation>();
  /** Conversations of anonymous tenants in order of use: of newcomers, and of returned tenants. */
  readonly #newcomers = new Set<Conversation>();
  readonly #returned = new Set<Conversation>();
  /** Bytes of tenants that are newcomers. */
  #newcomerBytes = 0;
  /** Time of the last use; and whether all conversations are in order of use, which restored ones may not be. */
  #latestAt = Number.NEGATIVE_INFINITY;
  #isSorted = true;
  #turns = 0;
  #bytes = 0;

  constructor(options: ConversationLogOptions = {}) {
    this.#limits = { ...DEFAULTS, ...options };
  }

  /** Turns remembered. */
  get turns(): number {
    return this.#turns;
  }

  /** Bytes of the turns remembered. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Conversations remembered. */
  get size(): number {
    return this.#byAge.size;
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
    this.#markReturned(name.tenant);
    const conversation = this.#open(name, now);
    const turns = turnsOf(conversation, turn.link);
    const known = turns.findIndex(({ id }) => id === turn.id);
    if (known >= 0) turns.push(...turns.splice(known, 1));
    else this.#add(conversation, turns, turn);
    this.#shrink(conversation);
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
    const before = this.#find(name);
    const isNewer = before === undefined || before.usedAt < usedAt;
    const conversation = before ?? this.#open(name, usedAt);
    // A restored turn was sent before.
    this.#markReturned(tenant);
    if (isNewer) {
      this.#isSorted &&= usedAt >= this.#latestAt;
      this.#use(conversation, usedAt);
    }
    const turns = turnsOf(conversation, link);
    const known = [...turns];
    for (const turn of turns.splice(0)) this.#remove(conversation, turn);
    for (const turn of mergeTurns(isNewer ? known : restored, isNewer ? restored : known)) {
      this.#add(conversation, turns, turn);
    }
    this.#shrink(conversation);
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
    return this.#tenants.get(name.tenant)?.users.get(userKey(name))?.conversations.get(name.session);
  }

  /** Finds or creates a conversation, and marks it as used now. */
  #open(name: ConversationName, now: number): Conversation {
    const known = this.#find(name);
    if (known !== undefined) {
      this.#use(known, now);
      return known;
    }
    const { tenant, session } = name;
    const user = userKey(name);
    let share = this.#tenants.get(tenant);
    if (share === undefined) {
      const isNewcomer = isAnonymousTenant(tenant);
      const byUse = isNewcomer ? new Set<Conversation>() : undefined;
      share = { users: new Map(), bySize: new SizeClasses(), byUse, isNewcomer, bytes: 0 };
      this.#tenants.set(tenant, share);
      this.#resizeTenant(tenant, share, TENANT_BYTES);
    }
    let own = share.users.get(user);
    if (own === undefined) {
      own = { conversations: new Map(), bytes: 0 };
      share.users.set(user, own);
      this.#resizeUser(tenant, user, USER_BYTES);
    }
    // The name object of the caller may hold more, which must not be kept.
    const kept = { tenant, user: name.user, session };
    const conversation: Conversation = { name: kept, turnsAt: new Map(), bytes: 0, usedAt: now };
    own.conversations.set(session, conversation);
    this.#resize(conversation, CONVERSATION_BYTES);
    this.#isSorted &&= now >= this.#latestAt;
    this.#latestAt = Math.max(this.#latestAt, now);
    this.#byAge.add(conversation);
    if (share.byUse !== undefined) this.#listAnonymous(conversation, share, share.byUse);
    return conversation;
  }

  /** Lists a conversation of an anonymous tenant as used now. */
  #listAnonymous(conversation: Conversation, { isNewcomer }: TenantShare, byUse: Set<Conversation>): void {
    for (const list of [byUse, isNewcomer ? this.#newcomers : this.#returned]) {
      list.delete(conversation);
      list.add(conversation);
    }
  }

  /** A tenant sends another turn, so it is no newcomer any more. O(its conversations), once. */
  #markReturned(tenant: string): void {
    const share = this.#tenants.get(tenant);
    if (share?.isNewcomer !== true) return;
    share.isNewcomer = false;
    this.#newcomerBytes -= share.bytes;
    for (const conversation of share.byUse!) {
      this.#newcomers.delete(conversation);
      this.#returned.add(conversation);
    }
  }

  #use(conversation: Conversation, now: number): void {
    conversation.usedAt = now;
    this.#latestAt = Math.max(this.#latestAt, now);
    this.#byAge.delete(conversation);
    this.#byAge.add(conversation);
    const { tenant, session } = conversation.name;
    const user = userKey(conversation.name);
    const share = this.#tenants.get(tenant)!;
    const own = share.users.get(user)!;
    own.conversations.delete(session);
    own.conversations.set(session, conversation);
    if (share.byUse !== undefined) this.#listAnonymous(conversation, share, share.byUse);
    // Among tenants of one size class, the least recently used one goes first.
    share.bySize.use(user, own.bytes);
    this.#bySize.use(tenant, share.bytes);
  }

  /** Sorts restored conversations among the others by last use. O(n log n), once. */
  #sort(): void {
    if (this.#isSorted) return;
    this.#isSorted = true;
    const sorted = [...this.#byAge].sort((one, other) => one.usedAt - other.usedAt);
    this.#byAge.clear();
    for (const conversation of sorted) this.#use(conversation, conversation.usedAt);
  }

  #add(conversation: Conversation, turns: SentTurn[], turn: SentTurn): void {
    turns.push(turn);
    this.#turns++;
    this.#resize(conversation, bytesOf(turn));
    if (turns.length > MAX_RENDERINGS) this.#remove(conversation, turns.shift()!);
  }

  #remove(conversation: Conversation, turn: SentTurn): void {
    this.#turns--;
    this.#resize(conversation, -bytesOf(turn));
  }

  /** Adds to the bytes of a conversation. */
  #resize(conversation: Conversation, bytes: number): void {
    conversation.bytes += bytes;
    this.#resizeUser(conversation.name.tenant, userKey(conversation.name), bytes);
  }

  #resizeUser(tenant: string, user: string, bytes: number): void {
    const share = this.#tenants.get(tenant)!;
    const own = share.users.get(user)!;
    own.bytes += bytes;
    share.bySize.move(user, own.bytes - bytes, own.bytes);
    this.#resizeTenant(tenant, share, bytes);
  }

  #resizeTenant(tenant: string, share: TenantShare, bytes: number): void {
    share.bytes += bytes;
    if (share.isNewcomer) this.#newcomerBytes += bytes;
    this.#bytes += bytes;
    this.#bySize.move(tenant, share.bytes - bytes, share.bytes);
  }

  /** Makes room. `latest`, which just grew, is only dropped if it is too large by itself. */
  #shrink(latest: Conversation): void {
    const { maxBytes } = this.#limits;
    if (latest.bytes > LARGEST_PART * maxBytes) this.#drop(latest);
    if (this.#bytes > maxBytes) this.#sort();
    while (this.#bytes > maxBytes) this.#drop(this.#anonymousVictim(latest) ?? this.#victim(latest));
  }

  /**
   * The conversation of an anonymous tenant to forget: the oldest of the tenant of `latest` if that has too much; else
   * the oldest of newcomers while they have too much; else the oldest of returned tenants. So a client that invents
   * tenants displaces no active one. `undefined` without anonymous tenants.
   */
  #anonymousVictim(latest: Conversation): Conversation | undefined {
    const { maxBytes } = this.#limits;
    const share = this.#tenants.get(latest.name.tenant);
    const holdsMuch = share !== undefined && share.bytes > LARGEST_ANONYMOUS_PART * maxBytes;
    const own = holdsMuch ? oldestExcept(share.byUse, latest) : undefined;
    if (own !== undefined) return own;
    const newcomer = oldestExcept(this.#newcomers, latest);
    const returned = oldestExcept(this.#returned, latest);
    const isCrowded = this.#newcomerBytes > NEWCOMERS_PART * maxBytes;
    const other = isCrowded ? (newcomer ?? returned) : (returned ?? newcomer);
    // A single anonymous tenant loses `latest` itself: it takes nothing from authenticated tenants.
    return other ?? (share?.byUse === undefined ? undefined : latest);
  }

  /**
   * The oldest conversation of the largest user of the largest tenant. If that is `latest` and their only one: that of
   * the next user, or tenant, with at least half as much.
   */
  #victim(latest: Conversation): Conversation {
    const tenant = this.#bySize.largest()!;
    const share = this.#tenants.get(tenant)!;
    const user = share.bySize.largest()!;
    const own = share.users.get(user)!;
    const [oldest, next] = own.conversations.values();
    if (oldest !== latest || next !== undefined) return oldest === latest ? next! : oldest!;
    const otherUser = share.users.get(share.bySize.largest(user) ?? '');
    if (otherUser !== undefined && 2 * otherUser.bytes >= own.bytes)
      return otherUser.conversations.values().next().value!;
    const otherTenant = this.#tenants.get(this.#bySize.largest(tenant) ?? '');
    if (otherTenant === undefined || 2 * otherTenant.bytes < share.bytes) return latest;
    return otherTenant.users.get(otherTenant.bySize.largest()!)!.conversations.values().next().value!;
  }

  #drop(conversation: Conversation): void {
    const { name, turnsAt, bytes } = conversation;
    for (const turns of turnsAt.values()) this.#turns -= turns.length;
    this.#resize(conversation, -bytes);
    this.#byAge.delete(conversation);
    this.#newcomers.delete(conversation);
    this.#returned.delete(conversation);
    const { tenant, session } = name;
    const user = userKey(name);
    const share = this.#tenants.get(tenant)!;
    share.byUse?.delete(conversation);
    const own = share.users.get(user)!;
    own.conversations.delete(session);
    if (own.conversations.size > 0) return;
    this.#resizeUser(tenant, user, -USER_BYTES);
    share.users.delete(user);
    if (share.users.size > 0) return;
    this.#tenants.delete(tenant);
    this.#resizeTenant(tenant, share, -TENANT_BYTES);
  }

  #isOld({ usedAt }: Conversation, now: number): boolean {
    return now - usedAt > this.#limits.maxAgeMs;
  }
}

/** Key of an end user in its tenant. No name is equal to the key of the absent user. */
function userKey({ user }: ConversationName): string {
  return user === undefined ? '' : `=${user}`;
}

const NO_TURNS: readonly never[] = [];
const NOTHING: TurnLookup = () => NO_TURNS;

function oldestExcept(byUse: ReadonlySet<Conversation> | undefined, latest: Conversation): Conversation | undefined {
  for (const conversation of byUse ?? []) if (conversation !== latest) return conversation;
  return undefined;
}

function turnsOf({ turnsAt }: Conversation, link: string): SentTurn[] {
  let turns = turnsAt.get(link);
  if (turns === undefined) {
    turns = [];
    turnsAt.set(link, turns);
  }
  return turns;
}

/** Groups holders by the power of two of their size, to find one of the largest at once. */
class SizeClasses {
  /** Most classes are empty, and there are many logs: an empty class has no set. */
  readonly #classes: (Set<string> | undefined)[] = [];

  /** Changes the size of a holder; 0 removes it. O(1). */
  move(holder: string, before: number, after: number): void {
    const from = classOf(before);
    const to = classOf(after);
    if (from === to) return;
    const left = this.#classes[from];
    left?.delete(holder);
    if (left?.size === 0) this.#classes[from] = undefined;
    if (after <= 0) return;
    while (this.#classes.length <= to) this.#classes.push(undefined);
    const holders = this.#classes[to] ?? new Set();
    this.#classes[to] = holders.add(holder);
  }

  /** A holder was used: it goes last in its class. O(1). */
  use(holder: string, size: number): void {
    if (size <= 0) return;
    const holders = this.#classes[classOf(size)];
    if (holders?.delete(holder)) holders.add(holder);
  }

  /** A holder, not `except`, of the largest class: it has at least half of the largest size. O(classes), at most 32. */
  largest(except?: string): string | undefined {
    for (let size = this.#classes.length - 1; size >= 0; size--) {
      for (const holder of this.#classes[size] ?? []) if (holder !== except) return holder;
    }
    return undefined;
  }
}

function classOf(size: number): number {
  return size <= 0 ? -1 : Math.floor(Math.log2(size));
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
