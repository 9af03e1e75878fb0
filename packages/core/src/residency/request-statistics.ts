import type { Document } from '../document.js';
import { type RecencyLinks, RecencyList } from '../intrusive-collections.js';
import type { Preamble } from '../preamble.js';
import type { HotnessView, RecentRequestsView } from './view.js';

export interface DocumentStatisticsOptions {
  /** Requests in the sliding window. Default 100. */
  readonly window?: number;
  /** Documents remembered; the least recently used goes first. Default 65,536. */
  readonly maxDocuments?: number;
}

/** Estimated bytes of a document: a key, a map slot, an object. */
const DOCUMENT_BYTES = 256;
/** Bytes of a request in the ring, and of each of its documents. */
const REQUEST_BYTES = 48;
const PLACE_BYTES = 8;

interface Statistic extends RecencyLinks<Statistic> {
  readonly key: string;
  frequency: number;
  total: number;
  lastSeen: number;
}

/**
 * How often each document was used in the window, how often since it is remembered, and when last (the CA-Table of the
 * CP-Tree paper). Bounded in requests and documents.
 */
export class DocumentStatistics implements HotnessView {
  readonly #window: number;
  readonly #maxDocuments: number;
  readonly #statistics = new Map<string, Statistic>();
  readonly #byAccess = new RecencyList<Statistic>();
  /** Ring of the requests in the window, each with its documents. */
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

  /** Counts one request; the oldest in the window leaves it. O(k). */
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

/** Ranks of a request whose survival is learned. */
export const SURVIVAL_RANKS = 8;

/** Factor by which older observations lose weight at each request. */
const DECAY_PER_REQUEST = 0.995;

/**
 * Learns which retrieval ranks of a request recur together: how many of the following requests keep exactly this set of
 * ranks. Recent observations weigh more. One table of 256 counts.
 */
export class RankSurvival {
  readonly #seen = new Float64Array(1 << SURVIVAL_RANKS);
  #requests = 0;
  #pairs = 0;

  /** A new request: older observations lose weight. O(256). */
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

  /** Mean number of following requests that keep exactly `ranks`; 0 before the first observation. O(1). */
  expected(ranks: number): number {
    return this.#requests === 0 ? 0 : this.#seen[ranks]! / this.#requests;
  }

  /** Mean number of following requests that keep any of the first ranks. O(1). */
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

/** Earlier requests that a new request is compared with. */
const HORIZON_REQUESTS = 20;

/** Documents remembered of a request, those ranked highest. Also the width of a bit mask. */
const MAX_DOCUMENTS_PER_REQUEST = 30;

const SURVIVAL_MASK = 2 ** SURVIVAL_RANKS - 1;

/** Estimated bytes of a key beside its characters. */
const BYTES_PER_KEY = 128;
/** Estimated bytes of a request, and of each of its documents. */
const BYTES_PER_REQUEST = 96;
const BYTES_PER_DOCUMENT = 8;

/** The part of a served request that is remembered. */
interface RecentRequest {
  /** In prompt order. */
  readonly documents: readonly Document[];
  readonly preamble: Preamble | undefined;
  /** `order[p]` is the retrieval rank of `documents[p]`. Default: prompt order is retrieval order. */
  readonly order?: readonly number[];
}

/** A document key in remembered requests. */
interface RememberedKey {
  readonly key: string;
  /** Remembered requests that have it. */
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
 * The last 100 requests as sets of documents, and the rank survival learned from them. Bounded: 100 requests of 30
 * documents, and one table.
 */
export class RecentRequests implements RecentRequestsView {
  readonly horizonShare = HORIZON_REQUESTS / MAX_REQUESTS;
  readonly #survival = new RankSurvival();
  readonly #keys = new Map<string, RememberedKey>();
  /** A ring. */
  readonly #remembered: RememberedRequest[] = [];
  #requests = 0;
  #bytes = 0;

  /** Learns from a request, then remembers it. O(20 × k + 256). */
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

  /** Learns which ranks of each recent request with the same preamble the new one kept. */
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
