/**
 * A fast, non-cryptographic 64-bit fingerprint of a list of texts, as 16 hex digits.
 *
 * Two 32-bit lanes take two UTF-16 units a step and are folded into each other at the end. The length of every part is
 * mixed in, so `['ab', 'c']` and `['a', 'bc']` differ. Lone surrogates are units like any other. It detects changed and
 * repeated text; it does not withstand someone who looks for collisions, which is why equal fingerprints inside one
 * request are followed by a comparison of the texts.
 *
 * Cost: O(length), about 1 ns a character; allocates the result alone.
 */
export function fingerprint(parts: readonly string[]): string {
  let low = 0x2545f491;
  let high = 0x6c8e9cf5;
  for (const part of parts) {
    const length = part.length;
    low = Math.imul(low ^ length, 0x9e3779b1);
    high = Math.imul(high + length, 0x85ebca6b);
    const even = length & ~1;
    for (let i = 0; i < even; i += 2) {
      const word = part.charCodeAt(i) | (part.charCodeAt(i + 1) << 16);
      low = Math.imul(low ^ word, 0x9e3779b1);
      low = (low << 13) | (low >>> 19);
      high = Math.imul(((high << 17) | (high >>> 15)) + word, 0x85ebca6b);
    }
    if (even !== length) {
      const last = part.charCodeAt(even);
      low = Math.imul(low ^ last, 0x9e3779b1);
      low = (low << 13) | (low >>> 19);
      high = Math.imul(((high << 17) | (high >>> 15)) + last, 0x85ebca6b);
    }
  }
  low = avalanche(low ^ (high >>> 16));
  high = avalanche(high ^ low);
  return hex(low) + hex(high);
}

/** Spreads every bit over the word, so that the digits can be cut short. */
function avalanche(word: number): number {
  let mixed = word;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x7feb352d);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x846ca68b);
  return mixed ^ (mixed >>> 16);
}

function hex(word: number): string {
  return (word >>> 0).toString(16).padStart(8, '0');
}
