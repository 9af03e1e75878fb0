import type { Workload } from '../workloads/workload.js';

/** The distinct sets of documents of a workload, and what their documents cost. */
export interface DistinctContexts {
  /** Sets as sorted numbers of documents, none twice. */
  readonly sets: readonly (readonly number[])[];
  /** Tokens of a document, by number. */
  readonly weights: readonly number[];
  /** Tokens of the documents of all requests, repeated sets included. */
  readonly totalTokens: number;
}

/**
 * What matters of a workload when nothing is ever forgotten: requests for the same documents count once, and documents
 * without tokens not at all. O(total documents x log k).
 */
export function distinctContexts(workload: Workload): DistinctContexts {
  const numbers = new Map<string, number>();
  const weights: number[] = [];
  const sets = new Map<string, readonly number[]>();
  let totalTokens = 0;
  for (const { documents } of workload.requests) {
    const set: number[] = [];
    for (const { key, tokens } of documents) {
      if (tokens === 0) continue;
      totalTokens += tokens;
      let number = numbers.get(key);
      if (number === undefined) {
        number = weights.push(tokens) - 1;
        numbers.set(key, number);
      }
      set.push(number);
    }
    set.sort((one, other) => one - other);
    if (set.length > 0) sets.set(set.join(), set);
  }
  return { sets: [...sets.values()], weights, totalTokens };
}

/**
 * Groups of sets such that sets of different groups share no document: each can be ordered by itself. O(total
 * documents).
 */
export function connectedGroups({ sets, weights }: DistinctContexts): readonly (readonly (readonly number[])[])[] {
  const parents = Int32Array.from(weights, (_, document) => document);
  const rootOf = (document: number): number => {
    let root = document;
    while (parents[root] !== root) {
      parents[root] = parents[parents[root]!]!;
      root = parents[root]!;
    }
    return root;
  };
  for (const set of sets) for (const document of set) parents[rootOf(document)] = rootOf(set[0]!);
  const groups = new Map<number, (readonly number[])[]>();
  for (const set of sets) {
    const root = rootOf(set[0]!);
    const group = groups.get(root);
    if (group === undefined) groups.set(root, [set]);
    else group.push(set);
  }
  return [...groups.values()];
}
