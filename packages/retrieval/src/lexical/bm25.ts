import type { Postings } from './postings.js';
import { tokenise } from './tokenise.js';

/** The constants of Robertson and Zaragoza (2009) at the values that most systems take. */
const K1 = 1.2;
const B = 0.75;
/** What is looked at of a query: its beginning, and of the distinct terms there the rarest. */
const MAX_QUERY_LENGTH = 32_768;
const MAX_QUERY_TERMS = 128;
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
 * window of documents at a time, so that what is frequent costs little. What an entry adds to a score depends on its
 * frequency and its document's length alone: both together are a code, and factors are looked up by codes.
 */
export class Bm25 {
  readonly postings: Postings;
  readonly #codes: EntryCodes;
  /** Of each term: the code with the largest factor, plus one. Found when a term is first asked for. */
  readonly #largest: Uint32Array;
  readonly #scores = new Float64Array(WINDOW);

  constructor(postings: Postings) {
    this.postings = postings;
    this.#codes = encodeEntries(postings);
    this.#largest = new Uint32Array(postings.terms.size);
  }

  get documents(): number {
    return this.postings.ordinals.length;
  }

  /** The k best documents that have a term of the text. Cost: a fraction of the postings of its terms. */
  search(text: string, k: number): Hit[] {
    const cursors = this.#cursors(text);
    const { documents } = this.postings;
    const { codes, factors } = this.#codes;
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
      for (let term = 0; term < essential; term++) this.#addEntries(cursors[term]!, from, until);
      const others = restBounds[essential]!;
      // What is below this cannot come in with all that others can add.
      let least = best.threshold / SLACK - others;
      for (let document = from; document < until; document++) {
        let score = scores[document - from]!;
        if (score <= least || score === 0) continue;
        for (let term = essential; term < cursors.length; term++) {
          if ((score + restBounds[term]!) * SLACK <= best.threshold) {
            score = 0;
            break;
          }
          const cursor = cursors[term]!;
          cursor.at = seek(documents, cursor.at, cursor.end, document);
          if (cursor.at < cursor.end && documents[cursor.at] === document)
            score += cursor.weight * factors[codes[cursor.at]!]!;
        }
        if (score > best.threshold) {
          best.add(document, score);
          least = best.threshold / SLACK - others;
        }
      }
      scores.fill(0, 0, until - from);
      from = until;
    }
    return best.inOrder();
  }

  /** Adds what a term adds to the documents of a window, and moves its cursor behind them. */
  #addEntries(cursor: Cursor, from: number, until: number): void {
    const { documents } = this.postings;
    const { codes, factors } = this.#codes;
    const scores = this.#scores;
    const { end, weight } = cursor;
    let at = cursor.at;
    for (; at < end; at++) {
      const document = documents[at]!;
      if (document >= until) break;
      scores[document - from]! += weight * factors[codes[at]!]!;
    }
    cursor.at = at;
  }

  #cursors(text: string): Cursor[] {
    const { terms, starts } = this.postings;
    const { factors } = this.#codes;
    const counts = new Map<number, number>();
    for (const word of tokenise(text.slice(0, MAX_QUERY_LENGTH))) {
      const term = terms.get(word);
      if (term !== undefined) counts.set(term, (counts.get(term) ?? 0) + 1);
    }
    const rarestFirst = [...counts].sort(
      ([a], [b]) => starts[a + 1]! - starts[a]! - (starts[b + 1]! - starts[b]!) || a - b,
    );
    return rarestFirst.slice(0, MAX_QUERY_TERMS).map(([term, count]) => {
      const at = starts[term]!;
      const end = starts[term + 1]!;
      const weight = count * inverseFrequency(end - at, this.documents) * (K1 + 1);
      return { at, end, weight, bound: weight * factors[this.#largestCode(term)]! * SLACK };
    });
  }

  #largestCode(term: number): number {
    if (this.#largest[term] === 0) {
      const { starts } = this.postings;
      const { codes, factors } = this.#codes;
      let largest = codes[starts[term]!]!;
      for (let at = starts[term]!; at < starts[term + 1]!; at++) {
        if (factors[codes[at]!]! > factors[largest]!) largest = codes[at]!;
      }
      this.#largest[term] = largest + 1;
    }
    return this.#largest[term]! - 1;
  }
}

type Codes = Uint8Array | Uint16Array | Uint32Array;

/** What each entry of postings is worth. */
interface EntryCodes {
  /** By entry. */
  readonly codes: Codes;
  /** By code: `frequency / (frequency + k1 · (1 − b + b · length / mean length))`. */
  readonly factors: Float64Array;
}

/** Frequencies and lengths up to which pairs are looked up in a flat table; others are rare. */
const TABLE_FREQUENCY = 16;
const TABLE_LENGTH = 4096;

/** Numbers the pairs of frequency and length as they come. O(entries). */
function encodeEntries({ documents, frequencies, lengths }: Postings): EntryCodes {
  let total = 0;
  for (const length of lengths) total += length;
  const mean = total / Math.max(1, lengths.length) || 1;
  const table = new Uint32Array(TABLE_FREQUENCY * TABLE_LENGTH);
  const others = new Map<number, number>();
  const factors: number[] = [];
  const codeOf = (frequency: number, length: number): number => {
    const place = frequency * TABLE_LENGTH + length;
    const isCommon = frequency < TABLE_FREQUENCY && length < TABLE_LENGTH;
    const pair = frequency * 2 ** 32 + length;
    const known = isCommon ? table[place]! : (others.get(pair) ?? 0);
    if (known > 0) return known - 1;
    const code = factors.push(frequency / (frequency + norm(length, mean)));
    if (isCommon) table[place] = code;
    else others.set(pair, code);
    return code - 1;
  };
  let codes: Codes = new Uint8Array(documents.length);
  for (let entry = 0; entry < documents.length; entry++) {
    const code = codeOf(frequencies[entry]!, lengths[documents[entry]!]!);
    if (code >= 2 ** (8 * codes.BYTES_PER_ELEMENT)) codes = wider(codes);
    codes[entry] = code;
  }
  return { codes, factors: Float64Array.from(factors) };
}

function wider(codes: Codes): Codes {
  return codes.BYTES_PER_ELEMENT === 1 ? Uint16Array.from(codes) : Uint32Array.from(codes);
}

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
