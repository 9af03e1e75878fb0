import { WarmpathError, type Warning } from '@warmpath/core';
import type { Where } from './where.js';

/** A question, as it is searched for. */
export interface Query {
  readonly text: string;
  /** Earlier questions that it may refer to. They count for less. */
  readonly earlier?: string | undefined;
  /** Where the caller has embedded it already. */
  readonly vector?: Float32Array;
}

/** A passage that a search found. */
export interface ScoredDocument {
  readonly id: string;
  readonly content: string;
  readonly title?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Higher is better. Comparable within one stage only. */
  readonly score: number;
}

/** One step of a search: the best candidates so far. */
export interface Stage {
  /** At most `k`, best first, each id once. */
  readonly candidates: readonly ScoredDocument[];
  /** 0, 1, 2 … */
  readonly index: number;
  /** True for the last stage, and only for it. */
  readonly final: boolean;
  /** What could not be asked for this stage; the candidates are the best without it. */
  readonly warnings?: readonly Warning[];
}

export interface SearchOptions {
  /** Candidates wanted, 1 to 1,000. */
  readonly k: number;
  /** Ends the search: the iteration throws the signal's reason. */
  readonly signal: AbortSignal;
  /** Stages that the caller takes before it ends the search: what later ones need may wait until they are asked for. */
  readonly stages?: number | undefined;
  /** Which passages may be found, by their metadata. */
  readonly where?: Where | undefined;
  /** Passages of a lower score are left out. Scores of words, vectors, fused ranks and rerankers differ in scale. */
  readonly minScore?: number | undefined;
  /** So many passages before and behind each one come along. */
  readonly expand?: number | undefined;
}

/** A question as it is embedded: behind those that it may refer to. */
export function textWithEarlier({ text, earlier }: Query): string {
  return earlier === undefined ? text : `${earlier}\n${text}`;
}

/**
 * A search that may answer in stages, so that generation can start on early candidates (RAGCache, section 5.3). A
 * search without stages yields one, which is final. What may be searched for is checked by `checkSearch`.
 */
export interface StagedRetriever {
  search(query: Query, options: SearchOptions): AsyncIterable<Stage>;
}

/** Most candidates of one search. */
export const MAX_CANDIDATES = 1000;

/**
 * What every retriever does first.
 *
 * @throws WARMPATH_INVALID_REQUEST where `k` is no whole number from 1 to 1,000; the signal's reason where it has
 * fired.
 */
export function checkSearch({ k, signal }: SearchOptions): void {
  if (!Number.isInteger(k) || k < 1 || k > MAX_CANDIDATES) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
      path: 'k',
      detail: `k is a whole number from 1 to ${MAX_CANDIDATES.toLocaleString('en')}, and not ${k}.`,
    });
  }
  signal.throwIfAborted();
}

/** What a promise gives, or the reason of a signal that comes first. Leaves nothing on the signal. */
export async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let abort!: () => void;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
    promise.catch(() => undefined);
  }
}
