import type { StagedRetriever } from '../staged-retriever.js';
import {
  checkSearch,
  MAX_CANDIDATES,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
} from '../staged-retriever.js';
import { Bm25 } from './bm25.js';
import { phrasesFirst, phrasesIn } from './phrases.js';
import { PostingsBuilder } from './postings.js';

type Passage = Omit<ScoredDocument, 'score'>;

/** Where BM25 finds: an index, and the passage of an ordinal, undefined where it has left meanwhile. */
export interface LexicalSource {
  current(): Promise<Bm25>;
  passage(ordinal: number): Passage | undefined;
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
    return new Bm25Retriever({ current: async () => index, passage: (ordinal) => documents[ordinal] });
  }

  async *search({ text }: Query, options: SearchOptions): AsyncGenerator<Stage, void, undefined> {
    checkSearch(options);
    const { k, signal } = options;
    const index = await this.#source.current();
    signal.throwIfAborted();
    const phrases = phrasesIn(text);
    const candidates: ScoredDocument[] = [];
    for (const { document, score } of index.search({ text }, phrases.length === 0 ? k : MAX_CANDIDATES)) {
      const passage = this.#source.passage(index.postings.ordinals[document]!);
      if (passage !== undefined) candidates.push({ ...passage, score });
    }
    yield { candidates: phrasesFirst(candidates, phrases).slice(0, k), index: 0, final: true };
  }
}
