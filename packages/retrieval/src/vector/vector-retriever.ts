import { WarmpathError } from '@warmpath/core';
import type { Embedder } from '../embeddings/embedder.js';
import {
  checkSearch,
  MAX_CANDIDATES,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
  textWithEarlier,
  untilAborted,
} from '../staged-retriever.js';
import { matchesWhere, type Where } from '../where.js';
import type { VectorIndex } from './vector-index.js';
import { isZero } from './vector-table.js';

/** A passage as it is stored. */
export type Passage = Omit<ScoredDocument, 'score'>;

/** Looks passages up, in the order of the ids; `undefined` for one that is gone. */
export type PassageLookup = (
  ids: readonly string[],
  where?: Where,
) => readonly (Passage | undefined)[] | Promise<readonly (Passage | undefined)[]>;

export interface VectorRetrieverOptions {
  /** The index, or what gives it at each search. */
  readonly index: VectorIndex | (() => Promise<VectorIndex>);
  readonly embedder: Embedder;
  readonly passages: PassageLookup;
  /** Which ids may be found. Without it, the closest 1,000 are looked up. */
  readonly filter?: (where: Where) => Promise<(id: string) => boolean>;
}

/** Passages whose vectors are closest to the question's, in the stages of the index. */
export class VectorRetriever implements StagedRetriever {
  readonly #options: VectorRetrieverOptions;

  constructor(options: VectorRetrieverOptions) {
    this.#options = options;
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { signal, where, k } = options;
    const { index: loaded, embedder, passages: lookUp, filter } = this.#options;
    // Loading and embedding wait for others: they go on at the same time.
    const loading = typeof loaded === 'function' ? loaded() : Promise.resolve(loaded);
    loading.catch(() => undefined);
    const text = textWithEarlier(query);
    const vector = query.vector ?? (await untilAborted(embedder.embed([text], 'query', signal), signal))[0]!;
    const index = await untilAborted(loading, signal);
    const { embedder: stored } = index.options;
    if (query.vector === undefined && stored !== undefined && stored !== embedder.name) {
      const detail = `the index holds vectors of ${stored}, and the question was embedded by ${embedder.name}.`;
      throw new WarmpathError('WARMPATH_EMBEDDING_INVALID', { detail });
    }
    if (isZero(vector)) {
      yield { candidates: [], index: 0, final: true };
      return;
    }
    const accepts = where && (await filter?.(where));
    const depth = where === undefined || accepts !== undefined ? k : MAX_CANDIDATES;
    for await (const found of index.search(vector, { ...options, k: depth }, accepts)) {
      const { ids, scores, index: stage, final } = found;
      const passages = await lookUp(ids, where);
      signal.throwIfAborted();
      const candidates = passages.flatMap((passage, i) => (passage ? [{ ...passage, score: scores[i]! }] : []));
      const matching =
        where === undefined || accepts
          ? candidates
          : candidates.filter(({ metadata }) => matchesWhere(where, metadata));
      yield { candidates: matching.slice(0, k), index: stage, final };
      signal.throwIfAborted();
    }
  }
}
