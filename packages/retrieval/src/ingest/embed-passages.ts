import { WarmpathError, type Warning } from '@warmpath/core';
import type { CollectionStore } from '../collections/collection-store.js';
import type { PassageText } from '../collections/records.js';
import type { EmbeddingEndpoint } from '../embeddings/embedding-endpoint.js';
import { toleratedFailure } from '../fusion/inner-search.js';
import { refusalStatus } from '../remote/json-service.js';

/** What became of passages that had no vector. */
export interface EmbeddingReport {
  /** Passages that got one. */
  readonly embedded: number;
  /** Why others did not; they are found by their words, and asked for again at the next write. */
  readonly warning?: Warning;
}

export interface EmbedPassagesOptions {
  /** Passages from this ordinal on; all that have no vector by default. */
  readonly from?: number;
  /** Passages that are asked for at most. */
  readonly most?: number;
  readonly signal: AbortSignal;
  /** Called after each transaction with the passages that got their vectors so far, of those that had none. */
  readonly onProgress?: ((embedded: number, total: number) => void) | undefined;
}

/** Passages of one transaction: four requests at once, as the embedder sends them. */
const STEP = 256;
/** Passages that an endpoint may refuse one after the other before it is taken for one that refuses all. */
const MOST_REFUSED = 16;
/** What servers answer to a text that is too long for them, among other things. */
const ABOUT_TEXT = new Set([400, 413, 422, 500]);
/** The vector of a passage in which there is nothing to be found. */
const NOTHING = new Float32Array(0);

/**
 * Gets vectors for the passages that have none. Each step is one transaction, so what was paid for is kept whatever
 * happens to the next one. Where the endpoint fails, the rest waits; a passage that it refuses keeps no other back.
 * Begin to write before.
 *
 * @throws the signal's reason; WARMPATH_COLLECTION_EMBEDDINGS where the collection has vectors of another model.
 */
export async function embedPassages(
  store: CollectionStore,
  endpoint: EmbeddingEndpoint,
  { from, most = Number.POSITIVE_INFINITY, signal, onProgress }: EmbedPassagesOptions,
): Promise<EmbeddingReport> {
  const known = store.embedding?.through ?? 0;
  const steps = new Steps(endpoint, signal);
  const total = Math.min(most, store.vectorless);
  let next = from ?? known;
  // Only who begins where all have vectors can say how far all have them.
  const saysHowFar = next <= known;
  let embedded = 0;
  try {
    while (embedded < most) {
      const waiting = await store.withoutVector(next, Math.min(STEP, most - embedded));
      const vectors = waiting.length === 0 ? new Map<number, Float32Array>() : await steps.embed(waiting);
      next = waiting.at(-1) === undefined ? store.position.nextOrdinal : waiting.at(-1)!.ordinal + 1;
      const stored = store.embedding;
      const dimension = dimensionOf(vectors, stored?.dimension);
      const through = saysHowFar ? (steps.firstRefused ?? next) : known;
      if (dimension !== undefined && (vectors.size > 0 || through !== stored?.through)) {
        await store.putVectors(vectors, { model: endpoint.name, dimension, through });
      }
      if (waiting.length === 0) break;
      embedded += vectors.size;
      onProgress?.(embedded, total);
    }
  } catch (error) {
    return { embedded, warning: toleratedFailure(error, 'embeddings', signal) };
  }
  return { embedded, ...(steps.warning !== undefined && { warning: steps.warning }) };
}

/** Asks for the vectors of passages, and finds those by halving that the endpoint refuses. */
class Steps {
  readonly #endpoint: EmbeddingEndpoint;
  readonly #signal: AbortSignal;
  #refusedInRow = 0;
  /** The first passage that was refused, and why. */
  firstRefused: number | undefined;
  warning: Warning | undefined;

  constructor(endpoint: EmbeddingEndpoint, signal: AbortSignal) {
    this.#endpoint = endpoint;
    this.#signal = signal;
  }

  async embed(passages: readonly PassageText[]): Promise<Map<number, Float32Array>> {
    try {
      const texts = passages.map(({ text }) => text);
      const vectors = await this.#endpoint.embed(texts, 'passage', this.#signal);
      this.#refusedInRow = 0;
      return new Map(passages.map(({ ordinal }, i) => [ordinal, vectors[i]!.some(Boolean) ? vectors[i]! : NOTHING]));
    } catch (error) {
      if (!mayBeAboutText(error)) throw error;
      if (passages.length === 1) {
        if (++this.#refusedInRow === MOST_REFUSED) throw error;
        this.firstRefused ??= passages[0]!.ordinal;
        this.warning ??= toleratedFailure(error, 'embeddings', this.#signal);
        return new Map();
      }
      const half = passages.length >> 1;
      const before = await this.embed(passages.slice(0, half));
      return new Map([...before, ...(await this.embed(passages.slice(half)))]);
    }
  }
}

function mayBeAboutText(error: unknown): boolean {
  if (!WarmpathError.isInstance(error)) return false;
  return error.code === 'WARMPATH_EMBEDDING_INVALID' || ABOUT_TEXT.has(refusalStatus(error) ?? 0);
}

/** The dimension of vectors, which is that of those that are stored. @throws WARMPATH_EMBEDDING_INVALID */
function dimensionOf(vectors: ReadonlyMap<number, Float32Array>, stored: number | undefined) {
  const dimension = [...vectors.values()].find(({ length }) => length > 0)?.length;
  if (dimension === undefined || stored === undefined || dimension === stored) return dimension ?? stored;
  const detail = `the vectors have ${dimension} dimensions, and those of the collection have ${stored}.`;
  throw new WarmpathError('WARMPATH_EMBEDDING_INVALID', { path: 'embeddings', detail });
}
