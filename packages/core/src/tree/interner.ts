import { Fingerprint } from '../fingerprint.js';
import { PairTable } from './pair-table.js';

/**
 * Estimated bytes that one interned key takes beside its characters and the table: the string's header, its links, two
 * numbers.
 */
const BYTES_PER_KEY = 48;

const SMALLEST_CAPACITY = 256;

/**
 * Gives every key a small positive integer, so that the tree compares and hashes integers. A number is held by the
 * nodes that use it and is given to another key once nobody holds it: memory follows the tree, not the history of keys.
 *
 * Keys are distinguished by the two lanes of their fingerprint (unfolded: the table mixes them), as texts are by their
 * key. A look-up then costs one cache line, where a `Map` of strings costs about five. A chance collision (1 in 10¹⁹ a
 * pair) would make a prediction wrong and nothing else.
 */
export class KeyInterner {
  readonly #hasher = new Fingerprint();
  #table = new PairTable(SMALLEST_CAPACITY);
  #capacity = SMALLEST_CAPACITY;
  /** By number; number 0 is never given. */
  readonly #keys: string[] = [''];
  readonly #holders: number[] = [0];
  readonly #free: number[] = [];
  #size = 0;
  #keyBytes = 0;

  /** Keys in use. */
  get size(): number {
    return this.#size;
  }

  /** All numbers are below this. */
  get limit(): number {
    return this.#keys.length;
  }

  /** Bytes of the table and, estimated, of the keys in use. */
  get bytes(): number {
    return this.#table.bytes + this.#keyBytes;
  }

  /** Bytes that holding this key would add: 0 if it is in use. O(length of the key). */
  costOf(key: string): number {
    if (this.numberOf(key) >= 0) return 0;
    const growth = this.#size === this.#capacity ? PairTable.bytesFor(2 * this.#capacity) - this.#table.bytes : 0;
    return bytesOf(key) + growth;
  }

  /** The number of a key in use, or -1. O(length of the key), no allocation. */
  numberOf(key: string): number {
    const hasher = this.#hasher.reset().add(key);
    const number = this.#table.get(hasher.low, hasher.high);
    return number === 0 ? -1 : number;
  }

  /** The same for a key whose lanes are known (`KeyLanes`). O(1). */
  numberOfLanes(low: number, high: number): number {
    const number = this.#table.get(low, high);
    return number === 0 ? -1 : number;
  }

  /** The key of a number in use. O(1). */
  keyOf(number: number): string {
    return this.#keys[number]!;
  }

  /** Holds a key once more and returns its number. O(length of the key), amortised over growth. */
  hold(key: string): number {
    const known = this.numberOf(key);
    if (known >= 0) {
      this.#holders[known]! += 1;
      return known;
    }
    if (this.#size === this.#capacity) {
      this.#capacity *= 2;
      this.#table.grow(this.#capacity);
    }
    const number = this.#free.pop() ?? this.#keys.length;
    this.#keys[number] = key;
    this.#holders[number] = 1;
    this.#size++;
    this.#keyBytes += bytesOf(key);
    this.#table.add(this.#hasher.low, this.#hasher.high, number);
    return number;
  }

  /** Gives one hold back; the last one frees the number for another key. O(1), or O(length of the key) for the last. */
  release(number: number): void {
    this.#holders[number]! -= 1;
    if (this.#holders[number] !== 0) return;
    const key = this.#keys[number]!;
    const hasher = this.#hasher.reset().add(key);
    this.#table.remove(hasher.low, hasher.high);
    this.#keys[number] = '';
    this.#size--;
    this.#keyBytes -= bytesOf(key);
    this.#free.push(number);
  }
}

/**
 * The lanes by which interners tell keys apart, of the documents that were asked about last. Several trees are searched
 * for the same documents, one for each engine: hashing their keys for each tree took longer than the searches.
 */
export class KeyLanes {
  readonly #hasher = new Fingerprint();
  /** The keys alone: documents may be a large prompt's, and nobody may ask about others for long. */
  readonly #keys: string[] = [];
  #lanes = new Int32Array(64);

  /** Two integers for each document, in their order; valid until the next call. O(keys), O(documents) for the same. */
  of(documents: readonly { readonly key: string }[]): Int32Array {
    if (this.#hasKeysOf(documents)) return this.#lanes;
    if (this.#lanes.length < 2 * documents.length) this.#lanes = new Int32Array(4 * documents.length);
    this.#keys.length = documents.length;
    for (let place = 0; place < documents.length; place++) {
      const { key } = documents[place]!;
      const { low, high } = this.#hasher.reset().add(key);
      this.#keys[place] = key;
      this.#lanes[2 * place] = low;
      this.#lanes[2 * place + 1] = high;
    }
    return this.#lanes;
  }

  #hasKeysOf(documents: readonly { readonly key: string }[]): boolean {
    const keys = this.#keys;
    if (keys.length !== documents.length) return false;
    for (let place = 0; place < keys.length; place++) if (keys[place] !== documents[place]!.key) return false;
    return true;
  }
}

function bytesOf(key: string): number {
  return BYTES_PER_KEY + 2 * key.length;
}
