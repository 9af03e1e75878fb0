import { WarmpathError } from '@warmpath/core';
import type { Embedder } from '../embeddings/embedder.js';
import {
  checkSearch,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
  untilAborted,
} from '../staged-retriever.js';
import type { VectorIndex } from './vector-index.js';

/** A passage as it is stored. */
export type Passage = Omit<ScoredDocument, 'score'>;

/** Looks passages up, in the order of the ids; `undefined` for one that is gone. */
export type PassageLookup = (
  ids: readonly string[],
) => readonly (Passage | undefined)[] | Promise<readonly (Passage | undefined)[]>;

export interface VectorRetrieverOptions {
  /** The index, or what loads it: called once, at the first search, and again only after it failed. */
  readonly index: VectorIndex | (() => Promise<VectorIndex>);
  readonly embedder: Embedder;
  readonly passages: PassageLookup;
}

/** Passages whose vectors are closest to the question's, in the stages of the index. */
export class VectorRetriever implements StagedRetriever {
  readonly #load: () => Promise<VectorIndex>;
  readonly #embedder: Embedder;
  readonly #passages: PassageLookup;
  #index: Promise<VectorIndex> | undefined;

  constructor({ index, embedder, passages }: VectorRetrieverOptions) {
    this.#load = typeof index === 'function' ? index : async () => index;
    this.#embedder = embedder;
    this.#passages = passages;
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { signal } = options;
    // Loading and embedding wait for others: they go on at the same time.
    const loading = this.#loaded();
    loading.catch(() => undefined);
    const vector =
      query.vector ?? (await untilAborted(this.#embedder.embed([query.text], 'query', signal), signal))[0]!;
    const index = await untilAborted(loading, signal);
    const { embedder } = index.options;
    if (query.vector === undefined && embedder !== undefined && embedder !== this.#embedder.name) {
      throw new WarmpathError('WARMPATH_EMBEDDING_INVALID', {
        detail: `the index holds vectors of ${embedder}, and the question was embedded by ${this.#embedder.name}.`,
      });
    }
    if (index.metric === 'cosine' && vector.every((value) => value === 0)) {
      yield { candidates: [], index: 0, final: true };
      return;
    }
    for await (const { ids, scores, index: stage, final } of index.search(vector, options)) {
      const passages = await this.#passages(ids);
      signal.throwIfAborted();
      const candidates = passages.flatMap((passage, i) => (passage ? [{ ...passage, score: scores[i]! }] : []));
      yield { candidates, index: stage, final };
      signal.throwIfAborted();
    }
  }

  #loaded(): Promise<VectorIndex> {
    this.#index ??= (async () => this.#load())().catch((error: unknown) => {
      this.#index = undefined;
      throw error;
    });
    return this.#index;
  }
}
