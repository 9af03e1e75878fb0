import type { Document } from '../document.js';

/** Waiting requests that are looked at, the first ones. */
export const MAX_WAITING = 64;

/** Documents of one that are looked at, the highest ranked ones. */
const MAX_DOCUMENTS = 64;

/** Documents of a context; see `CHAIN_MAX_DOCUMENTS`. */
const MAX_RANKS = 32;

/**
 * Which documents waiting requests share with a context of up to 30 documents, and with each other. All documents are
 * numbered, those of the context by rank, so that sets are compared by numbers and keys are looked up once.
 *
 * Flat arrays that are reused: one instance serves call after call and must not be re-entered.
 */
export class WaitingRequests {
  /** Waiting requests, the first 64. */
  count = 0;
  #ranks = 0;
  readonly #numberOf = new Map<string, number>();
  /** By request, `MAX_DOCUMENTS` places each: number and tokens of its documents. */
  readonly #numbers = new Int32Array(MAX_WAITING * MAX_DOCUMENTS);
  readonly #tokens = new Int32Array(MAX_WAITING * MAX_DOCUMENTS);
  readonly #ends = new Int32Array(MAX_WAITING);
  /** By number: tokens of the documents of one request while others are compared with it, else 0. */
  readonly #marked = new Int32Array(MAX_RANKS + MAX_WAITING * MAX_DOCUMENTS);

  /** Steps that `read` and `mostShared` of all requests take at most. O(waiting). */
  static cost(waiting: readonly (readonly Document[])[]): number {
    const count = Math.min(waiting.length, MAX_WAITING);
    let documents = 0;
    for (let request = 0; request < count; request++) documents += Math.min(waiting[request]!.length, MAX_DOCUMENTS);
    return documents * (count + 1);
  }

  /** Takes note of the requests that wait behind `documents`. O(documents of all). */
  read(documents: readonly Document[], waiting: readonly (readonly Document[])[]): void {
    const numberOf = this.#numberOf;
    numberOf.clear();
    this.#ranks = documents.length;
    for (let rank = 0; rank < documents.length; rank++) numberOf.set(documents[rank]!.key, rank);
    this.count = Math.min(waiting.length, MAX_WAITING);
    for (let request = 0; request < this.count; request++) {
      const wanted = waiting[request]!;
      let at = request * MAX_DOCUMENTS;
      for (let rank = 0; rank < wanted.length && rank < MAX_DOCUMENTS; rank++) {
        const { key, tokens } = wanted[rank]!;
        let number = numberOf.get(key);
        if (number === undefined) {
          number = numberOf.size;
          numberOf.set(key, number);
        }
        this.#numbers[at] = number;
        this.#tokens[at++] = tokens;
      }
      this.#ends[request] = at;
    }
  }

  /** The documents of the context that a request wants too, as a bit mask by rank. O(k). */
  sharedSet(request: number): number {
    let set = 0;
    for (let at = request * MAX_DOCUMENTS; at < this.#ends[request]!; at++) {
      const number = this.#numbers[at]!;
      if (number < this.#ranks) set |= 1 << number;
    }
    return set;
  }

  /** Tokens that a request shares with the other waiting one with which it shares most. O(waiting × k). */
  mostShared(request: number): number {
    const numbers = this.#numbers;
    const marked = this.#marked;
    const first = request * MAX_DOCUMENTS;
    const end = this.#ends[request]!;
    for (let at = first; at < end; at++) marked[numbers[at]!] = this.#tokens[at]!;
    let most = 0;
    for (let other = 0; other < this.count; other++) {
      if (other === request) continue;
      let shared = 0;
      for (let at = other * MAX_DOCUMENTS; at < this.#ends[other]!; at++) shared += marked[numbers[at]!]!;
      if (shared > most) most = shared;
    }
    for (let at = first; at < end; at++) marked[numbers[at]!] = 0;
    return most;
  }
}
