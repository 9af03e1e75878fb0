import type { StagedRetriever } from '../staged-retriever.js';
import {
  checkSearch,
  MAX_CANDIDATES,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
} from '../staged-retriever.js';
import { matchesWhere, type Where } from '../where.js';
import { Bm25 } from './bm25.js';
import { phrasesFirst, phrasesIn } from './phrases.js';
import { PostingsBuilder } from './postings.js';

type Passage = Omit<ScoredDocument, 'score'>;

/** Where BM25 finds: an index, and the passage of an ordinal, undefined where it has left meanwhile. */
export interface LexicalSource {
  current(): Promise<Bm25>;
  /** Under a document that is as `where` says. */
  passage(ordinal: number, where: Where | undefined): Passage | undefined;
  /** Which ordinals may be found. */
  filter(where: Where): Promise<(ordinal: number) => boolean>;
}

/**
 * Lexical search: one stage, which is final. Of the best 1,000 passages, those that have the phrases of the question
 * word for word come first.
 */
export class Bm25Retriever implements StagedRetriever {
  readonly #source: LexicalSource;

  constructor(source: LexicalSource) {
    this.#source = source;
  }

  /** A retriever over documents in memory. O(text). */
  static over(documents: readonly Passage[]): Bm25Retriever {
    const builder = new PostingsBuilder();
    for (const [ordinal, { title, content }] of documents.entries()) {
      builder.add(ordinal, title === undefined ? content : `${title}\n${content}`);
    }
    const index = new Bm25(builder.build());
    return new Bm25Retriever({
      current: async () => index,
      passage: (ordinal) => documents[ordinal],
      filter: async (where) => (ordinal) => matchesWhere(where, documents[ordinal]!.metadata),
    });
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void, undefined> {
    checkSearch(options);
    const { k, signal, where } = options;
    const mayBeFound = where && (await this.#source.filter(where));
    const index = await this.#source.current();
    signal.throwIfAborted();
    const { ordinals } = index.postings;
    const accepts = mayBeFound && ((document: number) => mayBeFound(ordinals[document]!));
    const phrases = phrasesIn(query.text);
    const candidates: ScoredDocument[] = [];
    for (const { document, score } of index.search(query, phrases.length === 0 ? k : MAX_CANDIDATES, accepts)) {
      const passage = this.#source.passage(ordinals[document]!, where);
      if (passage !== undefined) candidates.push({ ...passage, score });
    }
    yield { candidates: phrasesFirst(candidates, phrases).slice(0, k), index: 0, final: true };
  }
}
