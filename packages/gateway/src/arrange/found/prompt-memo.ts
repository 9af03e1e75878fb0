import type { MessageApi } from '../../intake/apis/prompt-api.js';
import { TenantCache } from '../../observe/tenant-cache.js';
import { type Checkpoint, KnownConversation, type KnownPrompt, type MessageBytes } from './known-conversation.js';
import { type CutBody, cutBody, firstMessages } from './message-bytes.js';

/** What is kept apart: tenants, APIs, and requests that ask for something else. */
export interface MemoScope {
  readonly tenant: string;
  readonly api: MessageApi;
  /** What decides how prompts are read and written beside their own text. */
  readonly switches: string;
}

/** A body whose first messages are known. */
export interface KnownBody {
  readonly conversation: KnownConversation;
  readonly checkpoint: Checkpoint;
  readonly body: Buffer;
  /** Without them. */
  readonly cut: CutBody;
  readonly group: Group;
}

/** A request that went out. */
export interface KeptPrompt {
  readonly given: MessageBytes;
  readonly sent: MessageBytes;
  readonly end: number;
  readonly sentEnd: number;
  readonly prompt: KnownPrompt;
}

interface Entry {
  readonly conversation: KnownConversation;
  usedAt: number;
}

/** Conversations of one scope whose first messages look alike, the least recently used first. */
interface Group {
  readonly tenant: string;
  readonly key: string;
  entries: Entry[];
}

export interface PromptMemoOptions {
  readonly maxBytes: number;
  readonly maxAgeMs: number;
}

/** Messages by whose bytes a conversation is found. */
const FIRST_MESSAGES = 8;
/** Bytes at either end of a message that its place in the table depends on. */
const SAMPLE = 128;
/** Conversations of one scope whose first messages look alike. */
const ALIKE = 8;
/** A conversation, or all that look alike, take at most this part of the memory: no giant evicts all others. */
const LARGEST_PART = 1 / 4;
/**
 * A request goes on from what is known if that is at least this part of the conversation; below it, it is another one.
 */
const LEAST_SHARED = 1 / 2;
/** How often all conversations are looked at in the time after which an unused one goes. */
const SWEEPS_AN_AGE = 4;

/**
 * What became of the messages of conversations when they went out, so that the next request is read from there on.
 * Conversations are found by a sample of their first messages and then compared whole, byte by byte, so that none can
 * be taken for another. Nothing hangs on it but time: what is not known here is read.
 *
 * Bounded in bytes, of which each tenant has a fair share, and in milliseconds without use.
 */
export class PromptMemo {
  readonly #options: PromptMemoOptions;
  readonly #groups: TenantCache<Group>;
  #expiredAt = Number.NEGATIVE_INFINITY;

  constructor(options: PromptMemoOptions) {
    this.#options = options;
    this.#groups = new TenantCache(options.maxBytes);
  }

  /** Bytes held, estimated. */
  get bytes(): number {
    return this.#groups.bytes;
  }

  /** Conversations held. Cost: O(conversations). */
  get size(): number {
    let size = 0;
    for (const { entries } of this.#groups.values()) size += entries.length;
    return size;
  }

  /** What is known of a body's messages. O(1) for a conversation that nobody knows, else O(bytes known), native. */
  find(scope: MemoScope, body: Buffer, now: number): KnownBody | undefined {
    this.#expire(now);
    if (this.#groups.size === 0) return undefined;
    const first = firstMessages(body, scope.api.conversation, FIRST_MESSAGES);
    if (first === undefined) return undefined;
    const given = { bytes: body, open: first.open };
    for (const key of keysOf(scope, given, first.ends).reverse()) {
      const group = this.#groups.get(scope.tenant, key);
      for (const entry of group?.entries ?? []) {
        const checkpoint = sharedWith(entry, given);
        const cut = checkpoint && cutBody(body, first.open, checkpoint.end);
        if (checkpoint === undefined || cut === undefined) continue;
        use(group!, entry, now);
        return { conversation: entry.conversation, checkpoint, body, cut, group: group! };
      }
    }
    return undefined;
  }

  /** A request went out of which nothing was known. */
  keep(scope: MemoScope, kept: KeptPrompt, now: number): void {
    const { given, sent, end, sentEnd, prompt } = kept;
    const ends = firstMessages(given.bytes, scope.api.conversation, FIRST_MESSAGES)!.ends;
    const key = keysOf(scope, given, ends).at(-1);
    if (key === undefined) return;
    const conversation = new KnownConversation(given, sent, { end, sentEnd, prompt });
    if (this.#isTooLarge(conversation)) return;
    const { tenant } = scope;
    const group = this.#groups.get(tenant, key) ?? { tenant, key, entries: [] };
    // What was known of the same conversation did not help, or the request would have gone on from there.
    const others = group.entries.filter((each) => sharedWith(each, given) === undefined);
    group.entries = [...others.slice(-(ALIKE - 1)), { conversation, usedAt: now }];
    this.#shorten(group);
    this.#groups.set(tenant, key, group, bytesOf(group));
  }

  /** A request went out whose first messages were known, and to whose checkpoint the conversation was taken back. */
  goOn({ conversation, group }: KnownBody, kept: KeptPrompt, now: number): void {
    const entry = group.entries.find((each) => each.conversation === conversation);
    if (entry === undefined) return;
    const { given, sent, end, sentEnd, prompt } = kept;
    conversation.goOn(given, sent, { end, sentEnd, prompt });
    use(group, entry, now);
    if (this.#isTooLarge(conversation)) group.entries.pop();
    this.#shorten(group);
    this.#resize(group);
  }

  #isTooLarge({ bytes }: { readonly bytes: number }): boolean {
    return bytes > LARGEST_PART * this.#options.maxBytes;
  }

  /** A group leaves the memory as a whole, so together its conversations are no larger than one may be. */
  #shorten(group: Group): void {
    while (this.#isTooLarge({ bytes: bytesOf(group) })) group.entries.shift();
  }

  /** Looks at all conversations, a few times in the longest that one may be unused. */
  #expire(now: number): void {
    const { maxAgeMs } = this.#options;
    if (now - this.#expiredAt < maxAgeMs / SWEEPS_AN_AGE) return;
    this.#expiredAt = now;
    for (const group of [...this.#groups.values()]) {
      const left = group.entries.filter(({ usedAt }) => now - usedAt <= maxAgeMs);
      if (left.length === group.entries.length) continue;
      group.entries = left;
      this.#resize(group);
    }
  }

  /** A group that has lost its place in the memory changes nothing there. */
  #resize(group: Group): void {
    const { tenant, key, entries } = group;
    if (this.#groups.get(tenant, key) !== group) return;
    if (entries.length === 0) this.#groups.take(tenant, key);
    else this.#groups.resize(tenant, key, bytesOf(group));
  }
}

function bytesOf({ entries }: Group): number {
  return entries.reduce((sum, { conversation }) => sum + conversation.bytes, 0);
}

function use(group: Group, entry: Entry, now: number): void {
  entry.usedAt = now;
  group.entries = [...group.entries.filter((each) => each !== entry), entry];
}

/** Up to where a body goes the way of a conversation; `undefined` if it is another one. */
function sharedWith({ conversation }: Entry, given: MessageBytes): Checkpoint | undefined {
  const checkpoint = conversation.matching(given);
  return checkpoint !== undefined && checkpoint.end >= LEAST_SHARED * conversation.length ? checkpoint : undefined;
}

/** For each number of first messages, what they are found by. */
function keysOf({ api, switches }: MemoScope, { bytes, open }: MessageBytes, ends: readonly number[]): string[] {
  let hash = 0;
  let start = open;
  return ends.map((end, place) => {
    hash = sampled(hash, bytes, start, Math.min(end, start + SAMPLE));
    hash = sampled(hash, bytes, Math.max(start, end - SAMPLE), end);
    start = end;
    return `${api.name}\n${switches}\n${place}\n${hash}`;
  });
}

function sampled(seed: number, bytes: Buffer, start: number, end: number): number {
  let hash = seed ^ (end - start);
  for (let at = start; at < end; at++) hash = Math.imul(hash ^ bytes[at]!, 0x9e3779b1) ^ (hash >>> 15);
  return hash;
}
