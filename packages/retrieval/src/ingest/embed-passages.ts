import { WarmpathError, type Warning } from '@warmpath/core';
import type { CollectionStore } from '../collections/collection-store.js';
import type { PassageText } from '../collections/records.js';
import type { Embedder } from '../embeddings/embedder.js';
import { toleratedFailure } from '../fusion/inner-search.js';
import { refusalStatus } from '../remote/json-service.js';
import { isZero, MAX_DIMENSIONS } from '../vector/vector-table.js';

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
  /** Whether the first request that takes too long ends it: where somebody waits, and for what others put in. */
  readonly endsWhenLate?: boolean;
  readonly signal: AbortSignal;
  /** Called after each transaction with the passages that got their vectors so far, of those that had none. */
  readonly onProgress?: ((embedded: number, total: number) => void) | undefined;
}

/** Passages of one transaction, in requests that are under way at once. A slow endpoint gets fewer. */
const STEP = 256;
const REQUEST = 64;
/** Passages that an endpoint may refuse one after the other before it is taken for one that refuses all. */
const MAX_REFUSED = 16;
/** What servers answer to a text that is too long for them, among other things. */
const ABOUT_TEXT = new Set([400, 413, 422, 500]);
/** What servers, and proxies before them, answer where the time was too short. */
const ABOUT_TIME = new Set([408, 504]);
/** Vectors of a collection that are searched in less time than it takes to embed a question. */
const FEW_VECTORS = 100_000;
/** The vector of a passage in which there is nothing to be found. */
const NOTHING = new Float32Array(0);

/**
 * Gets vectors for the passages that have none. Each step is one transaction, with all that was answered, so what was
 * paid for is kept whatever happens to the rest. Where the endpoint fails, the rest waits; where it is too slow for a
 * step, the next ones are smaller; a passage that it refuses keeps no other back. Begin to write before.
 *
 * @throws the signal's reason; WARMPATH_COLLECTION_EMBEDDINGS where the collection has vectors of another model.
 */
export async function embedPassages(
  store: CollectionStore,
  endpoint: Embedder,
  { from, most = Number.POSITIVE_INFINITY, endsWhenLate = false, signal, onProgress }: EmbedPassagesOptions,
): Promise<EmbeddingReport> {
  const known = store.embedding?.through ?? 0;
  const steps = new Steps(endpoint, endsWhenLate, signal);
  const total = Math.min(most, store.totals.passages - store.vectorCount);
  let next = from ?? known;
  // Only who begins where all have vectors can say how far all have them.
  const saysHowFar = next <= known;
  let embedded = 0;
  try {
    while (embedded < most) {
      const waiting = await store.withoutVector(next, Math.min(steps.size, most - embedded));
      const { vectors, firstOpen, failure } = await steps.embed(waiting);
      next = firstOpen ?? (waiting.length === 0 ? store.position.nextOrdinal : waiting.at(-1)!.ordinal + 1);
      const stored = store.embedding;
      const dimension = dimensionOf(vectors, stored?.dimension);
      const through = saysHowFar ? Math.min(next, steps.firstRefused ?? next) : known;
      if (dimension !== undefined && (vectors.size > 0 || through !== stored?.through)) {
        await store.putVectors(vectors, { model: endpoint.name, dimension, through });
      }
      if (waiting.length === 0) break;
      embedded += vectors.size;
      onProgress?.(embedded, total);
      if (failure !== undefined) throw failure;
    }
  } catch (error) {
    return { embedded, warning: toleratedFailure(error, 'embeddings', signal) };
  }
  return { embedded, ...(steps.warning !== undefined && { warning: steps.warning }) };
}

/** What became of the passages of one step. */
interface Step {
  readonly vectors: Map<number, Float32Array>;
  /** The first one that has neither got a vector nor been refused. */
  readonly firstOpen: number | undefined;
  /** Why no other step is worth trying. */
  readonly failure: unknown;
}

/**
 * Asks for the vectors of passages, finds those by halving that the endpoint refuses, and how many it answers in its
 * time.
 */
class Steps {
  readonly #endpoint: Embedder;
  readonly #endsWhenLate: boolean;
  readonly #signal: AbortSignal;
  #refusedInRow = 0;
  /** Of the first answer; requests that are under way at once may differ. */
  #dimension: number | undefined;
  /** Passages of the next step. One that took too long makes the rest of the run go in smaller ones. */
  size = STEP;
  /** The first passage that was refused, and why. */
  firstRefused: number | undefined;
  warning: Warning | undefined;

  constructor(endpoint: Embedder, endsWhenLate: boolean, signal: AbortSignal) {
    this.#endpoint = endpoint;
    this.#endsWhenLate = endsWhenLate;
    this.#signal = signal;
  }

  /** One request does not take the answers of the others with it. */
  async embed(passages: readonly PassageText[]): Promise<Step> {
    const vectors = new Map<number, Float32Array>();
    const refused = new Set<number>();
    const requests: Promise<void>[] = [];
    for (let from = 0; from < passages.length; from += REQUEST) {
      requests.push(this.#ask(passages.slice(from, from + REQUEST), vectors, refused));
    }
    const errors: unknown[] = [];
    for (const outcome of await Promise.allSettled(requests)) {
      if (outcome.status === 'rejected') errors.push(outcome.reason);
    }
    const firstOpen = passages.find(({ ordinal }) => !vectors.has(ordinal) && !refused.has(ordinal))?.ordinal;
    const isOver = passages.length === 1 || this.#endsWhenLate;
    const failure = errors.find((error) => !isAboutTime(error)) ?? (isOver ? errors[0] : undefined);
    // One that answers nothing at all is found out sooner.
    if (errors.length > 0) this.size = Math.max(1, passages.length >> (vectors.size > 0 ? 1 : 2));
    return { vectors, firstOpen, failure };
  }

  async #ask(passages: readonly PassageText[], vectors: Map<number, Float32Array>, refused: Set<number>) {
    try {
      const texts = passages.map(({ text }) => text);
      const answer = await this.#endpoint.embed(texts, 'passage', this.#signal);
      for (const { length } of answer) this.#checkDimension(length);
      this.#refusedInRow = 0;
      for (const [i, { ordinal }] of passages.entries()) {
        vectors.set(ordinal, isZero(answer[i]!) ? NOTHING : answer[i]!);
      }
    } catch (error) {
      if (!mayBeAboutText(error)) throw error;
      if (passages.length === 1) {
        const [{ ordinal }] = passages as [PassageText];
        if (++this.#refusedInRow >= MAX_REFUSED) throw error;
        refused.add(ordinal);
        this.firstRefused = Math.min(ordinal, this.firstRefused ?? ordinal);
        this.warning ??= toleratedFailure(error, 'embeddings', this.#signal);
        return;
      }
      const half = passages.length >> 1;
      await this.#ask(passages.slice(0, half), vectors, refused);
      await this.#ask(passages.slice(half), vectors, refused);
    }
  }

  #checkDimension(length: number): void {
    if (length === 0) return;
    this.#dimension ??= length;
    if (length === this.#dimension) return;
    const detail = `the vectors have ${length} dimensions, and those before them have ${this.#dimension}.`;
    throw new WarmpathError('WARMPATH_EMBEDDING_INVALID', { path: 'embeddings', detail });
  }
}

/** Says of a collection with many vectors that a vector database searches them faster. */
export function manyVectors(count: number): Warning | undefined {
  if (count <= FEW_VECTORS) return undefined;
  const [has, few] = [count, FEW_VECTORS].map((number) => number.toLocaleString('en'));
  const message =
    `The collection has ${has} vectors. A search compares the question with all of them, which is meant for up to ${few}. ` +
    'Keep more in a vector database (pgvector, qdrant, opensearch in `collections.stores`; lancedb in code), or divide them among collections.';
  return { code: 'WARMPATH_COLLECTION_VECTORS', path: 'embeddings', message };
}

function mayBeAboutText(error: unknown): boolean {
  if (!WarmpathError.isInstance(error)) return false;
  return error.code === 'WARMPATH_EMBEDDING_INVALID' || ABOUT_TEXT.has(refusalStatus(error) ?? 0);
}

function isAboutTime(error: unknown): boolean {
  if (!WarmpathError.isInstance(error)) return false;
  return error.code === 'WARMPATH_RETRIEVAL_TIMEOUT' || ABOUT_TIME.has(refusalStatus(error) ?? 0);
}

/**
 * The dimension of vectors, which is that of those that are stored; 0 where nothing is found in any of them.
 * @throws WARMPATH_EMBEDDING_INVALID
 */
function dimensionOf(vectors: ReadonlyMap<number, Float32Array>, stored: number | undefined): number | undefined {
  const dimension = [...vectors.values()].find(({ length }) => length > 0)?.length;
  if (dimension !== undefined && dimension > MAX_DIMENSIONS) {
    const detail = `the vectors have ${dimension} dimensions, and ${MAX_DIMENSIONS} can be searched at most (\`collections.embeddings.dimensions\`).`;
    throw new WarmpathError('WARMPATH_EMBEDDING_INVALID', { path: 'embeddings', detail });
  }
  if (dimension === undefined) return stored ?? (vectors.size > 0 ? 0 : undefined);
  if (!stored || dimension === stored) return dimension;
  const detail = `the vectors have ${dimension} dimensions, and those of the collection have ${stored}.`;
  throw new WarmpathError('WARMPATH_EMBEDDING_INVALID', { path: 'embeddings', detail });
}
