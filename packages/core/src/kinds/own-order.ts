import type { DocumentSpan } from '../recognise/block.js';

/** Characters at the beginning of a document that may say which part of a whole it is. */
const HEAD_LENGTH = 200;
/** Numbers of a head that are compared. */
const MAX_NUMBERS = 12;
/** Fewer documents always stand in some order. */
const MIN_ORDERED = 3;

/**
 * Whether documents stand in an order of their own: dates, versions, page or chunk numbers, turns, hunks of a diff.
 * A number at the same place of each beginning rises, or falls, from document to document. Labels do not count. Chance
 * alone does that sometimes, so only what most prompts of a kind show means something.
 */
export function isInOwnOrder(text: string, documents: readonly DocumentSpan[]): boolean {
  if (documents.length < MIN_ORDERED) return false;
  const heads = documents.map((document) => numbersOf(text, document));
  const shared = Math.min(...heads.map(({ length }) => length));
  for (let slot = 0; slot < shared; slot++) {
    const values = heads.map((numbers) => numbers[slot]!);
    const steps = values.slice(1).map((value, i) => Math.sign(value - values[i]!));
    if (steps[0] !== 0 && steps.every((step) => step === steps[0])) return true;
  }
  // Dates compare from year to day, versions from major to patch.
  const order = heads.slice(1).map((numbers, i) => compareNumbers(heads[i]!.slice(0, shared), numbers));
  return shared > 0 && order[0] !== 0 && order.every((step) => step === order[0]);
}

function numbersOf(text: string, { start, end, labels }: DocumentSpan): readonly number[] {
  const labelled = new Set(labels.map((label) => label.start));
  const numbers: number[] = [];
  for (const match of text.slice(start, Math.min(end, start + HEAD_LENGTH)).matchAll(/\d{1,15}/g)) {
    if (!labelled.has(start + match.index)) numbers.push(Number(match[0]));
    if (numbers.length === MAX_NUMBERS) break;
  }
  return numbers;
}

function compareNumbers(one: readonly number[], other: readonly number[]): number {
  for (const [i, number] of one.entries()) {
    const step = Math.sign(other[i]! - number);
    if (step !== 0) return step;
  }
  return 0;
}

/** Pairs of documents that are remembered, and documents of a prompt that are compared with each other. */
const MAX_PAIRS = 2_048;
const MAX_COMPARED = 8;
/** Pairs that came again before their order says something. */
const MIN_PAIRS = 20;
/** Share of them that stand the other way round where nothing keeps an order, and where something does. */
const FREE_SHARE = 0.1;
const KEPT_SHARE = 0.02;
/** Estimated bytes of a remembered pair. */
const PAIR_BYTES = 120;

/**
 * Whether two documents that come again stand in the order that they had before. Documents with an order of their own,
 * of whatever kind, always do. A relevance order is another one for each question.
 */
export class PairOrders {
  /** Whether the document with the smaller hash stood first. The pair seen longest ago comes first. */
  readonly #pairs = new Map<string, boolean>();
  #again = 0;
  #turned = 0;

  get bytes(): number {
    return this.#pairs.size * PAIR_BYTES;
  }

  /** Whether pairs came again the other way round, often enough that no order is kept. */
  get isFree(): boolean {
    return this.#again >= MIN_PAIRS && this.#turned >= FREE_SHARE * this.#again;
  }

  /** Whether pairs came again, nearly always in the same order. */
  get isKept(): boolean {
    return this.#again >= MIN_PAIRS && this.#turned <= KEPT_SHARE * this.#again;
  }

  /** Learns from the documents of a prompt, as hashes of what they say. O(1). */
  add(hashes: readonly number[]): void {
    const compared = hashes.slice(0, MAX_COMPARED);
    for (const [rank, one] of compared.entries()) {
      for (const other of compared.slice(rank + 1)) {
        if (one === other) continue;
        const isSmallFirst = one < other;
        const key = isSmallFirst ? `${one},${other}` : `${other},${one}`;
        const known = this.#pairs.get(key);
        if (known !== undefined) {
          this.#again++;
          if (known !== isSmallFirst) this.#turned++;
          this.#pairs.delete(key);
        }
        this.#pairs.set(key, isSmallFirst);
      }
    }
    while (this.#pairs.size > MAX_PAIRS) this.#pairs.delete(this.#pairs.keys().next().value!);
  }
}
