import { allSpans, type CachedPrompt } from './prefix-cache.js';

/**
 * The chained key of each full block of a prompt and its answer: equal for equal tokens behind equal blocks. The salt
 * goes in first, as in vLLM, where it reaches every block through the chain. Keys are hashes of 53 bits: among a
 * million different blocks, two share one with a probability of 1 in 18,000. O(blocks + characters of the spans' keys).
 */
export function blockKeys(prompt: CachedPrompt, blockSize: number): number[] {
  const keys: number[] = [];
  const chain = new BlockHash();
  chain.addText(prompt.salt ?? '');
  const text = new BlockHash();
  let room = blockSize;
  for (const { key, tokens } of allSpans(prompt)) {
    if (tokens === 0) continue;
    text.reset();
    text.addText(key);
    let offset = 0;
    while (offset < tokens) {
      const taken = Math.min(room, tokens - offset);
      chain.addPiece(text, offset, taken);
      offset += taken;
      room -= taken;
      if (room > 0) continue;
      keys.push(chain.value);
      room = blockSize;
    }
  }
  return keys;
}

/** MurmurHash3's mixing in two lanes of 32 bits with different constants. */
class BlockHash {
  #low = 0x9e3779b9;
  #high = 0x85ebca6b;

  /** All that was added, in 53 bits. */
  get value(): number {
    return (finish(this.#high) & 0x1fffff) * 2 ** 32 + finish(this.#low);
  }

  reset(): void {
    this.#low = 0x9e3779b9;
    this.#high = 0x85ebca6b;
  }

  addText(text: string): void {
    for (let place = 0; place < text.length; place++) this.#add(text.charCodeAt(place));
    this.#add(text.length);
  }

  /** So many tokens of a span from an offset on. */
  addPiece(span: BlockHash, offset: number, tokens: number): void {
    this.#add(span.#low);
    this.#add(span.#high);
    this.#add(offset);
    this.#add(tokens);
  }

  #add(word: number): void {
    this.#low = (Math.imul(rotate(this.#low ^ scramble(word, 0xcc9e2d51), 13), 5) + 0xe6546b64) | 0;
    this.#high = (Math.imul(rotate(this.#high ^ scramble(word, 0x239b961b), 17), 5) + 0x561ccd1b) | 0;
  }
}

function scramble(word: number, factor: number): number {
  return Math.imul(rotate(Math.imul(word, factor), 15), 0x1b873593);
}

function rotate(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits));
}

/** Spreads every bit of a lane over all of them. */
function finish(lane: number): number {
  let word = lane ^ (lane >>> 16);
  word = Math.imul(word, 0x85ebca6b);
  word ^= word >>> 13;
  word = Math.imul(word, 0xc2b2ae35);
  return (word ^ (word >>> 16)) >>> 0;
}
