import type { Query } from '../staged-retriever.js';
import { Analyser, wordsOf } from './analyse.js';
import { languagesBy, languagesOf } from './languages.js';
import { phrasesIn } from './phrases.js';
import type { Postings } from './postings.js';

/** The constants of Robertson and Zaragoza (2009) at the values that most systems take. */
const K1 = 1.2;
const B = 0.75;
/** How soon a term counts little more that a question repeats (Robertson and Walker, 1994). */
const K3 = 1;
/** Parts that the weight of one word is shared among, at most: a run of Chinese is one word, and has many terms. */
const MAX_SHARES = 3;
/** UTF-16 units that are searched of each end of a long question. */
const END_LENGTH = 16_384;
/** Of the distinct terms of a question, the rarest are searched. */
const MAX_QUERY_TERMS = 128;

/** A document by its position in the postings. */
export interface Hit {
  readonly document: number;
  readonly score: number;
}

/** What a term of earlier turns counts beside one of the question. */
export const EARLIER_WEIGHT = 0.3;

/** BM25 over postings, exact: the k best documents by score, then by position. */
export class Bm25 {
  readonly postings: Postings;
  /** Of each document: `k1 · (1 − b + b · length / mean length)`. */
  readonly #norms: Float64Array;
  readonly #scores: Float64Array;

  constructor(postings: Postings) {
    this.postings = postings;
    const { lengths } = postings;
    let total = 0;
    for (const length of lengths) total += length;
    const mean = total / Math.max(1, lengths.length) || 1;
    this.#norms = Float64Array.from(lengths, (length) => K1 * (1 - B + (B * length) / mean));
    this.#scores = new Float64Array(lengths.length);
  }

  /**
   * The k best documents that have a term of the text. O(postings of its terms + documents).
   * @param accepts Which documents may be among them; asked only for those that would be.
   */
  search(query: Query, k: number, accepts?: (document: number) => boolean): Hit[] {
    const { starts, documents, frequencies } = this.postings;
    const scores = this.#scores;
    const norms = this.#norms;
    for (const [term, given] of this.#terms(query)) {
      const end = starts[term + 1]!;
      const weight = given * inverseFrequency(end - starts[term]!, scores.length) * (K1 + 1);
      for (let entry = starts[term]!; entry < end; entry++) {
        const document = documents[entry]!;
        const frequency = frequencies[entry]!;
        scores[document]! += (weight * frequency) / (frequency + norms[document]!);
      }
    }
    const best = bestOf(scores, k, accepts);
    scores.fill(0);
    return best;
  }

  /** The terms that are searched, each with its weight: those of stop words only where there are no others. */
  #terms({ text, earlier }: Query): [term: number, weight: number][] {
    const languages = languagesBy(this.postings.languages);
    const analyser = new Analyser(languages);
    const weights = new Map<number, number>();
    const add = (words: readonly string[], weight: number) => {
      for (const [term, count] of this.#counts(words, analyser)) {
        const saturated = (count * (K3 + 1)) / (count + K3);
        weights.set(term, (weights.get(term) ?? 0) + weight * saturated);
      }
    };
    const split = (text: string) => {
      const words = wordsOf(bothEnds(text));
      const stopWords = languagesOf(words, { among: languages, least: 1 }).map((language) => language.stopWords);
      return { words, others: words.filter((word) => !stopWords.some((stops) => stops.has(word.toLowerCase()))) };
    };
    const { words, others } = split(text);
    const quoted = phrasesIn(text).flatMap(wordsOf);
    add([...others, ...quoted.filter((word) => !others.includes(word))], 1);
    if (weights.size === 0) add(words, 1);
    if (earlier !== undefined) add(split(earlier).others, EARLIER_WEIGHT);
    const { starts } = this.postings;
    const holders = (term: number) => starts[term + 1]! - starts[term]!;
    return [...weights].sort(([a], [b]) => holders(a) - holders(b) || a - b).slice(0, MAX_QUERY_TERMS);
  }

  /** How often words have the terms of the index. Several terms of one word count together about as one. */
  #counts(words: readonly string[], analyser: Analyser): Map<number, number> {
    const counts = new Map<number, number>();
    for (const word of words) {
      const terms = analyser.termsOf(word);
      const share = 1 / Math.min(terms.length, MAX_SHARES);
      for (const term of terms) {
        const number = this.postings.terms.get(term);
        if (number !== undefined) counts.set(number, (counts.get(number) ?? 0) + share);
      }
    }
    return counts;
  }
}

/** A text, or the two ends of a long one: people put a question before or behind what it is about. */
function bothEnds(text: string): string {
  return text.length <= 2 * END_LENGTH ? text : `${text.slice(0, END_LENGTH)}\n${text.slice(-END_LENGTH)}`;
}

/** Never negative, unlike the original: a term in every document still counts a little (as in Lucene). */
function inverseFrequency(holders: number, documents: number): number {
  return Math.log(1 + (documents - holders + 0.5) / (holders + 0.5));
}

/** Of equal scores the first ones. O(documents + k · changes among the best). */
function bestOf(scores: Float64Array, k: number, accepts: ((document: number) => boolean) | undefined): Hit[] {
  const best: Hit[] = [];
  let threshold = 0;
  for (let document = 0; document < scores.length; document++) {
    const score = scores[document]!;
    if (score <= threshold || accepts?.(document) === false) continue;
    if (best.length === k) best.pop();
    let place = best.length;
    while (place > 0 && best[place - 1]!.score < score) place--;
    best.splice(place, 0, { document, score });
    if (best.length === k) threshold = best[k - 1]!.score;
  }
  return best;
}
