import MiniSearch from 'minisearch';

/** What a retriever looks for. */
export interface Passage {
  readonly id: string;
  readonly title: string;
  readonly content: string;
}

/**
 * Words that every question has and that say nothing about its subject; some corpora are so terse that BM25 would find
 * them rare.
 */
const STOP_WORDS = new Set(
  (
    'a about after all also am an and any are as at be because been before being both but by can could did do does doing for ' +
    'from get had has have having he her here him his how i if in into is it its just me more most my no not of off on once ' +
    'only or other our out over own same she should so some such than that the their them then there these they this those ' +
    'through to too under until up very was we were what when where which while who whom why will with would you your'
  ).split(' '),
);

/**
 * BM25 over title and text, with the library's own parameters: the retriever is not what is measured here, so nothing
 * in it is tuned. Stop words are English.
 */
export class Retriever<Found extends Passage = Passage> {
  readonly #index: MiniSearch<Found>;
  readonly #passages: ReadonlyMap<string, Found>;

  /** Indexes the passages; their ids must be unique. Cost: O(total length). */
  constructor(passages: readonly Found[]) {
    this.#passages = new Map(passages.map((passage) => [passage.id, passage]));
    this.#index = new MiniSearch<Found>({ fields: ['title', 'content'], idField: 'id', processTerm: searchTerm });
    this.#index.addAll(passages);
  }

  /** The `k` best passages, best first; fewer when fewer share a word with the question. */
  search(question: string, k: number): readonly Found[] {
    return this.#index
      .search(question)
      .slice(0, k)
      .map((result) => this.#passages.get(result.id as string)!);
  }
}

function searchTerm(word: string): string | null {
  const term = word.toLowerCase();
  return STOP_WORDS.has(term) ? null : term;
}
