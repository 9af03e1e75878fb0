import { join } from 'node:path';
import { type Document, estimateTokens, renderDocument, WarmpathError } from '@warmpath/core';
import MiniSearch from 'minisearch';
import { labDocument } from '../workloads/workload.js';
import { invalid, JsonFields } from './json-fields.js';
import { readLines } from './lines.js';

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

/** Passages of one corpus: an index over them stands in memory, some kilobytes a passage. */
const MAX_PASSAGES = 200_000;

/** A passage and the document that the simulator serves for it. */
export interface IndexedPassage extends Passage {
  readonly document: Document;
}

/** The passage as a document without text: identity, and the length that it has when rendered. O(length). */
export function indexedPassage(passage: Passage): IndexedPassage {
  const { id, title, content } = passage;
  const rendered = renderDocument({ label: id, title: title === '' ? undefined : title, content }, 'xml');
  return { ...passage, document: labDocument(id, estimateTokens(rendered)) };
}

/**
 * Reads the `corpus.jsonl` of a BEIR folder: `{_id, title?, text}` a line. Error: `WARMPATH_INVALID_REQUEST` with line
 * and path, for an id that is taken too; those of `readLines`. At most 200,000 passages.
 */
export async function readCorpus(folder: string): Promise<readonly IndexedPassage[]> {
  const passages = new Map<string, IndexedPassage>();
  for await (const line of readLines(join(folder, 'corpus.jsonl'))) {
    const fields = JsonFields.ofLine(line, 'corpus.jsonl');
    const id = fields.text('_id');
    if (passages.has(id)) throw invalid(fields.pathOf('_id'), `the id ${JSON.stringify(id)} is taken already`);
    if (passages.size === MAX_PASSAGES) throw tooManyPassages();
    passages.set(id, indexedPassage({ id, title: fields.optionalText('title') ?? '', content: fields.text('text') }));
  }
  return [...passages.values()];
}

/** A corpus larger than what can be indexed. */
function tooManyPassages(): WarmpathError {
  const detail = `At most ${MAX_PASSAGES} passages are indexed.`;
  return new WarmpathError('WARMPATH_TOO_MANY_DOCUMENTS', { path: 'data', detail });
}
