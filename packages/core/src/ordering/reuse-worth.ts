import type { Document } from '../document.js';

/** What the worth of reuse by expected requests counts beside that of waiting ones, which are certain. */
const EXPECTED_BESIDE_WAITING = 0.05;

/** How fast the worth of a path saturates with the requests that wait for it. */
const WAITING_RATE = 2;

/** What later reuse counts against tokens that are cached now, when it is only expected. */
const EXPECTED_LATER = 0.8;

/**
 * Share of a path's tokens that leaving it behind will save, when so many requests could use it and find nothing as
 * long. It saturates: of all who would use the path only the first would have had to create it. In [0, 1.1). O(1).
 */
export function worthOf(waiting: number, expected: number, queueKnown: boolean): number {
  const byExpected = expected === 0 ? 0 : 1 - Math.exp(-expected);
  if (!queueKnown) return byExpected;
  return (waiting === 0 ? 0 : 1 - Math.exp(-WAITING_RATE * waiting)) + EXPECTED_BESIDE_WAITING * byExpected;
}

/**
 * How much a request counts that finds `held` tokens cached anyway, for a path of `tokens`: fully if the path takes it
 * a document of mean length further, else in part, and not at all if it takes it no further. In [0, 1]. O(1).
 */
export function shareGained(tokens: number, held: number, meanLength: number): number {
  const gained = tokens - held;
  if (gained <= 0) return 0;
  return gained >= meanLength ? 1 : gained / meanLength;
}

/** What a token saved later counts, when a token saved now counts 1. */
export function weightOfLater(queueKnown: boolean): number {
  return queueKnown ? 1 : EXPECTED_LATER;
}

/** Deviation of lengths, as a share of their mean, from which on a guessed demand is trusted. */
const MIN_LENGTH_DEVIATION = 0.15;

/**
 * Whether the lengths of documents differ enough to plan by what recent requests let expect alone. What differs in
 * length is known; which documents come back is a guess, and among documents of like length plans by it lost as often
 * as they won (docs/research/foresight.md). O(k).
 */
export function lengthsDiffer(documents: readonly Document[]): boolean {
  let sum = 0;
  let squares = 0;
  for (const { tokens } of documents) {
    sum += tokens;
    squares += tokens * tokens;
  }
  const mean = sum / documents.length;
  return squares / documents.length - mean * mean >= (MIN_LENGTH_DEVIATION * mean) ** 2 && sum > 0;
}
