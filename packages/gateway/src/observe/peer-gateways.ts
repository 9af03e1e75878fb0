import { hostname } from 'node:os';
import { type Document, observe } from '@warmpath/core';
import { type ConversationStore, fingerprint, type PathStep, type ServedRequest } from '@warmpath/core/internal';
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
    for (const note of heard) {
      try {
        this.#hear(readNote(note.text), note);
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

  #hear({ orders, used }: PeerReport, { from, ageMs }: { readonly from: string; readonly ageMs: number }): void {
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

/** What one gateway sent: orders, with engines by their identities, and what keys did there, by their names. */
interface PeerReport {
  readonly orders: readonly {
    readonly engine: string;
    readonly tenant: string;
    readonly model: string;
    readonly served: ServedRequest;
  }[];
  readonly used: readonly (readonly [string, KeyUsage])[];
}

/** Empty where there is nothing to tell. */
function noteOf(orders: readonly string[], used: ReadonlyMap<string, KeyUsage>): string {
  if (orders.length === 0 && used.size === 0) return '';
  const keys = [...used].map(([name, { requests, tokens, underWay }]) => [name, requests, tokens, underWay]);
  return `{"version":${VERSION},"used":${JSON.stringify(keys)},"orders":[${orders.join(',')}]}`;
}

const pairOf = ({ key, tokens }: PathStep): readonly [string, number] => [key, tokens];

/** Throws for anything that `noteOf` does not write: the server's word is not trusted. */
function readNote(text: string): PeerReport {
  const { version, used, orders } = JSON.parse(text) as Readonly<Record<string, unknown>>;
  if (version !== VERSION) throw new TypeError('another version');
  return {
    used: list(used, MAX_KEYS).map((entry) => {
      const [name, requests, tokens, underWay] = list(entry, 4);
      return [readName(name), { requests: count(requests), tokens: count(tokens), underWay: count(underWay) }];
    }),
    orders: list(orders, MAX_UNPUBLISHED).map((entry) => {
      const [engine, tenant, model, before, documents, order] = list(entry, 6);
      return {
        engine: readName(engine),
        tenant: readName(tenant),
        model: readName(model),
        served: servedOf(before, documents, order),
      };
    }),
  };
}

function servedOf(before: unknown, documents: unknown, order: unknown): ServedRequest {
  const placed = list(documents, MAX_DOCUMENTS).map((pair) => documentOf(stepOf(pair)));
  const ranks = order === null ? undefined : list(order, MAX_DOCUMENTS).map(count);
  const isPermutation =
    ranks === undefined || new Set(ranks.filter((rank) => rank < placed.length)).size === placed.length;
  if (!isPermutation || (ranks !== undefined && ranks.length !== placed.length)) throw new TypeError('no order');
  if (before === null) return { documents: placed, preamble: undefined, ...(ranks && { order: ranks }) };
  const [key, tokens, steps] = list(before, 3);
  const path = list(steps, MAX_DOCUMENTS).map(stepOf);
  const preamble = { key: readName(key), tokens: count(tokens), ...(path.length > 0 && { steps: path }) };
  if (path.reduce((sum, step) => sum + step.tokens, 0) > preamble.tokens) throw new TypeError('steps of more tokens');
  return { documents: placed, preamble, ...(ranks && { order: ranks }) };
}

/** A document of which only its place in the knowledge tree is known. */
function documentOf({ key, tokens }: PathStep): Document {
  return { id: '', label: '', title: undefined, content: '', metadata: undefined, key, tokens };
}

function stepOf(pair: unknown): PathStep {
  const [key, tokens] = list(pair, 2);
  return { key: readName(key), tokens: count(tokens) };
}

function list(value: unknown, most: number): readonly unknown[] {
  if (!Array.isArray(value) || value.length > most) throw new TypeError('no list');
  return value;
}

function readName(value: unknown): string {
  if (typeof value !== 'string' || value.length > MAX_NAME) throw new TypeError('no name');
  return value;
}

function count(value: unknown): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw new TypeError('no count');
  return value as number;
}
