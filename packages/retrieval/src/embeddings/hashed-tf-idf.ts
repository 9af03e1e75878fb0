import { crc32 } from 'node:zlib';
import { plainTerms } from '../lexical/analyse.js';
import type { Embedder } from './embedder.js';

/** What was learned from a corpus: how many of its texts have a term of each place. */
export interface TfIdfState {
  readonly texts: number;
  readonly textsWith: Uint32Array;
}

/** Places of a vector by default; fewer let more terms share one. */
const DIMENSION = 1024;

/**
 * Vectors without a model: term frequencies, weighed by how rare a term is in the corpus, each term in a place and with
 * a sign that follow from its hash. It finds shared words and no meaning, as BM25 does and a little worse; it is there
 * so that vector search runs where no embedding endpoint is.
 */
export class HashedTfIdf implements Embedder {
  readonly name: string;
  readonly dimension: number;
  readonly #weights: Float32Array;
  readonly #state: TfIdfState;

  constructor(state: TfIdfState) {
    this.dimension = state.textsWith.length;
    const { buffer, byteOffset, byteLength } = state.textsWith;
    const learned = crc32(new Uint8Array(buffer, byteOffset, byteLength), state.texts)
      .toString(16)
      .padStart(8, '0');
    this.name = `hashed-tf-idf-${this.dimension}-${learned}`;
    this.#state = state;
    this.#weights = Float32Array.from(state.textsWith, (count) => Math.log(1 + (state.texts + 1) / (count + 1)));
  }

  /** Learns weights from a corpus. O(text). The same texts give the same embedding, in any order. */
  static learn(texts: Iterable<string>, dimension: number = DIMENSION): HashedTfIdf {
    const textsWith = new Uint32Array(dimension);
    let count = 0;
    for (const text of texts) {
      count++;
      const seen = new Set<number>();
      for (const term of plainTerms(text)) seen.add(placeOf(term, dimension) >> 1);
      for (const place of seen) textsWith[place]!++;
    }
    return new HashedTfIdf({ texts: count, textsWith });
  }

  get state(): TfIdfState {
    return this.#state;
  }

  async embed(texts: readonly string[]): Promise<Float32Array[]> {
    return texts.map((text) => this.vector(text));
  }

  /** The vector of a text, of length one; of zeros where it has no term. */
  vector(text: string): Float32Array {
    const counts = new Map<string, number>();
    for (const term of plainTerms(text)) counts.set(term, (counts.get(term) ?? 0) + 1);
    const vector = new Float32Array(this.dimension);
    for (const [term, count] of counts) {
      const signed = placeOf(term, this.dimension);
      const place = signed >> 1;
      const weight = (1 + Math.log(count)) * this.#weights[place]!;
      vector[place]! += (signed & 1) === 1 ? weight : -weight;
    }
    const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
    return length === 0 ? vector : vector.map((value) => value / length);
  }
}

/** Where a term stands: twice the place, plus one for a positive sign (FNV-1a, with the bits mixed once more). */
function placeOf(term: string, dimension: number): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < term.length; i++) hash = Math.imul(hash ^ term.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x735a2d97);
  hash ^= hash >>> 15;
  return 2 * ((hash >>> 1) % dimension) + (hash & 1);
}
