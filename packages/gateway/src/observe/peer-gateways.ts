import { hostname } from 'node:os';
import { type Document, observe, type Preamble } from '@warmpath/core';
import { type ConversationStore, fingerprint, type PathStep, type ServedRequest } from '@warmpath/core/internal';
import { z } from 'zod';
import { isLoopback } from '../config/schema-server.js';
import type { Engines } from '../engines/engines.js';
import type { ClientKey } from '../intake/authenticate.js';
import { isLimited, type KeyUsage, type RateLimits } from '../intake/rate-limits.js';
import type { HistoryEngine, ServedHistories, TenantModel } from '../memory/served-histories.js';

/** Milliseconds between two exchanges with the other gateways: what they see of each other is so old, about. */
const EXCHANGE_MS = 100;
/** The same while the server cannot be asked. */
const RETRY_MS = 1_000;
/** Characters of one note: some hundred orders. */
const MAX_NOTE = 65_536;
/** Keys that one note tells of. */
const MAX_KEYS = 1_024;
/** Orders that wait to be sent, and characters of them; the oldest go first. */
const MAX_UNPUBLISHED = 1_024;
const MAX_UNPUBLISHED_CHARACTERS = 4 * MAX_NOTE;
/** Documents of an order, and characters of a name, that are believed. */
const MAX_DOCUMENTS = 1_000;
const MAX_NAME = 4_096;
const VERSION = 1;

/** What became of orders that gateways tell each other, since the start. */
export interface PeerCounts {
  told: number;
  heard: number;
  /** Not sent, because too much came while the server was away. */
  lost: number;
  /** Notes that no gateway of this version wrote. */
  unreadable: number;
}

export interface PeerParts {
  readonly exchange: NonNullable<ConversationStore['exchange']>;
  readonly histories: ServedHistories;
  readonly engines: Engines;
  readonly rateLimits: RateLimits;
  /** The keys of callers, as configured now. */
  readonly keys: () => readonly ClientKey[];
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * The gateways that share a store with this one: they tell each other in which order documents went to which engine,
 * so that all of them order for what it holds, and what keys with limits did. What is sent is some tenths of a second
 * old when it is received, no request waits for it, and it may be lost: then a gateway knows less, as one alone would.
 */
export class PeerGateways {
  readonly counts: PeerCounts = { told: 0, heard: 0, lost: 0, unreadable: 0 };
  readonly #parts: PeerParts;
  readonly #identities = new WeakMap<HistoryEngine, string>();
  /** As JSON, in the order of dispatch. */
  #unpublished: string[] = [];
  #unpublishedCharacters = 0;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(parts: PeerParts) {
    this.#parts = parts;
  }

  /** Begins to tell and to hear. */
  open(): void {
    this.#next(0);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  /** A request went to the engine in that order. O(documents). */
  dispatched({ engine, tenant, model }: Pick<TenantModel, 'engine' | 'tenant' | 'model'>, served: ServedRequest): void {
    const { documents, preamble, order } = served;
    if (documents.length === 0) return;
    const before = preamble && [preamble.key, preamble.tokens, (preamble.steps ?? []).map(pairOf)];
    const text = JSON.stringify([
      this.#identityOf(engine),
      tenant,
      model,
      before ?? null,
      documents.map(pairOf),
      order ?? null,
    ]);
    if (text.length > MAX_NOTE) {
      this.counts.lost++;
      return;
    }
    this.#unpublished.push(text);
    this.#unpublishedCharacters += text.length;
    while (this.#unpublished.length > MAX_UNPUBLISHED || this.#unpublishedCharacters > MAX_UNPUBLISHED_CHARACTERS) {
      this.#unpublishedCharacters -= this.#unpublished.shift()!.length;
      this.counts.lost++;
    }
  }

  /** What an engine is called among gateways: the same name at the same address of the same machine. */
  #identityOf(engine: HistoryEngine): string {
    let identity = this.#identities.get(engine);
    if (identity === undefined) {
      const { name, url } = engine;
      const host = new URL(url).hostname.replace(/^\[(.*)\]$/, '$1');
      identity = fingerprint([name, url, isLoopback(host) ? hostname() : '']);
      this.#identities.set(engine, identity);
    }
    return identity;
  }

  #next(ms: number): void {
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => {
      void this.#exchange().then((isDone) => this.#next(isDone ? EXCHANGE_MS : RETRY_MS));
    }, ms);
    this.#timer.unref();
  }

  /**
   * Publishes what is not yet published, and applies what was received. Answers whether the server could be asked.
   * Never rejects.
   */
  async #exchange(): Promise<boolean> {
    const { exchange, rateLimits } = this.#parts;
    const orders = this.#takeOrders();
    const used = rateLimits.takeUnpublished(MAX_KEYS);
    const heard = await exchange(noteOf(orders, used)).catch(() => undefined);
    if (heard === undefined) {
      this.#unpublished = [...orders, ...this.#unpublished];
      for (const { length } of orders) this.#unpublishedCharacters += length;
      rateLimits.giveBack(used);
      return false;
    }
    this.counts.told += orders.length;
    for (const { text, ...sender } of heard) {
      try {
        // The server's word is not trusted.
        this.#hear(note.parse(JSON.parse(text)), sender);
      } catch {
        this.counts.unreadable++;
      }
    }
    return true;
  }

  /** The oldest orders, as many as one note holds. */
  #takeOrders(): readonly string[] {
    let count = 0;
    let characters = 0;
    for (const { length } of this.#unpublished) {
      if (characters + length > MAX_NOTE) break;
      characters += length;
      count++;
    }
    this.#unpublishedCharacters -= characters;
    return this.#unpublished.splice(0, count);
  }

  #hear(
    { orders, used }: z.output<typeof note>,
    { from, ageMs }: { readonly from: string; readonly ageMs: number },
  ): void {
    const { engines, histories, rateLimits, keys, now } = this.#parts;
    const told = new Map(used);
    for (const key of told.size > 0 ? keys() : []) {
      const usage = told.get(key.name);
      if (usage !== undefined && isLimited(key)) rateLimits.received(key, usage, { from, ageMs });
    }
    for (const { engine: identity, tenant, model, served } of orders) {
      const engine = engines.all.find((each) => !each.isRemoved && this.#identityOf(each) === identity);
      if (engine === undefined) continue;
      const { history } = histories.of(engine, tenant, model);
      observe({ kind: 'received', arrangement: served, now: now() }, history);
      this.counts.heard++;
    }
  }
}

/** Empty where there is nothing to tell. */
function noteOf(orders: readonly string[], used: ReadonlyMap<string, KeyUsage>): string {
  if (orders.length === 0 && used.size === 0) return '';
  const keys = [...used].map(([name, { requests, tokens, underWay }]) => [name, requests, tokens, underWay]);
  return `{"version":${VERSION},"used":${JSON.stringify(keys)},"orders":[${orders.join(',')}]}`;
}

const pairOf = ({ key, tokens }: PathStep): readonly [string, number] => [key, tokens];

const name = z.string().max(MAX_NAME);
const count = z.int().min(0);
const steps = z
  .array(z.tuple([name, count]).transform(([key, tokens]): PathStep => ({ key, tokens })))
  .max(MAX_DOCUMENTS);
const ranks = z.array(count).max(MAX_DOCUMENTS);
const preamble = z
  .tuple([name, count, steps])
  .refine(([, tokens, path]) => path.reduce((sum, step) => sum + step.tokens, 0) <= tokens)
  .transform(([key, tokens, path]): Preamble => ({ key, tokens, ...(path.length > 0 && { steps: path }) }));
const order = z
  .tuple([name, name, name, preamble.nullable(), steps, ranks.nullable()])
  .refine(([, , , , documents, order]) => order === null || isPermutation(order, documents.length))
  .transform(([engine, tenant, model, before, documents, order]) => ({
    engine,
    tenant,
    model,
    served: { documents: documents.map(documentOf), preamble: before ?? undefined, ...(order && { order }) },
  }));

/** What one gateway sent: orders, with engines by their identities, and what keys did there, by their names. */
const note = z.object({
  version: z.literal(VERSION),
  used: z
    .array(
      z
        .tuple([name, count, count, count])
        .transform(([key, requests, tokens, underWay]) => [key, { requests, tokens, underWay }] as const),
    )
    .max(MAX_KEYS),
  orders: z.array(order).max(MAX_UNPUBLISHED),
});

function isPermutation(order: readonly number[], length: number): boolean {
  return order.length === length && new Set(order.filter((rank) => rank < length)).size === length;
}

/** A document of which only its place in the knowledge tree is known. */
function documentOf({ key, tokens }: PathStep): Document {
  return { id: '', label: '', title: undefined, content: '', metadata: undefined, key, tokens };
}
