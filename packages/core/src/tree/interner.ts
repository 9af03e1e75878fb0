/** Estimated bytes that one interned key takes beside its characters: the map's entry, the string's header, two numbers. */
const BYTES_PER_KEY = 96;

/**
 * Gives every key a small integer, so that the tree compares and hashes integers. A number is held by the nodes that
 * use it and is given to another key once nobody holds it: memory follows the tree, not the history of keys.
 */
export class KeyInterner {
  readonly #numbers = new Map<string, number>();
  readonly #keys: string[] = [];
  readonly #holders: number[] = [];
  readonly #free: number[] = [];
  #bytes = 0;

  /** Keys in use. */
  get size(): number {
    return this.#numbers.size;
  }

  /** All numbers are below this. */
  get limit(): number {
    return this.#keys.length;
  }

  /** Estimated bytes of the keys in use. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Estimated bytes that holding a new key would add. */
  static costOf(key: string): number {
    return BYTES_PER_KEY + 2 * key.length;
  }

  /** The number of a key in use, or -1. O(1). */
  numberOf(key: string): number {
    return this.#numbers.get(key) ?? -1;
  }

  /** The key of a number in use. O(1). */
  keyOf(number: number): string {
    return this.#keys[number]!;
  }

  /** Holds a key once more and returns its number. O(1). */
  hold(key: string): number {
    const known = this.#numbers.get(key);
    if (known !== undefined) {
      this.#holders[known]! += 1;
      return known;
    }
    const number = this.#free.pop() ?? this.#keys.length;
    this.#keys[number] = key;
    this.#holders[number] = 1;
    this.#numbers.set(key, number);
    this.#bytes += KeyInterner.costOf(key);
    return number;
  }

  /** Gives one hold back; the last one frees the number for another key. O(1). */
  release(number: number): void {
    this.#holders[number]! -= 1;
    if (this.#holders[number] !== 0) return;
    const key = this.#keys[number]!;
    this.#numbers.delete(key);
    this.#keys[number] = '';
    this.#bytes -= KeyInterner.costOf(key);
    this.#free.push(number);
  }
}
