import { PassageAnalyser } from './analyse.js';

/**
 * Where each term stands: documents by their ordinals, ascending, with the term's frequency, all terms one behind the
 * other in flat arrays. Never changed once it is built; `merge` makes the next one.
 */
export interface Postings {
  /** Number of a term. */
  readonly terms: ReadonlyMap<string, number>;
  /** Term t has the entries `starts[t]` to `starts[t + 1]`. */
  readonly starts: Uint32Array;
  /** Positions in `ordinals`, ascending for each term. */
  readonly documents: Uint32Array;
  readonly frequencies: Uint16Array;
  /** Ordinal of each document, ascending. */
  readonly ordinals: Uint32Array;
  /** Terms of each document. */
  readonly lengths: Uint32Array;
  /** Codes of the languages that documents are in: a question is analysed for each of them. */
  readonly languages: ReadonlySet<string>;
}

export const EMPTY_POSTINGS: Postings = {
  terms: new Map(),
  starts: new Uint32Array(1),
  documents: new Uint32Array(0),
  frequencies: new Uint16Array(0),
  ordinals: new Uint32Array(0),
  lengths: new Uint32Array(0),
  languages: new Set(),
};

const MAX_FREQUENT = 0xffff;

/** A Uint32Array that grows. */
class Numbers {
  #values = new Uint32Array(1024);
  length = 0;

  push(value: number): void {
    if (this.length === this.#values.length) {
      const larger = new Uint32Array(this.length * 2);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.length++] = value;
  }

  increment(position: number): void {
    this.#values[position]!++;
  }

  view(): Uint32Array {
    return this.#values.subarray(0, this.length);
  }
}

/** Builds postings from texts, one after the other. Memory: 12 bytes for each pair of a term and a document. */
export class PostingsBuilder {
  readonly #analyser = new PassageAnalyser();
  readonly #terms = new Map<string, number>();
  readonly #ordinals = new Numbers();
  readonly #lengths = new Numbers();
  /** Entries in the order of documents: term and frequency. */
  readonly #entryTerms = new Numbers();
  readonly #entryFrequencies = new Numbers();
  readonly #entryEnds = new Numbers();
  /** Entry of each term in the document that is read, where it is at or behind the document's first one. */
  #lastEntry = new Uint32Array(1024);

  /** Ordinals come ascending. O(length of the text). */
  add(ordinal: number, text: string): void {
    const first = this.#entryTerms.length;
    const frequencies = this.#entryFrequencies;
    let length = 0;
    for (const word of this.#analyser.terms(text)) {
      length++;
      let term = this.#terms.get(word);
      if (term === undefined) {
        term = this.#terms.size;
        // A slice of a text would keep the whole text in memory.
        this.#terms.set(ownCopy(word), term);
        if (term === this.#lastEntry.length) {
          const larger = new Uint32Array(term * 2);
          larger.set(this.#lastEntry);
          this.#lastEntry = larger;
        }
      }
      // Entries are numbered from 1 here, so that 0 means none.
      const entry = this.#lastEntry[term]! - 1;
      if (entry >= first) {
        frequencies.increment(entry);
        continue;
      }
      this.#entryTerms.push(term);
      frequencies.push(1);
      this.#lastEntry[term] = this.#entryTerms.length;
    }
    this.#ordinals.push(ordinal);
    this.#lengths.push(length);
    this.#entryEnds.push(this.#entryTerms.length);
  }

  /** A counting sort by term, which keeps the order of documents. O(entries). */
  build(): Postings {
    const entryTerms = this.#entryTerms.view();
    const entryFrequencies = this.#entryFrequencies.view();
    const starts = new Uint32Array(this.#terms.size + 1);
    for (const term of entryTerms) starts[term + 1]!++;
    for (let term = 0; term < this.#terms.size; term++) starts[term + 1]! += starts[term]!;
    const next = starts.slice();
    const documents = new Uint32Array(entryTerms.length);
    const frequencies = new Uint16Array(entryTerms.length);
    let entry = 0;
    for (const [document, end] of this.#entryEnds.view().entries()) {
      for (; entry < end; entry++) {
        const place = next[entryTerms[entry]!]!++;
        documents[place] = document;
        frequencies[place] = Math.min(entryFrequencies[entry]!, MAX_FREQUENT);
      }
    }
    const ordinals = this.#ordinals.view().slice();
    const lengths = this.#lengths.view().slice();
    const { languages } = this.#analyser;
    return { terms: this.#terms, starts, documents, frequencies, ordinals, lengths, languages };
  }
}

function ownCopy(word: string): string {
  return Buffer.from(word, 'utf8').toString('utf8');
}

/**
 * The postings of both, without the documents that were removed. The ordinals of `later` are all above those of
 * `earlier`. O(entries), without reading a text again.
 */
export function mergePostings(earlier: Postings, later: Postings, removed: ReadonlySet<number>): Postings {
  const kept = [keptDocuments(earlier, removed, 0)];
  kept.push(keptDocuments(later, removed, kept[0]!.count));
  const parts = [earlier, later];
  const count = kept[0]!.count + kept[1]!.count;
  const ordinals = new Uint32Array(count);
  const lengths = new Uint32Array(count);
  for (const [part, { places }] of kept.entries()) {
    for (const [document, place] of places.entries()) {
      if (place === GONE) continue;
      ordinals[place] = parts[part]!.ordinals[document]!;
      lengths[place] = parts[part]!.lengths[document]!;
    }
  }
  const most = earlier.documents.length + later.documents.length;
  const documents = new Uint32Array(most);
  const frequencies = new Uint16Array(most);
  const terms = new Map<string, number>();
  const starts: number[] = [0];
  let end = 0;
  const append = (part: number, term: number) => {
    const { starts: from, documents: old, frequencies: oldFrequencies } = parts[part]!;
    const { places } = kept[part]!;
    for (let entry = from[term]!; entry < from[term + 1]!; entry++) {
      const place = places[old[entry]!]!;
      if (place === GONE) continue;
      documents[end] = place;
      frequencies[end++] = oldFrequencies[entry]!;
    }
  };
  const close = (word: string) => {
    if (end === starts.at(-1)) return;
    terms.set(word, terms.size);
    starts.push(end);
  };
  for (const [word, term] of earlier.terms) {
    append(0, term);
    const other = later.terms.get(word);
    if (other !== undefined) append(1, other);
    close(word);
  }
  for (const [word, term] of later.terms) {
    if (earlier.terms.has(word)) continue;
    append(1, term);
    close(word);
  }
  return {
    terms,
    starts: Uint32Array.from(starts),
    documents: documents.slice(0, end),
    frequencies: frequencies.slice(0, end),
    ordinals,
    lengths,
    languages: new Set([...earlier.languages, ...later.languages]),
  };
}

const GONE = 0xffffffff;

/** The new position of each document, from `first` on. */
function keptDocuments({ ordinals }: Postings, removed: ReadonlySet<number>, first: number) {
  const places = new Uint32Array(ordinals.length);
  let count = 0;
  for (const [document, ordinal] of ordinals.entries()) {
    places[document] = removed.has(ordinal) ? GONE : first + count++;
  }
  return { places, count };
}
