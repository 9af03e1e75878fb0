import type { GgufHeader } from '../gguf/reader.js';
import { LEFTOVER_NS, WEIGHT_NS } from './tile-padding.js';

/** Numbers of a head that llama.cpp's attention takes at once, with AVX-512 and with AVX2. */
const WIDE = 64;
const NARROW = 32;

/** The cells at which attention and weights are weighed against each other: a short prompt. */
const CELLS = 1024;
/**
 * How many times more than its weights a token must lose at its attention: all else may be slower with narrow vectors.
 */
const CLEARLY = 8;
/** Within so many times of {@link CLEARLY} on either side the constants, which are of one machine, may be wrong. */
const UNSURE = 4;

/** What of a model the choice depends on. */
export interface HeadShape {
  readonly layers: number;
  readonly heads: number;
  /** Numbers of one head's key. */
  readonly headWidth: number;
  /** Weights of the model. */
  readonly weights: number;
}

/**
 * Whether a model is faster with AVX2 where the processor has AVX-512. Row by row, llama.cpp's attention computes what
 * is left behind the last whole vector number by number (`ggml_vec_dot_f16`, `ggml_vec_mad_f16`): with heads of 32
 * numbers that is all of it. On the demo model, a step of 8 streams took 5.9 ms with AVX-512 and 1.5 ms with AVX2, and
 * prefill the same. Models with more weights per head gain too little there to lose elsewhere.
 */
export function prefersNarrowVectors(shape: HeadShape): boolean {
  return lostAtAttention(shape) > CLEARLY * shape.weights * WEIGHT_NS;
}

/** Whether {@link prefersNarrowVectors} is too close to say. */
export function isUnsure(shape: HeadShape): boolean {
  const [lost, clearly] = [lostAtAttention(shape), CLEARLY * shape.weights * WEIGHT_NS];
  return lost * UNSURE > clearly && lost < UNSURE * clearly;
}

/** Nanoseconds that a token's attention takes longer with wide vectors. */
function lostAtAttention({ layers, heads, headWidth }: HeadShape): number {
  const leftover = (headWidth % WIDE) - (headWidth % NARROW);
  return CELLS * layers * heads * leftover * LEFTOVER_NS;
}

/** What {@link prefersNarrowVectors} asks for, as the front of a model's file says it. */
export function headShape({ metadata, parameters }: GgufHeader): HeadShape {
  const architecture = String(metadata.get('general.architecture')?.value);
  // Some files say it by layer, in a list: those models are large.
  const read = (key: string): number => Number(metadata.get(`${architecture}.${key}`)?.value) || 0;
  const heads = read('attention.head_count');
  const headWidth = read('attention.key_length') || (heads > 0 ? Math.round(read('embedding_length') / heads) : 0);
  return { layers: read('block_count'), heads, headWidth, weights: parameters };
}
