import { ConversationLog, type ConversationName, type SentTurn, type TurnLookup, type TurnName } from '../src/index.js';

interface NaiveConversation {
  readonly name: ConversationName;
  readonly turns: SentTurn[];
  usedAt: number;
}

/** What a log counts for a turn: what it holds when it holds nothing else. */
export function bytesOf(turn: SentTurn): number {
  const log = new ConversationLog();
  log.sent({ tenant: '', session: '' }, turn, 0);
  return log.bytes;
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
    return sizeOf(this.#conversations);
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
    const isTooLarge = sizeOf(this.#conversations.filter(isLatest)) > this.#maxBytes / 4;
    const start = isTooLarge ? this.#conversations.filter((each) => !isLatest(each)) : this.#conversations;
    const isAllowed = this.#mayBecome(start, kept);
    this.#conversations = kept;
    return isAllowed;
  }

  /** Whether one conversation after the other may go until these are left. */
  #mayBecome(from: readonly NaiveConversation[], kept: readonly NaiveConversation[]): boolean {
    if (sizeOf(from) <= this.#maxBytes) return from.length === kept.length && kept.every((each) => from.includes(each));
    for (const ofTenant of largestBy(from, ({ tenant }) => tenant)) {
      for (const [oldest] of largestBy(ofTenant, ({ user }) => user)) {
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
): readonly (readonly NaiveConversation[])[] {
  const groups = [...new Set(conversations.map(({ name }) => part(name)))].map((one) =>
    conversations.filter(({ name }) => part(name) === one),
  );
  const largest = Math.max(...groups.map(sizeOf));
  return groups.filter((group) => 2 * sizeOf(group) >= largest);
}

function sizeOf(conversations: readonly NaiveConversation[]): number {
  return conversations.reduce((sum, { turns }) => sum + turns.reduce((bytes, turn) => bytes + bytesOf(turn), 0), 0);
}

function isSame(one: ConversationName, other: ConversationName): boolean {
  return one.tenant === other.tenant && one.user === other.user && one.session === other.session;
}
