import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import { KeyInterner } from '../tree/interner.js';
import type { RecentRequestsView } from './view.js';

/** Ranks whose joint survival is learned; a document ranked lower takes no part in it. */
export const SURVIVAL_RANKS = 8;

/** What an older observation still counts after one more request. */
const FADE = 0.995;

/**
 * Learns which retrieval ranks of a request come back together: how many of the requests that follow one (within the
 * horizon of whoever calls `learn`) keep exactly this set of its ranks. Lately observed requests count more.
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
    for (let ranks = 0; ranks < seen.length; ranks++) seen[ranks]! *= FADE;
    this.#pairs *= FADE;
    this.#requests = this.#requests * FADE + 1;
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
const WINDOW = 100;

/** Requests back to which a new request is compared when learning what survives. */
const HORIZON = 20;

/** Documents remembered of a request, the highest ranked ones; also the width of an overlap's bit mask. */
const REMEMBERED_DOCUMENTS = 30;

const SURVIVAL_MASK = 2 ** SURVIVAL_RANKS - 1;

/** What the window keeps of a request. */
interface RecentRequest {
  /** In prompt order. */
  readonly documents: readonly Document[];
  readonly preamble: Preamble | undefined;
  /** `order[p]` is the retrieval rank of `documents[p]`; prompt order is taken for retrieval order without it. */
  readonly order?: readonly number[];
}

/**
 * The last 100 requests as sets of documents, and the rank survival learned from them: what look-ahead knows of the
 * future. Bounded by construction: one flat ring of 100 × 30 document numbers, one table of rank sets.
 */
export class RecentRequests implements RecentRequestsView {
  readonly horizonShare = HORIZON / WINDOW;
  readonly #survival = new RankSurvival();
  #interner = new KeyInterner();
  /** By slot and retrieval rank: the document's number, 0 for none. */
  readonly #numbers = new Int32Array(WINDOW * REMEMBERED_DOCUMENTS);
  readonly #counts = new Int32Array(WINDOW);
  /** By slot: the number of the preamble's key, 0 for none. */
  readonly #preambles = new Int32Array(WINDOW);
  /** By document number: a bit mask while a request is compared, else 0. */
  #bitOf = new Int32Array(256);
  /** Scratch: the numbers marked in `#bitOf`. */
  readonly #marked = new Int32Array(REMEMBERED_DOCUMENTS);
  #requests = 0;

  /** Learns from one request, then remembers it. O(20 × k + 256). */
  record(request: RecentRequest): void {
    const slot = this.#requests % WINDOW;
    this.#survival.beginRequest();
    this.#forget(slot);
    const count = this.#remember(request, slot);
    this.#learn(slot, count);
    this.#requests++;
  }

  /** Bytes held, estimated. */
  get bytes(): number {
    return this.#numbers.byteLength + this.#counts.byteLength + this.#preambles.byteLength + this.#interner.bytes;
  }

  survival(ranks: number): number {
    return this.#survival.expected(ranks);
  }

  get recurrence(): number {
    return this.#survival.recurrence;
  }

  overlaps(documents: readonly Document[], preamble: Preamble | undefined, masks: Int32Array): number {
    const preambleNumber = preamble === undefined ? 0 : this.#interner.numberOf(preamble.key);
    if (preambleNumber < 0) return 0;
    const known = Math.min(documents.length, REMEMBERED_DOCUMENTS);
    this.#makeRoom();
    const bitOf = this.#bitOf;
    const marked = this.#marked;
    for (let rank = 0; rank < known; rank++) {
      const number = this.#interner.numberOf(documents[rank]!.key);
      marked[rank] = Math.max(0, number);
      if (number > 0) bitOf[number] = 1 << rank;
    }
    bitOf[0] = 0;
    let found = 0;
    const slots = Math.min(this.#requests, WINDOW);
    for (let slot = 0; slot < slots; slot++) {
      if (this.#preambles[slot] !== preambleNumber) continue;
      let mask = 0;
      const end = slot * REMEMBERED_DOCUMENTS + this.#counts[slot]!;
      for (let at = slot * REMEMBERED_DOCUMENTS; at < end; at++) mask |= bitOf[this.#numbers[at]!]!;
      if (mask !== 0 && found < masks.length) masks[found++] = mask;
    }
    for (let rank = 0; rank < known; rank++) bitOf[marked[rank]!] = 0;
    return found;
  }

  /** Forgets everything. */
  clear(): void {
    this.#survival.clear();
    this.#interner = new KeyInterner();
    this.#counts.fill(0);
    this.#numbers.fill(0);
    this.#preambles.fill(0);
    this.#requests = 0;
  }

  #forget(slot: number): void {
    const first = slot * REMEMBERED_DOCUMENTS;
    for (let at = first; at < first + this.#counts[slot]!; at++) {
      if (this.#numbers[at] !== 0) this.#interner.release(this.#numbers[at]!);
      this.#numbers[at] = 0;
    }
    this.#counts[slot] = 0;
    if (this.#preambles[slot] !== 0) this.#interner.release(this.#preambles[slot]!);
    this.#preambles[slot] = 0;
  }

  #remember(request: RecentRequest, slot: number): number {
    const { documents, preamble, order } = request;
    const count = Math.min(documents.length, REMEMBERED_DOCUMENTS);
    for (let place = 0; place < documents.length; place++) {
      const rank = order?.[place] ?? place;
      if (rank >= count) continue;
      this.#numbers[slot * REMEMBERED_DOCUMENTS + rank] = this.#interner.hold(documents[place]!.key);
    }
    this.#counts[slot] = count;
    if (preamble !== undefined) this.#preambles[slot] = this.#interner.hold(preamble.key);
    return count;
  }

  /** For each of the last requests behind the same preamble: which of its ranks the new one in `slot` kept. */
  #learn(slot: number, count: number): void {
    this.#makeRoom();
    const bitOf = this.#bitOf;
    const numbers = this.#numbers;
    const first = slot * REMEMBERED_DOCUMENTS;
    for (let at = first; at < first + count; at++) bitOf[numbers[at]!] = 1;
    bitOf[0] = 0;
    for (let back = 1; back <= Math.min(HORIZON, this.#requests); back++) {
      const earlier = (this.#requests - back) % WINDOW;
      if (this.#preambles[earlier] !== this.#preambles[slot]) continue;
      let ranks = 0;
      for (let rank = 0; rank < this.#counts[earlier]!; rank++) {
        ranks |= bitOf[numbers[earlier * REMEMBERED_DOCUMENTS + rank]!]! << rank;
      }
      ranks &= SURVIVAL_MASK;
      if (ranks !== 0) this.#survival.learn(ranks);
    }
    for (let at = first; at < first + count; at++) bitOf[numbers[at]!] = 0;
  }

  #makeRoom(): void {
    if (this.#bitOf.length < this.#interner.limit) this.#bitOf = new Int32Array(2 * this.#interner.limit);
  }
}
