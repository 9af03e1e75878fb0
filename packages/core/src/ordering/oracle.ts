import { WarmpathError } from '../errors.js';
import { withCachedPrefix } from './cached-prefix.js';
import type { Dial } from './placement.js';
import type { Ordering, OrderingPolicy } from './policy.js';
import { retrievalOrder } from './retrieval-order.js';

/** 8! = 40,320 permutations take some milliseconds; 9! would take ten times that. */
export const ORACLE_MAX_DOCUMENTS = 8;

/**
 * Tries every permutation within the dial, in lexicographic order of ranks, and keeps the first of those that save most
 * tokens. For tests and comparisons: it shares no code with the search of `exact`, which must equal it.
 * Error: `WARMPATH_TOO_MANY_FOR_POLICY` above 8 documents. O(k!).
 */
export function createOraclePolicy(): OrderingPolicy {
  return {
    name: 'oracle',
    arrange(context, view) {
      const count = context.documents.length;
      if (count > ORACLE_MAX_DOCUMENTS) throw new WarmpathError('WARMPATH_TOO_MANY_FOR_POLICY');
      let best: Ordering | undefined;
      for (const order of permutations(count)) {
        if (!isWithin(order, context)) continue;
        const ordering = withCachedPrefix(order, context, view);
        if (best === undefined || ordering.cachedTokens > best.cachedTokens) best = ordering;
      }
      // Retrieval order keeps within every dial, so there is always a best one.
      return best ?? withCachedPrefix(retrievalOrder(count), context, view);
    },
  };
}

function isWithin(order: readonly number[], dial: Dial): boolean {
  const { maxShift, pinned } = dial;
  return (
    pinned.every((rank) => order[rank] === rank) &&
    (maxShift === undefined || order.every((rank, place) => Math.abs(rank - place) <= maxShift))
  );
}

/** All permutations of 0..count-1, in lexicographic order. */
function* permutations(count: number): Generator<readonly number[]> {
  const order = retrievalOrder(count);
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
