import type { MessageApi } from '../../intake/apis/prompt-api.js';
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
  readonly key: string;
  readonly conversation: KnownConversation;
  bytes: number;
  usedAt: number;
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
/** A conversation takes at most this part of the memory, so that one giant does not evict all others. */
const LARGEST_PART = 1 / 4;
/**
 * A request goes on from what is known if that is at least this part of the conversation; below it, it is another one.
 */
const LEAST_SHARED = 1 / 2;

/**
 * What became of the messages of conversations when they went out, so that the next request is read from there on.
 * Conversations are found by a sample of their first messages and then compared whole, byte by byte, so that none can
 * be taken for another. Nothing hangs on it but time: what is not known here is read.
 *
 * Bounded in bytes, and in milliseconds without use; the least recently used conversation goes first.
 */
export class PromptMemo {
  readonly #options: PromptMemoOptions;
  /** In the order of use. */
  readonly #entries = new Map<KnownConversation, Entry>();
  readonly #found = new Map<string, Entry[]>();
  #bytes = 0;

  constructor(options: PromptMemoOptions) {
    this.#options = options;
  }

  /** Bytes held, estimated. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Conversations held. */
  get size(): number {
    return this.#entries.size;
  }

  /** What is known of a body's messages. O(1) for a conversation that nobody knows, else O(bytes known), native. */
  find(scope: MemoScope, body: Buffer, now: number): KnownBody | undefined {
    this.#expire(now);
    if (this.#entries.size === 0) return undefined;
    const first = firstMessages(body, scope.api.conversation, FIRST_MESSAGES);
    if (first === undefined) return undefined;
    const given = { bytes: body, open: first.open };
    const keys = keysOf(scope, given, first.ends);
    for (const key of keys.reverse()) {
      for (const entry of this.#found.get(key) ?? []) {
        const checkpoint = sharedWith(entry, given);
        const cut = checkpoint && cutBody(body, first.open, checkpoint.end);
        if (checkpoint === undefined || cut === undefined) continue;
        this.#use(entry, now);
        return { conversation: entry.conversation, checkpoint, body, cut };
      }
    }
    return undefined;
  }

  /** A request went out of which nothing was known. */
  keep(scope: MemoScope, kept: KeptPrompt, now: number): void {
    const { given, sent, ...checkpoint } = kept;
    const ends = firstMessages(given.bytes, scope.api.conversation, FIRST_MESSAGES)!.ends;
    const key = keysOf(scope, given, ends).at(-1);
    if (key === undefined) return;
    const conversation = new KnownConversation(given, sent, checkpoint);
    const { bytes } = conversation;
    if (bytes > LARGEST_PART * this.#options.maxBytes) return;
    const alike = this.#found.get(key) ?? [];
    // What was known of the same conversation did not help, or the request would have gone on from there.
    for (const entry of alike.filter((each) => sharedWith(each, given) !== undefined)) this.#drop(entry);
    const left = this.#found.get(key) ?? [];
    if (left.length >= ALIKE) this.#drop(left[0]!);
    const entry = { key, conversation, bytes, usedAt: now };
    this.#found.set(key, [...(this.#found.get(key) ?? []), entry]);
    this.#entries.set(conversation, entry);
    this.#bytes += bytes;
    this.#shrink();
  }

  /** A request went out whose first messages were known, and to whose checkpoint the conversation was taken back. */
  goOn({ conversation }: KnownBody, kept: KeptPrompt, now: number): void {
    const entry = this.#entries.get(conversation);
    if (entry === undefined) return;
    const { given, sent, ...next } = kept;
    conversation.goOn(given, sent, next);
    this.#bytes += conversation.bytes - entry.bytes;
    entry.bytes = conversation.bytes;
    this.#use(entry, now);
    if (entry.bytes > LARGEST_PART * this.#options.maxBytes) this.#drop(entry);
    this.#shrink();
  }

  #use(entry: Entry, now: number): void {
    entry.usedAt = now;
    this.#entries.delete(entry.conversation);
    this.#entries.set(entry.conversation, entry);
  }

  #expire(now: number): void {
    for (const entry of this.#entries.values()) {
      if (now - entry.usedAt <= this.#options.maxAgeMs) return;
      this.#drop(entry);
    }
  }

  #shrink(): void {
    for (const entry of this.#entries.values()) {
      if (this.#bytes <= this.#options.maxBytes) return;
      this.#drop(entry);
    }
  }

  #drop(entry: Entry): void {
    this.#entries.delete(entry.conversation);
    this.#bytes -= entry.bytes;
    const left = this.#found.get(entry.key)!.filter((each) => each !== entry);
    if (left.length === 0) this.#found.delete(entry.key);
    else this.#found.set(entry.key, left);
  }
}

/** Up to where a body goes the way of a conversation; `undefined` if it is another one. */
function sharedWith({ conversation }: Entry, given: MessageBytes): Checkpoint | undefined {
  const checkpoint = conversation.matching(given);
  return checkpoint !== undefined && checkpoint.end >= LEAST_SHARED * conversation.length ? checkpoint : undefined;
}

/** For each number of first messages, what they are found by. */
function keysOf(
  { tenant, api, switches }: MemoScope,
  { bytes, open }: MessageBytes,
  ends: readonly number[],
): string[] {
  let hash = 0;
  let start = open;
  return ends.map((end, place) => {
    hash = sampled(hash, bytes, start, Math.min(end, start + SAMPLE));
    hash = sampled(hash, bytes, Math.max(start, end - SAMPLE), end);
    start = end;
    return `${tenant}\n${api.name}\n${switches}\n${place}\n${hash}`;
  });
}

function sampled(seed: number, bytes: Buffer, start: number, end: number): number {
  let hash = seed ^ (end - start);
  for (let at = start; at < end; at++) hash = Math.imul(hash ^ bytes[at]!, 0x9e3779b1) ^ (hash >>> 15);
  return hash;
}
