import type { ConversationName, TurnLookup } from './recall.js';
import { MAX_ANSWERS, MAX_RENDERINGS, type SentTurn, type TurnName } from './sent-turn.js';
import { matchesFilter, readSessionEntry, type SessionEntry, type SessionFilter } from './session-entry.js';
import { isAnonymousTenant } from './tenant.js';

/** Bounds of what is remembered of conversations. */
export interface ConversationLogOptions {
  /** Bytes of all turns and of those who hold them. Default 64 MiB. */
  readonly maxBytes?: number;
  /** Milliseconds without use after which a conversation is forgotten. Default one hour. */
  readonly maxAgeMs?: number;
}

const DEFAULTS: Required<ConversationLogOptions> = { maxBytes: 67_108_864, maxAgeMs: 3_600_000 };

/** Bytes of a turn beside its texts (objects, names, map slot), and of one step of its path. Generous. */
const TURN_BYTES = 1_024;
const STEP_BYTES = 128;
/** Bytes of a character of a document; and of one that was added to a message, whose bytes are kept beside it. */
const CHARACTER_BYTES = 2;
const ADDED_CHARACTER_BYTES = 4;
/** Bytes of a conversation, an end user and a tenant beside what each holds: objects, maps, sets, and names. */
const CONVERSATION_BYTES = 512;
const USER_BYTES = 512;
const TENANT_BYTES = 1_024;
/** One conversation holds at most this part of the log. A longer one is forgotten. */
const LARGEST_PART = 1 / 4;
/** An anonymous tenant that holds more than this part of a full log makes room by its own conversations. */
const LARGEST_ANONYMOUS_PART = 1 / 8;
/** Anonymous tenants that came once give way to those that came back only where they hold more than this part. */
const NEWCOMERS_PART = 1 / 4;

/** One conversation: the turns that were sent, by the link of the hash chain at which each ended. */
interface Conversation {
  readonly name: ConversationName;
  readonly turnsAt: Map<string, SentTurn[]>;
  bytes: number;
  usedAt: number;
}

/** What one end user of a tenant holds, in order of use: the oldest conversation first. */
interface UserShare {
  readonly conversations: Map<string, Conversation>;
  bytes: number;
}

/** What one tenant holds. */
interface TenantShare {
  readonly users: Map<string, UserShare>;
  readonly bySize: SizeClasses;
  /** Of an anonymous tenant: its conversations in order of use. */
  readonly byUse: Set<Conversation> | undefined;
  /** Whether it is anonymous and has sent one turn only. */
  isNewcomer: boolean;
  bytes: number;
}

/**
 * Remembers what was sent in named conversations, so that later turns send the same bytes again. Conversations belong
 * to a tenant and an end user. Bounded in bytes and in age; a conversation is forgotten as a whole, so none ever lacks
 * only some of its documents. When the log is full, anonymous tenants (`isAnonymousTenant`) make room first, see
 * `#anonymousVictim`. Then the conversation goes that the largest user of the largest tenant has not used for the
 * longest time. `now` is the caller's clock, in milliseconds. All operations are O(1) amortised unless they say
 * otherwise.
 */
export class ConversationLog {
  readonly #limits: Required<ConversationLogOptions>;
  readonly #tenants = new Map<string, TenantShare>();
  readonly #bySize = new SizeClasses();
  /** All conversations in order of use, to forget the old ones. */
  readonly #byAge = new Set<Conversation>();
  /** Conversations of anonymous tenants in order of use: of those that sent one turn, and of those that came back. */
  readonly #newcomers = new Set<Conversation>();
  readonly #returned = new Set<Conversation>();
  /** Bytes of tenants that are newcomers. */
  #newcomerBytes = 0;
  /** When a conversation was used last; and whether all stand in that order, which restored ones may not. */
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

  /** What `recallConversation` looks turns up with. Changes nothing; what is too old is not found. */
  lookup(name: ConversationName, now: number): TurnLookup {
    const conversation = this.#find(name);
    if (conversation === undefined || this.#isOld(conversation, now)) return NOTHING;
    return (link) => conversation.turnsAt.get(link) ?? NO_TURNS;
  }

  /** A turn goes to the engine. One that was sent before becomes the latest of its renderings. */
  sent(name: ConversationName, turn: SentTurn, now: number): void {
    this.expire(now);
    this.#comesBack(name.tenant);
    const conversation = this.#open(name, now);
    const turns = turnsOf(conversation, turn.link);
    const known = turns.findIndex(({ id }) => id === turn.id);
    if (known >= 0) turns.push(...turns.splice(known, 1));
    else this.#add(conversation, turns, turn);
    this.#shrink(conversation);
  }

  /** The model answered a turn; one that is forgotten already stays so. */
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

  /**
   * What is remembered of these conversations, the least recently used first. Holds prompts and documents in the clear.
   */
  *export(now: number, filter: SessionFilter = {}): Generator<SessionEntry> {
    this.#sort();
    // A conversation that is used meanwhile moves to the end, and would come again.
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
   * Takes an exported entry in. What is remembered there already stays.
   *
   * @returns false for an entry that was not used for too long.
   * @throws WarmpathError `WARMPATH_INVALID_REQUEST` with the path, for what no export wrote.
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
    // A turn that is taken in was sent before.
    this.#comesBack(tenant);
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

  /** Forgets these conversations. O(conversations). @returns how many there were. */
  forget(filter: SessionFilter): number {
    let forgotten = 0;
    for (const conversation of this.#byAge) {
      if (!matchesFilter(conversation.name, filter)) continue;
      this.#drop(conversation);
      forgotten++;
    }
    return forgotten;
  }

  /** Forgets what was not used for too long. O(forgotten). */
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

  /** The conversation of that name, used now; made where it is new. */
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
    // Callers name a conversation by what they know of it, which is not to be kept.
    const kept = { tenant, user: name.user, session };
    const conversation: Conversation = { name: kept, turnsAt: new Map(), bytes: 0, usedAt: now };
    own.conversations.set(session, conversation);
    this.#resize(conversation, CONVERSATION_BYTES);
    this.#isSorted &&= now >= this.#latestAt;
    this.#latestAt = Math.max(this.#latestAt, now);
    this.#byAge.add(conversation);
    if (share.byUse !== undefined) this.#listed(conversation, share, share.byUse);
    return conversation;
  }

  /** The conversation of an anonymous tenant is new, or used now. */
  #listed(conversation: Conversation, { isNewcomer }: TenantShare, byUse: Set<Conversation>): void {
    for (const list of [byUse, isNewcomer ? this.#newcomers : this.#returned]) {
      list.delete(conversation);
      list.add(conversation);
    }
  }

  /** A tenant sends another turn: if it was a newcomer, it is none any more. O(its conversations), once. */
  #comesBack(tenant: string): void {
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
    if (share.byUse !== undefined) this.#listed(conversation, share, share.byUse);
    // Of holders of one size, the one goes first that used nothing for the longest time.
    share.bySize.use(user, own.bytes);
    this.#bySize.use(tenant, share.bytes);
  }

  /**
   * Puts conversations that were restored among the others by their last use. O(conversations · log conversations),
   * once.
   */
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

  /** The conversation holds so many bytes more. */
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

  /** Makes room; `latest` is the conversation that just grew, which goes only if it is too large by itself. */
  #shrink(latest: Conversation): void {
    const { maxBytes } = this.#limits;
    if (latest.bytes > LARGEST_PART * maxBytes) this.#drop(latest);
    if (this.#bytes > maxBytes) this.#sort();
    while (this.#bytes > maxBytes) this.#drop(this.#anonymousVictim(latest) ?? this.#victim(latest));
  }

  /**
   * The conversation of an anonymous tenant that goes: the oldest of the tenant of `latest`, if that holds too much;
   * else the oldest of newcomers, while these hold more than their part; else the oldest of tenants that came back.
   * So a client that makes up thousands of tenants pushes out no conversation of a tenant that is in use. `undefined`
   * where no tenant is anonymous.
   */
  #anonymousVictim(latest: Conversation): Conversation | undefined {
    const { maxBytes } = this.#limits;
    const share = this.#tenants.get(latest.name.tenant);
    const holdsMuch = share !== undefined && share.bytes > LARGEST_ANONYMOUS_PART * maxBytes;
    const own = holdsMuch ? oldestBut(share.byUse, latest) : undefined;
    if (own !== undefined) return own;
    const newcomer = oldestBut(this.#newcomers, latest);
    const returned = oldestBut(this.#returned, latest);
    const isCrowded = this.#newcomerBytes > NEWCOMERS_PART * maxBytes;
    const other = isCrowded ? (newcomer ?? returned) : (returned ?? newcomer);
    // One that is alone goes itself: it takes nothing from authenticated tenants.
    return other ?? (share?.byUse === undefined ? undefined : latest);
  }

  /**
   * The oldest conversation of the largest user of the largest tenant. Where that is `latest` and they have no other:
   * the one of the next user, or tenant, who holds at least half as much.
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

/** The key of an end user among those of its tenant: no end user is called what stands for none. */
function userKey({ user }: ConversationName): string {
  return user === undefined ? '' : `=${user}`;
}

const NO_TURNS: readonly never[] = [];
const NOTHING: TurnLookup = () => NO_TURNS;

function oldestBut(byUse: ReadonlySet<Conversation> | undefined, latest: Conversation): Conversation | undefined {
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

/** Holders by the power of two that their size reaches, so that one of the largest is found at once. */
class SizeClasses {
  /** Most holders are alone in their log, and there are many: a class that has none is no set. */
  readonly #classes: (Set<string> | undefined)[] = [];

  /** A holder's size changed; 0 means that it holds nothing. O(1). */
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

  /** A holder was used: of its size, it goes last. O(1). */
  use(holder: string, size: number): void {
    if (size <= 0) return;
    const holders = this.#classes[classOf(size)];
    if (holders?.delete(holder)) holders.add(holder);
  }

  /**
   * A holder, not `except`, that has at least half of what the largest of them has. O(classes), of which there are at
   * most 32.
   */
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

/** The renderings of both, the latter's as the latest, with the answers of both. O(renderings). */
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
