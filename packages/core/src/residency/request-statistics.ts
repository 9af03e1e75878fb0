import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import { type RecencyLinks, RecencyList } from '../recency-list.js';
import type { HotnessView, RecentRequestsView } from './view.js';

export interface DocumentStatisticsOptions {
  /**
   * Requests in the sliding window. Default 100 (the gain is insensitive to it: measured on the RAGCache++ workloads).
   */
  readonly window?: number;
  /** Documents remembered; the one seen longest ago is forgotten first. Default 65,536. */
  readonly maxDocuments?: number;
}

/** Bytes of a document: a key of usual length, a map slot, an object. */
const DOCUMENT_BYTES = 256;
/** Bytes of a request in the ring, and of each of its documents there. */
const REQUEST_BYTES = 48;
const PLACE_BYTES = 8;

interface Statistic extends RecencyLinks<Statistic> {
  readonly key: string;
  frequency: number;
  total: number;
  lastSeen: number;
}

/**
 * Access statistics of documents: how often in the window, how often ever, when last (the CA-Table of the CP-Tree
 * paper). Bounded in requests and documents.
 */
export class DocumentStatistics implements HotnessView {
  readonly #window: number;
  readonly #maxDocuments: number;
  readonly #statistics = new Map<string, Statistic>();
  readonly #byAccess = new RecencyList<Statistic>();
  /** The documents of the requests in the window, as a ring of requests. */
  readonly #ring: (readonly Statistic[])[] = [];
  #requests = 0;
  /** Documents of all requests in the ring. */
  #places = 0;

  constructor(options: DocumentStatisticsOptions = {}) {
    this.#window = Math.max(1, options.window ?? 100);
    this.#maxDocuments = Math.max(1, options.maxDocuments ?? 65_536);
  }

  /** Requests recorded so far. */
  get requests(): number {
    return this.#requests;
  }

  /** Documents remembered. */
  get documents(): number {
    return this.#statistics.size;
  }

  /** Bytes held, estimated. */
  get bytes(): number {
    return DOCUMENT_BYTES * this.#statistics.size + REQUEST_BYTES * this.#ring.length + PLACE_BYTES * this.#places;
  }

  frequency(key: string): number {
    return this.#statistics.get(key)?.frequency ?? 0;
  }

  total(key: string): number {
    return this.#statistics.get(key)?.total ?? 0;
  }

  lastSeen(key: string): number {
    return this.#statistics.get(key)?.lastSeen ?? 0;
  }

  /** Enters one request's documents, and lets the request leave that falls out of the window. O(k). */
  record(keys: readonly string[]): void {
    const slot = this.#requests % this.#window;
    const left = this.#ring[slot] ?? [];
    for (const statistic of left) statistic.frequency--;
    this.#places += keys.length - left.length;
    this.#requests++;
    this.#ring[slot] = keys.map((key) => this.#count(key));
    while (this.#statistics.size > this.#maxDocuments) {
      const oldest = this.#byAccess.oldest!;
      this.#byAccess.remove(oldest);
      this.#statistics.delete(oldest.key);
    }
  }

  /** Forgets everything. */
  clear(): void {
    this.#statistics.clear();
    this.#byAccess.clear();
    this.#ring.length = 0;
    this.#places = 0;
    this.#requests = 0;
  }

  #count(key: string): Statistic {
    let statistic = this.#statistics.get(key);
    if (statistic === undefined) {
      statistic = { key, frequency: 0, total: 0, lastSeen: 0, older: undefined, newer: undefined };
      this.#statistics.set(key, statistic);
      this.#byAccess.add(statistic);
    } else this.#byAccess.use(statistic);
    statistic.frequency++;
    statistic.total++;
    statistic.lastSeen = this.#requests;
    return statistic;
  }
}

/** Ranks whose joint survival is learned; a document ranked lower takes no part in it. */
export const SURVIVAL_RANKS = 8;

/** What an older observation still counts after one more request. */
const DECAY_PER_REQUEST = 0.995;

/**
 * Learns which retrieval ranks of a request come back together: how many of the requests that follow one (within the
 * horizon of the caller of `learn`) keep exactly this set of its ranks. Lately observed requests count more.
 *
 * One flat table of 256 counts, whatever is observed.
 */
export class RankSurvival {
  readonly #seen = new Float64Array(1 << SURVIVAL_RANKS);
  #requests = 0;
  #pairs = 0;

  /** One more request is compared with those before it; older observations count a little less from now on. O(256). */
  beginRequest(): void {
    const seen = this.#seen;
    for (let ranks = 0; ranks < seen.length; ranks++) seen[ranks]! *= DECAY_PER_REQUEST;
    this.#pairs *= DECAY_PER_REQUEST;
    this.#requests = this.#requests * DECAY_PER_REQUEST + 1;
  }

  /** The request kept exactly `ranks` (a bit mask, not 0) of an earlier one. O(1). */
  learn(ranks: number): void {
    this.#seen[ranks]! += 1;
    this.#pairs++;
  }

  /** Requests within the horizon that keep exactly `ranks` of one, on average; 0 before anything was learned. O(1). */
  expected(ranks: number): number {
    return this.#requests === 0 ? 0 : this.#seen[ranks]! / this.#requests;
  }

  /** Requests within the horizon that keep any of the first ranks of one, on average. O(1). */
  get recurrence(): number {
    return this.#requests === 0 ? 0 : this.#pairs / this.#requests;
  }

  /** Forgets everything. */
  clear(): void {
    this.#seen.fill(0);
    this.#requests = 0;
    this.#pairs = 0;
  }
}

/** Requests remembered. */
const MAX_REQUESTS = 100;

/** Requests back to which a new request is compared when learning what survives. */
const HORIZON_REQUESTS = 20;

/** Documents remembered of a request, the highest ranked ones; also the width of an overlap's bit mask. */
const MAX_DOCUMENTS_PER_REQUEST = 30;

const SURVIVAL_MASK = 2 ** SURVIVAL_RANKS - 1;

/** Estimated bytes of a key beside its characters: an object, a string header and a map entry. */
const BYTES_PER_KEY = 128;
/** Estimated bytes of a request, and of each of its documents. */
const BYTES_PER_REQUEST = 96;
const BYTES_PER_DOCUMENT = 8;

/** The part of a served request that is remembered. */
interface RecentRequest {
  /** In prompt order. */
  readonly documents: readonly Document[];
  readonly preamble: Preamble | undefined;
  /** `order[p]` is the retrieval rank of `documents[p]`; prompt order is taken for retrieval order without it. */
  readonly order?: readonly number[];
}

/** A document key of remembered requests. */
interface RememberedKey {
  readonly key: string;
  /** Documents of remembered requests that have it. */
  holders: number;
  /** A bit mask while requests are compared, else 0. */
  mark: number;
}

interface RememberedRequest {
  /** By retrieval rank. */
  readonly documents: readonly (RememberedKey | undefined)[];
  readonly preamble: string | undefined;
}

/**
 * The last 100 requests as sets of documents, and the rank survival learned from them: what look-ahead knows of coming
 * requests. Bounded: 100 requests of 30 documents, one table of rank sets.
 */
export class RecentRequests implements RecentRequestsView {
  readonly horizonShare = HORIZON_REQUESTS / MAX_REQUESTS;
  readonly #survival = new RankSurvival();
  readonly #keys = new Map<string, RememberedKey>();
  /** A ring. */
  readonly #remembered: RememberedRequest[] = [];
  #requests = 0;
  #bytes = 0;

  /** Learns from one request, then remembers it. O(20 × k + 256). */
  record(request: RecentRequest): void {
    const slot = this.#requests % MAX_REQUESTS;
    this.#survival.beginRequest();
    this.#forget(slot);
    const remembered = this.#remember(request);
    this.#remembered[slot] = remembered;
    this.#learn(remembered);
    this.#requests++;
  }

  /** Bytes held, estimated. */
  get bytes(): number {
    return this.#bytes;
  }

  survival(ranks: number): number {
    return this.#survival.expected(ranks);
  }

  get recurrence(): number {
    return this.#survival.recurrence;
  }

  overlaps(documents: readonly Document[], preamble: Preamble | undefined, masks: Int32Array): number {
    const marked = documents.slice(0, MAX_DOCUMENTS_PER_REQUEST).map(({ key }) => this.#keys.get(key));
    for (const [rank, known] of marked.entries()) if (known !== undefined) known.mark = 1 << rank;
    let found = 0;
    for (const request of this.#remembered) {
      if (request.preamble !== preamble?.key) continue;
      let mask = 0;
      for (const document of request.documents) mask |= document?.mark ?? 0;
      if (mask !== 0 && found < masks.length) masks[found++] = mask;
    }
    for (const known of marked) if (known !== undefined) known.mark = 0;
    return found;
  }

  /** Forgets everything. */
  clear(): void {
    this.#survival.clear();
    this.#keys.clear();
    this.#remembered.length = 0;
    this.#requests = 0;
    this.#bytes = 0;
  }

  #forget(slot: number): void {
    const request = this.#remembered[slot];
    if (request === undefined) return;
    this.#bytes -= bytesOf(request);
    for (const known of request.documents) {
      if (known === undefined || --known.holders > 0) continue;
      this.#keys.delete(known.key);
      this.#bytes -= BYTES_PER_KEY + 2 * known.key.length;
    }
  }

  #remember({ documents, preamble, order }: RecentRequest): RememberedRequest {
    const byRank: (RememberedKey | undefined)[] = new Array(Math.min(documents.length, MAX_DOCUMENTS_PER_REQUEST));
    byRank.fill(undefined);
    for (const [place, { key }] of documents.entries()) {
      const rank = order?.[place] ?? place;
      if (rank < byRank.length) byRank[rank] = this.#hold(key);
    }
    const request = { documents: byRank, preamble: preamble?.key };
    this.#bytes += bytesOf(request);
    return request;
  }

  #hold(key: string): RememberedKey {
    let known = this.#keys.get(key);
    if (known === undefined) {
      known = { key, holders: 0, mark: 0 };
      this.#keys.set(key, known);
      this.#bytes += BYTES_PER_KEY + 2 * key.length;
    }
    known.holders++;
    return known;
  }

  /** For each of the last requests behind the same preamble: which of its ranks the new one kept. */
  #learn({ documents, preamble }: RememberedRequest): void {
    for (const known of documents) if (known !== undefined) known.mark = 1;
    for (let back = 1; back <= Math.min(HORIZON_REQUESTS, this.#requests); back++) {
      const earlier = this.#remembered[(this.#requests - back) % MAX_REQUESTS]!;
      if (earlier.preamble !== preamble) continue;
      let ranks = 0;
      for (const [rank, known] of earlier.documents.entries()) ranks |= (known?.mark ?? 0) << rank;
      ranks &= SURVIVAL_MASK;
      if (ranks !== 0) this.#survival.learn(ranks);
    }
    for (const known of documents) if (known !== undefined) known.mark = 0;
  }
}

function bytesOf({ documents, preamble = '' }: RememberedRequest): number {
  return BYTES_PER_REQUEST + BYTES_PER_DOCUMENT * documents.length + 2 * preamble.length;
}
