import { WarmpathError } from '@warmpath/core';
import { phrasesFirst, phrasesIn } from './lexical/phrases.js';
import type { Query, ScoredDocument, SearchOptions, Stage, StagedRetriever } from './staged-retriever.js';

/** The passages before and behind one in its document. */
export type Neighbours = (
  passage: ScoredDocument,
  count: number,
) => { readonly before: readonly Passage[]; readonly after: readonly Passage[] };

type Passage = Omit<ScoredDocument, 'score'>;

/**
 * What any search can be asked for on top: phrases first, a least score, neighbours. A neighbour is a passage of its
 * own, with the score of the one that it stands beside: `expand` gives up to `1 + 2 · expand` passages for each of `k`.
 */
export class RefinedRetriever implements StagedRetriever {
  readonly #retriever: StagedRetriever;
  readonly #neighbours: Neighbours | undefined;

  constructor(retriever: StagedRetriever, neighbours?: Neighbours) {
    this.#retriever = retriever;
    this.#neighbours = neighbours;
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    const { minScore = Number.NEGATIVE_INFINITY, expand = 0 } = options;
    if (expand > 0 && this.#neighbours === undefined) {
      const detail = 'a collection in a database does not know which passages stand beside each other.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'expand', detail });
    }
    const phrases = phrasesIn(query.text);
    for await (const stage of this.#retriever.search(query, options)) {
      const found = phrasesFirst(stage.candidates, phrases).filter(({ score }) => score >= minScore);
      yield { ...stage, candidates: expand === 0 ? found : this.#expanded(found, expand) };
    }
  }

  #expanded(found: readonly ScoredDocument[], count: number): ScoredDocument[] {
    const expanded = new Map<string, ScoredDocument>();
    for (const passage of found) {
      const { before, after } = this.#neighbours!(passage, count);
      for (const each of [...before, passage, ...after]) {
        if (!expanded.has(each.id)) expanded.set(each.id, { ...each, score: passage.score });
      }
    }
    return [...expanded.values()];
  }
}
