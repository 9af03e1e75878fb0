import { type RecencyLinks, RecencyList } from '../recency-list.js';
import type { HotnessView } from './view.js';

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
