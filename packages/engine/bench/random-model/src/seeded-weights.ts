const PIECE = 65_536;

export interface SeededWeightsRequest {
  /** 32-bit seed of the whole model. */
  readonly seed: number;
  /** The tensor; each draws from a stream of its own. */
  readonly name: string;
  readonly count: number;
  /** Standard deviation of the weights; their mean is 0. */
  readonly deviation: number;
}

/**
 * Evenly distributed pseudo-random weights in pieces of at most 65 536, the same on every machine (32-bit integer
 * arithmetic alone). The array of a piece is used again for the next one. Even, not normal: a sum over hundreds of
 * products comes out normal either way, and an even draw needs no logarithm.
 */
export function* seededWeights({ seed, name, count, deviation }: SeededWeightsRequest): Generator<Float32Array> {
  const next = uniformStream(hash(name, seed));
  // An even distribution over [-a, a] has the standard deviation a / √3.
  const reach = deviation * Math.sqrt(3);
  const piece = new Float32Array(Math.min(PIECE, count));
  for (let done = 0; done < count; done += piece.length) {
    const length = Math.min(piece.length, count - done);
    for (let index = 0; index < length; index++) piece[index] = (2 * next() - 1) * reach;
    yield piece.subarray(0, length);
  }
}

/** FNV-1a over the text, started from the seed. */
function hash(text: string, seed: number): number {
  let state = (0x811c9dc5 ^ seed) >>> 0;
  for (let index = 0; index < text.length; index++) state = Math.imul(state ^ text.charCodeAt(index), 0x01000193);
  return state >>> 0;
}

/** Numbers in (0, 1): Marsaglia's 32-bit xorshift, shifts 13, 17, 5 (period 2^32 - 1). */
function uniformStream(seed: number): () => number {
  // Zero is the one state that xorshift never leaves.
  let state = seed === 0 ? 1 : seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 4_294_967_296;
  };
}
