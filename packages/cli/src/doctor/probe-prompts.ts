/** Common short words: one token each for most tokenizers, so that a prompt's tokens grow evenly with its words. */
const WORDS = (
  'the of and to in is that for it was on are as with his they at be this from have or by one had not but what all were when we ' +
  'there can an your which their said if do will each about how up out them then she many some so these would other into has ' +
  'more her two like him see time could no make than first been its who now people my made over did down only way find use may ' +
  'water long little very after words called just where most know'
).split(' ');

/**
 * A text of `count` words that begins with `nonce`; the same nonce gives the same text, another one shares nothing with
 * it.
 */
export function probeText(nonce: string, count: number): string {
  const words = [nonce];
  // A linear congruential generator: reproducible, and without the repeats that a plain cycle would have.
  let state = hash(nonce);
  while (words.length < count) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    words.push(WORDS[(state >>> 8) % WORDS.length]!);
  }
  return words.join(' ');
}

/** The first `shared` words of a probe text, then words that no other variant continues with. */
export function divergingText(nonce: string, count: number, shared: number): string {
  const words = probeText(nonce, count).split(' ').slice(0, shared);
  const tail = probeText(`${nonce}x${shared}`, Math.max(2, count - shared));
  return `${words.join(' ')} ${tail}`;
}

function hash(text: string): number {
  let value = 2_166_136_261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16_777_619);
  return value >>> 0;
}

/**
 * The engine's cache granularity in tokens, estimated from the cached tokens of prompts that share prefixes of many
 * lengths: an engine that caches blocks of B tokens reports multiples of B. `undefined` when fewer than three different
 * counts came, which says nothing. O(n log max).
 */
export function estimateBlockSize(cachedTokens: readonly number[]): number | undefined {
  const counts = new Set(cachedTokens.filter((count) => count > 0));
  if (counts.size < 3) return undefined;
  return [...counts].reduce(greatestCommonDivisor);
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
