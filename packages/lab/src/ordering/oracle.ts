import { type Context, type Ordering, type OrderingPolicy, WarmpathError, withCachedPrefix } from '@warmpath/core';

/** 8! = 40,320 permutations take some milliseconds; 9! would take ten times that. */
const MAX_DOCUMENTS = 8;

/**
 * Tries every permutation within `maxShift` and `pinned`, in lexicographic order of ranks. Keeps the first of those
 * that save most tokens. It shares no code with the search of the core's `exact`, which must give the same answer.
 * O(k!).
 *
 * @throws WARMPATH_INVALID_REQUEST for more than 8 documents.
 */
export function createOraclePolicy(): OrderingPolicy {
  return {
    name: 'oracle',
    arrange(context, view) {
      const count = context.documents.length;
      if (count > MAX_DOCUMENTS) {
        const detail = `\`oracle\` takes at most ${MAX_DOCUMENTS} documents; \`exact\` finds the same optimum`;
        throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'documents', detail });
      }
      let best: Ordering | undefined;
      for (const order of permutations(count)) {
        if (!isWithin(order, context)) continue;
        const ordering = withCachedPrefix(order, context, view);
        if (best === undefined || ordering.cachedTokens > best.cachedTokens) best = ordering;
      }
      // Retrieval order is the first permutation and within every limit, so there is always a best one.
      return { ...best!, laterTokens: 0 };
    },
  };
}

function isWithin(order: readonly number[], { maxShift, pinned }: Context): boolean {
  return (
    pinned.every((rank) => order[rank] === rank) &&
    (maxShift === undefined || order.every((rank, place) => Math.abs(rank - place) <= maxShift))
  );
}

/** All permutations of 0..count-1, in lexicographic order. */
function* permutations(count: number): Generator<readonly number[]> {
  const order = Array.from({ length: count }, (_, rank) => rank);
  for (;;) {
    yield order.slice();
    let pivot = count - 2;
    while (pivot >= 0 && order[pivot]! > order[pivot + 1]!) pivot--;
    if (pivot < 0) return;
    let successor = count - 1;
    while (order[successor]! < order[pivot]!) successor--;
    const moved = order[pivot]!;
    order[pivot] = order[successor]!;
    order[successor] = moved;
    const tail = order.splice(pivot + 1).reverse();
    order.push(...tail);
  }
}
