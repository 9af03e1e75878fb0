/** One set that a trie may have as the content of a path. */
export interface SharedSet {
  /** The set, one bit a document of the group. */
  readonly mask: bigint;
  readonly tokens: number;
  /** Whether a request asks for exactly this set. */
  readonly isRequested: boolean;
  /** Places of the largest sets of the list that this one holds whole; place 0 is the empty set. */
  readonly parents: readonly number[];
}

/**
 * The empty set, the sets that requests ask for, and all intersections of some of them, smaller ones first. A best trie
 * branches at no other set: what all requests below a node share can stand above it. Only the largest sets within a set
 * count as its parents, for a path that passes through one more set costs nothing more. `undefined` if there are more
 * than `limit`. Cost: O(sets found x requests + sets²) operations on masks.
 */
export function sharedSets(
  requested: readonly (readonly number[])[],
  weights: readonly number[],
  limit: number,
): readonly SharedSet[] | undefined {
  const bits = new Map<number, bigint>();
  for (const document of requested.flat()) if (!bits.has(document)) bits.set(document, 1n << BigInt(bits.size));
  const documents = [...bits.keys()];
  const requests = requested.map((set) => set.reduce((mask, document) => mask | bits.get(document)!, 0n));
  const masks = intersections(requests, limit);
  if (masks === undefined) return undefined;
  const isRequested = new Set(requests);
  const tokensOf = (mask: bigint): number => {
    let tokens = 0;
    for (let rest = mask, place = 0; rest > 0n; rest >>= 1n, place++) {
      if ((rest & 1n) === 1n) tokens += weights[documents[place]!]!;
    }
    return tokens;
  };
  // Every document has tokens, so a set stands behind all sets that it holds.
  const sets = masks
    .map((mask) => ({ mask, tokens: tokensOf(mask), isRequested: isRequested.has(mask) }))
    .sort((one, other) => one.tokens - other.tokens);
  return sets.map((set, place) => ({ ...set, parents: largestWithin(sets, place) }));
}

function intersections(requests: readonly bigint[], limit: number): bigint[] | undefined {
  const found = new Set<bigint>([0n, ...requests]);
  // A Set hands out what is added while it is walked.
  for (const set of found) {
    for (const request of requests) found.add(set & request);
    if (found.size > limit) return undefined;
  }
  return [...found];
}

function largestWithin(sets: readonly { readonly mask: bigint }[], place: number): number[] {
  const { mask } = sets[place]!;
  const largest: number[] = [];
  for (let other = place - 1; other >= 0; other--) {
    const candidate = sets[other]!.mask;
    if ((candidate & mask) !== candidate) continue;
    if (!largest.some((held) => (sets[held]!.mask & candidate) === candidate)) largest.push(other);
  }
  return largest;
}
