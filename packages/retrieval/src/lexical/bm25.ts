import type { Postings } from './postings.js';
import { tokenise } from './tokenise.js';

/** The constants of Robertson and Zaragoza (2009) at the values that most systems take. */
const K1 = 1.2;
const B = 0.75;
/** What is looked at of a query: its beginning, and of the distinct terms there the rarest. */
const MOST_QUERY_LENGTH = 32_768;
const MOST_QUERY_TERMS = 128;
/** Documents that are scored at a time: their scores fit the first-level cache. */
const WINDOW = 2048;
/** Bounds are sums in another order than scores are, and rounding must not make them too low. */
const SLACK = 1 + 1e-12;

/** A document by its position in the postings. */
export interface Hit {
  readonly document: number;
  readonly score: number;
}

/** One term of a query in its postings. */
interface Cursor {
  at: number;
  readonly end: number;
  readonly weight: number;
  /** What the term adds to a score at most. */
  readonly bound: number;
}

/**
 * BM25 over postings, exact: the k best documents by score, then by position. Terms that cannot lift a document over
 * the k-th score alone are only looked up in documents that others have found (MaxScore: Turtle and Flood, 1995), a
 * window of documents at a time, so that what is frequent costs little.
 */
export class Bm25 {
  readonly postings: Postings;
  /** `k1 · (1 − b + b · length / mean length)` by length, up to the longest document. */
  readonly #norms: Float64Array;
  /** Of each term: the largest factor of its weight in any document. Computed when a term is first asked for. */
  readonly #largest: Float64Array;
  readonly #scores = new Float64Array(WINDOW);

  constructor(postings: Postings) {
    this.postings = postings;
    const { lengths } = postings;
    let total = 0;
    let longest = 0;
    for (const length of lengths) {
      total += length;
      if (length > longest) longest = length;
    }
    const mean = total / Math.max(1, lengths.length) || 1;
    this.#norms = Float64Array.from({ length: Math.min(longest, LONGEST_TABLE) + 1 }, (_, length) =>
      norm(length, mean),
    );
    this.#largest = new Float64Array(postings.terms.size);
  }

  get documents(): number {
    return this.postings.ordinals.length;
  }

  /** The k best documents that have a term of the text. Cost: a fraction of the postings of its terms. */
  search(text: string, k: number): Hit[] {
    const cursors = this.#cursors(text);
    const { documents, frequencies, lengths } = this.postings;
    const norms = this.#norms;
    const scores = this.#scores;
    const best = new BestHits(k);
    // From the largest bound to the smallest: the order in which a score is summed, whatever is left out on the way.
    cursors.sort((a, b) => b.bound - a.bound);
    const restBounds = restsOf(cursors);
    let essential = cursors.length;
    for (let from = 0; from < this.documents; ) {
      while (essential > 0 && restBounds[essential - 1]! <= best.threshold) essential--;
      if (essential === 0) break;
      // Windows in which no essential term stands are left out.
      let next = this.documents;
      for (let term = 0; term < essential; term++) {
        const { at, end } = cursors[term]!;
        if (at < end && documents[at]! < next) next = documents[at]!;
      }
      from = next;
      const until = Math.min(from + WINDOW, this.documents);
      if (from >= until) break;
      for (let term = 0; term < essential; term++) {
        const cursor = cursors[term]!;
        const { end, weight } = cursor;
        let at = cursor.at;
        for (; at < end; at++) {
          const document = documents[at]!;
          if (document >= until) break;
          const frequency = frequencies[at]!;
          scores[document - from]! += (weight * frequency) / (frequency + norms[lengths[document]!]!);
        }
        cursor.at = at;
      }
      for (let document = from; document < until; document++) {
        let score = scores[document - from]!;
        if (score === 0) continue;
        scores[document - from] = 0;
        for (let term = essential; term < cursors.length; term++) {
          if ((score + restBounds[term]!) * SLACK <= best.threshold) {
            score = 0;
            break;
          }
          const cursor = cursors[term]!;
          cursor.at = seek(documents, cursor.at, cursor.end, document);
          if (cursor.at < cursor.end && documents[cursor.at] === document) {
            const frequency = frequencies[cursor.at]!;
            score += (cursor.weight * frequency) / (frequency + norms[lengths[document]!]!);
          }
        }
        if (score > best.threshold) best.add(document, score);
      }
      from = until;
    }
    return best.inOrder();
  }

  #cursors(text: string): Cursor[] {
    const { terms, starts } = this.postings;
    const counts = new Map<number, number>();
    for (const word of tokenise(text.slice(0, MOST_QUERY_LENGTH))) {
      const term = terms.get(word);
      if (term !== undefined) counts.set(term, (counts.get(term) ?? 0) + 1);
    }
    const rarestFirst = [...counts].sort(
      ([a], [b]) => starts[a + 1]! - starts[a]! - (starts[b + 1]! - starts[b]!) || a - b,
    );
    return rarestFirst.slice(0, MOST_QUERY_TERMS).map(([term, count]) => {
      const at = starts[term]!;
      const end = starts[term + 1]!;
      const weight = count * inverseFrequency(end - at, this.documents) * (K1 + 1);
      return { at, end, weight, bound: weight * this.#largestFactor(term) * SLACK };
    });
  }

  #largestFactor(term: number): number {
    if (this.#largest[term] === 0) {
      const { starts, documents, frequencies, lengths } = this.postings;
      let largest = 0;
      for (let at = starts[term]!; at < starts[term + 1]!; at++) {
        const factor = frequencies[at]! / (frequencies[at]! + this.#norms[lengths[documents[at]!]!]!);
        if (factor > largest) largest = factor;
      }
      this.#largest[term] = largest;
    }
    return this.#largest[term]!;
  }
}

/** Longest document whose norm is in the table. Chunks are far shorter; what is longer does not exist. */
const LONGEST_TABLE = 1 << 24;

function norm(length: number, mean: number): number {
  return K1 * (1 - B + (B * length) / mean);
}

/** Never negative, unlike the original: a term in every document still counts a little (as in Lucene). */
function inverseFrequency(holders: number, documents: number): number {
  return Math.log(1 + (documents - holders + 0.5) / (holders + 0.5));
}

/** What all terms from each one on can add together. */
function restsOf(cursors: readonly Cursor[]): Float64Array {
  const rests = new Float64Array(cursors.length + 1);
  for (let term = cursors.length - 1; term >= 0; term--) {
    rests[term] = (rests[term + 1]! + cursors[term]!.bound) * SLACK;
  }
  return rests;
}

/** First place from `at` on whose document is not before the one that is sought, by growing steps, then by halves. */
function seek(documents: Uint32Array, at: number, end: number, document: number): number {
  if (at >= end || documents[at]! >= document) return at;
  let step = 1;
  let low = at;
  let high = at + 1;
  while (high < end && documents[high]! < document) {
    low = high;
    step *= 2;
    high = Math.min(end, high + step);
  }
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (documents[middle]! < document) low = middle;
    else high = middle;
  }
  return high;
}

/** The best hits so far: a heap with the worst on top. Documents come ascending, so of equal scores the first stay. */
class BestHits {
  /** What a document must exceed. */
  threshold = 0;
  readonly #k: number;
  readonly #heap: Hit[] = [];

  constructor(k: number) {
    this.#k = k;
  }

  add(document: number, score: number): void {
    const heap = this.#heap;
    if (heap.length < this.#k) {
      heap.push({ document, score });
      this.#rise(heap.length - 1);
    } else {
      heap[0] = { document, score };
      this.#sink();
    }
    if (heap.length === this.#k) this.threshold = heap[0]!.score;
  }

  inOrder(): Hit[] {
    return this.#heap.sort((a, b) => b.score - a.score || a.document - b.document);
  }

  #rise(start: number): void {
    const heap = this.#heap;
    let place = start;
    const hit = heap[place]!;
    while (place > 0) {
      const parent = (place - 1) >>> 1;
      if (!isWorse(hit, heap[parent]!)) break;
      heap[place] = heap[parent]!;
      place = parent;
    }
    heap[place] = hit;
  }

  #sink(): void {
    const heap = this.#heap;
    const hit = heap[0]!;
    let place = 0;
    for (;;) {
      let child = place * 2 + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isWorse(heap[child + 1]!, heap[child]!)) child++;
      if (!isWorse(heap[child]!, hit)) break;
      heap[place] = heap[child]!;
      place = child;
    }
    heap[place] = hit;
  }
}

function isWorse(a: Hit, b: Hit): boolean {
  return a.score < b.score || (a.score === b.score && a.document > b.document);
}
