import type { Warning } from '@warmpath/core';
import {
  checkSearch,
  MAX_CANDIDATES,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
} from '../staged-retriever.js';
import { InnerSearch, toleratedFailure } from './inner-search.js';

export interface HybridOptions {
  /** Finds words; its stages come first, for it needs no embedding. */
  readonly lexical: StagedRetriever;
  /** Finds meaning; its stages come fused with what the lexical search found. */
  readonly dense: StagedRetriever;
}

/** The constant of Cormack, Clarke and Büttcher (2009): how little the first ranks weigh more than the next ones. */
const RANK_CONSTANT = 60;
/** Candidates that each search is asked for: a passage may be far down in one list and count in both. */
const MIN_DEPTH = 50;

/**
 * Lexical and dense search fused by reciprocal ranks. Both begin at once; the lexical stages are passed on as they are,
 * and every dense stage is fused with the last of them. So generation can start before the question is embedded.
 *
 * If one of the two fails, the other one's last stage is the final one, with a warning.
 */
export class HybridRetriever implements StagedRetriever {
  readonly #lexical: StagedRetriever;
  readonly #dense: StagedRetriever;

  constructor({ lexical, dense }: HybridOptions) {
    this.#lexical = lexical;
    this.#dense = dense;
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { k, signal, stages, where } = options;
    const inner = { signal, where, k: Math.min(MAX_CANDIDATES, Math.max(MIN_DEPTH, 2 * k)) };
    const searchDense = () => new InnerSearch(this.#dense, query, inner);
    // Whoever wants one stage wants none of an embedding either.
    let dense = stages === 1 ? undefined : searchDense();
    const lexical = new InnerSearch(this.#lexical, query, inner);
    const warnings: Warning[] = [];
    let index = 0;
    let [byWords, byMeaning]: (readonly ScoredDocument[])[] = [[], []];
    try {
      try {
        for await (const { candidates } of lexical.stages()) {
          byWords = candidates;
          yield { candidates: candidates.slice(0, k), index: index++, final: false };
          signal.throwIfAborted();
        }
      } catch (error) {
        warnings.push(toleratedFailure(error, 'lexical', signal));
      }
      let isFinal = false;
      try {
        dense ??= searchDense();
        for await (const { candidates, final } of dense.stages()) {
          byMeaning = candidates;
          isFinal = final;
          yield fusedStage([byWords!, byMeaning], k, index++, final, warnings);
          signal.throwIfAborted();
        }
      } catch (error) {
        // What the caller threw into the last stage is the caller's.
        if (isFinal || warnings.length > 0) throw error;
        warnings.push(toleratedFailure(error, 'dense', signal));
        yield fusedStage([byWords!, byMeaning!], k, index++, true, warnings);
      }
    } finally {
      lexical.end();
      dense?.end();
    }
  }
}

function fusedStage(
  lists: readonly (readonly ScoredDocument[])[],
  k: number,
  index: number,
  final: boolean,
  warnings: readonly Warning[],
): Stage {
  const candidates = reciprocalRankFusion(lists).slice(0, k);
  return { candidates, index, final, ...(warnings.length > 0 && { warnings: [...warnings] }) };
}

/**
 * One ranking from several: each document scores 1 / (60 + rank) in every list that has it. Equal scores keep the order
 * of the first list that has them. O(documents * log documents).
 */
export function reciprocalRankFusion(lists: readonly (readonly ScoredDocument[])[]): ScoredDocument[] {
  const fused = new Map<string, { document: ScoredDocument; score: number }>();
  for (const list of lists) {
    for (const [rank, document] of list.entries()) {
      const score = 1 / (RANK_CONSTANT + rank + 1);
      const entry = fused.get(document.id);
      if (entry === undefined) fused.set(document.id, { document, score });
      else entry.score += score;
    }
  }
  return [...fused.values()].sort((a, b) => b.score - a.score).map(({ document, score }) => ({ ...document, score }));
}
