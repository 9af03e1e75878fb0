import type { TurnLookup, TurnName } from '../src/internal.js';
import { ConversationLog, type ConversationName, type SentTurn } from '../src/internal.js';

interface NaiveConversation {
  readonly name: ConversationName;
  readonly turns: SentTurn[];
  usedAt: number;
}

const NAME = { tenant: 't', user: 'u', session: 's' };
const TURN: SentTurn = {
  link: '',
  id: '',
  length: 1,
  parent: undefined,
  supplied: '',
  order: [],
  edits: [],
  documents: [],
  steps: [],
  tail: 0,
  answers: [],
};

/** Bytes of a log of one small turn, and of another one in that conversation. */
function bytesBeside(name: ConversationName): number {
  const log = new ConversationLog();
  log.sent(NAME, TURN, 0);
  log.sent(name, { ...TURN, link: 'other' }, 0);
  return log.bytes;
}

/**
 * What a log counts for a conversation, an end user and a tenant, beside what each holds. Names have one character: a
 * conversation counts the characters of its name, too.
 */
const CONVERSATION_BYTES = bytesBeside({ ...NAME, session: 'o' }) - bytesBeside(NAME);
const USER_BYTES = bytesBeside({ ...NAME, user: 'o' }) - bytesBeside({ ...NAME, session: 'o' });
const TENANT_BYTES = bytesBeside({ ...NAME, tenant: 'o' }) - bytesBeside({ ...NAME, user: 'o' });

/** The same for a conversation without an end user, beside that of one with a user of one character. */
const UNNAMED_USER_BYTES = bytesBeside({ ...NAME, user: undefined }) - bytesBeside({ ...NAME, user: 'o' });

/** What a log counts for a turn. */
export function bytesOf(turn: SentTurn): number {
  const log = new ConversationLog();
  log.sent(NAME, turn, 0);
  return log.bytes - CONVERSATION_BYTES - USER_BYTES - TENANT_BYTES;
}

/** What a log counts that holds this turn in conversations of so many end users of one tenant. */
export function bytesOfLog(turn: SentTurn, conversations: number, users = 1): number {
  return TENANT_BYTES + USER_BYTES * users + (CONVERSATION_BYTES + bytesOf(turn)) * conversations;
}

/**
 * The conversation log as one list in order of use. Which of several conversations goes when the log is full is not its
 * choice: it is told which ones went, and says whether they may.
 */
export class NaiveConversationLog {
  readonly #maxBytes: number;
  readonly #maxAgeMs: number;
  #conversations: NaiveConversation[] = [];

  constructor(maxBytes: number, maxAgeMs: number) {
    this.#maxBytes = maxBytes;
    this.#maxAgeMs = maxAgeMs;
  }

  get names(): readonly ConversationName[] {
    return this.#conversations.map(({ name }) => name);
  }

  get turns(): number {
    return this.#conversations.reduce((sum, { turns }) => sum + turns.length, 0);
  }

  get bytes(): number {
    return tenantBytes(this.#conversations);
  }

  lookup(name: ConversationName, now: number): TurnLookup {
    const found = this.#conversations.find((each) => isSame(each.name, name));
    if (found === undefined || now - found.usedAt > this.#maxAgeMs) return () => [];
    return (link) => found.turns.filter((turn) => turn.link === link);
  }

  /** Takes a turn in, and makes no room for it: `evict` does. */
  add(name: ConversationName, turn: SentTurn, now: number): void {
    this.expire(now);
    const known = this.#conversations.find((each) => isSame(each.name, name)) ?? { name, turns: [], usedAt: now };
    const place = known.turns.findIndex(({ link, id }) => link === turn.link && id === turn.id);
    known.turns.push(...(place < 0 ? [turn] : known.turns.splice(place, 1)));
    this.#use(known, now);
  }

  answered(name: ConversationName, { link, id }: TurnName, answer: string, now: number): void {
    const known = this.#conversations.find((each) => isSame(each.name, name));
    const place = known?.turns.findIndex((turn) => turn.link === link && turn.id === id) ?? -1;
    if (known === undefined || place < 0) return;
    const { answers, ...turn } = known.turns[place]!;
    known.turns[place] = { ...turn, answers: [...answers.filter((each) => each !== answer), answer] };
    this.#use(known, now);
  }

  forget(isForgotten: (name: ConversationName) => boolean): number {
    const before = this.#conversations.length;
    this.#conversations = this.#conversations.filter(({ name }) => !isForgotten(name));
    return before - this.#conversations.length;
  }

  expire(now: number): number {
    const before = this.#conversations.length;
    this.#conversations = this.#conversations.filter(({ usedAt }) => now - usedAt <= this.#maxAgeMs);
    return before - this.#conversations.length;
  }

  /** Forgets these conversations after `latest` grew. @returns whether exactly these may go. */
  evict(latest: ConversationName, gone: readonly ConversationName[]): boolean {
    const kept = this.#conversations.filter(({ name }) => !gone.some((each) => isSame(each, name)));
    const isLatest = ({ name }: NaiveConversation) => isSame(name, latest);
    const isTooLarge = conversationBytes(this.#conversations.filter(isLatest)) > this.#maxBytes / 4;
    const start = isTooLarge ? this.#conversations.filter((each) => !isLatest(each)) : this.#conversations;
    const isAllowed = this.#mayBecome(start, kept);
    this.#conversations = kept;
    return isAllowed;
  }

  /** Whether one conversation after the other may go until these are left. */
  #mayBecome(from: readonly NaiveConversation[], kept: readonly NaiveConversation[]): boolean {
    if (tenantBytes(from) <= this.#maxBytes)
      return from.length === kept.length && kept.every((each) => from.includes(each));
    for (const ofTenant of largestBy(from, ({ tenant }) => tenant, tenantBytes)) {
      for (const [oldest] of largestBy(ofTenant, ({ user }) => user, userBytes)) {
        if (kept.includes(oldest!)) continue;
        const rest = from.filter((each) => each !== oldest);
        if (this.#mayBecome(rest, kept)) return true;
      }
    }
    return false;
  }

  #use(conversation: NaiveConversation, now: number): void {
    conversation.usedAt = now;
    this.#conversations = [...this.#conversations.filter((each) => each !== conversation), conversation];
  }
}

/**
 * Of the groups of conversations that share this part of the name, those that hold at least half of what the largest
 * holds.
 */
function largestBy(
  conversations: readonly NaiveConversation[],
  part: (name: ConversationName) => string | undefined,
  bytes: (conversations: readonly NaiveConversation[]) => number,
): readonly (readonly NaiveConversation[])[] {
  const groups = [...new Set(conversations.map(({ name }) => part(name)))].map((one) =>
    conversations.filter(({ name }) => part(name) === one),
  );
  const largest = Math.max(...groups.map(bytes));
  return groups.filter((group) => 2 * bytes(group) >= largest);
}

function conversationBytes(conversations: readonly NaiveConversation[]): number {
  const turns = conversations.flatMap((conversation) => conversation.turns);
  const names = conversations.reduce(
    (sum, { name: { user } }) => sum + (user === undefined ? UNNAMED_USER_BYTES : 0),
    0,
  );
  return turns.reduce((sum, turn) => sum + bytesOf(turn), CONVERSATION_BYTES * conversations.length + names);
}

/** The same, with the end users whose conversations these are. */
function userBytes(conversations: readonly NaiveConversation[]): number {
  const users = new Set(conversations.map(({ name: { tenant, user } }) => `${tenant}\n${user}`));
  return conversationBytes(conversations) + USER_BYTES * users.size;
}

/** The same, with their tenants. */
function tenantBytes(conversations: readonly NaiveConversation[]): number {
  const tenants = new Set(conversations.map(({ name: { tenant } }) => tenant));
  return userBytes(conversations) + TENANT_BYTES * tenants.size;
}

function isSame(one: ConversationName, other: ConversationName): boolean {
  return one.tenant === other.tenant && one.user === other.user && one.session === other.session;
}
