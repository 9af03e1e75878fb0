import type { DocumentSpan } from '../recognise/block.js';

/** Characters at the beginning of a document that may say which part of a whole it is. */
const HEAD_LENGTH = 200;
/** Numbers of a head that are compared. */
const MAX_NUMBERS = 12;

/**
 * Whether documents stand in an order of their own: dates, versions, page or chunk numbers, turns, hunks of a diff.
 * A number at the same place of each beginning rises, or falls, from document to document. Labels do not count. Two
 * documents always have one order or the other, so only what most prompts of a kind show means something.
 */
export function isInOwnOrder(text: string, documents: readonly DocumentSpan[]): boolean {
  if (documents.length < 2) return false;
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
