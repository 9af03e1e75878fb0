/**
 * A fast, non-cryptographic 64-bit hash of a list of texts, in two 32-bit lanes.
 *
 * The length of each part is hashed too, so `'ab', 'c'` and `'a', 'bc'` differ. Collisions can be constructed: compare
 * the texts where a false match would do harm. `reset` makes an instance ready for the next list.
 */
export class Fingerprint {
  low = 0;
  high = 0;

  constructor() {
    this.reset();
  }

  reset(): this {
    this.low = 0x2545f491;
    this.high = 0x6c8e9cf5;
    return this;
  }

  /** Hashes one part. O(length), without allocation. */
  add(part: string): this {
    this.#addLength(part.length);
    const even = part.length & ~1;
    for (let i = 0; i < even; i += 2) this.#addWord(part.charCodeAt(i) | (part.charCodeAt(i + 1) << 16));
    if (even !== part.length) this.#addWord(part.charCodeAt(even));
    return this;
  }

  /** Hashes the bytes from `start` up to, not including, `end`. O(bytes), without allocation. */
  addBytes(bytes: DataView, start: number, end: number): this {
    this.#addLength(end - start);
    let at = start;
    for (const words = end - 3; at < words; at += 4) this.#addWord(bytes.getInt32(at, true));
    for (; at < end; at++) this.#addWord(bytes.getUint8(at));
    return this;
  }

  /** Mixes the lanes, so that every bit of `low` and `high` depends on every character. */
  end(): this {
    this.low = avalanche(this.low ^ (this.high >>> 16));
    this.high = avalanche(this.high ^ this.low);
    return this;
  }

  /** Both lanes as 16 hex digits. */
  digits(): string {
    return hex(this.low) + hex(this.high);
  }

  #addLength(length: number): void {
    this.low = Math.imul(this.low ^ length, 0x9e3779b1);
    this.high = Math.imul(this.high + length, 0x85ebca6b);
  }

  #addWord(word: number): void {
    const low = Math.imul(this.low ^ word, 0x9e3779b1);
    this.low = (low << 13) | (low >>> 19);
    this.high = Math.imul(((this.high << 17) | (this.high >>> 15)) + word, 0x85ebca6b);
  }
}

/** The fingerprint of a list of texts as 16 hex digits. O(length). */
export function fingerprint(parts: readonly string[]): string {
  const hasher = new Fingerprint();
  for (const part of parts) hasher.add(part);
  return hasher.end().digits();
}

function hex(word: number): string {
  return (word >>> 0).toString(16).padStart(8, '0');
}

function avalanche(word: number): number {
  let mixed = Math.imul(word ^ (word >>> 16), 0x7feb352d);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x846ca68b);
  return mixed ^ (mixed >>> 16);
}
