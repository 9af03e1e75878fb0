/**
 * Contexts in prompt order, as numbers of documents: context `i` from `starts[i]` up to, not including, `starts[i +
 * 1]`.
 */
export interface NumberedOrders {
  readonly starts: Int32Array;
  readonly items: Int32Array;
}

/**
 * The order in which to send the contexts: depth first through the trie of their orders, so that contexts with a common
 * prefix follow each other. Then each context finds in a cache with room for one context all that any earlier one left
 * it: whatever it shares with an earlier context it shares with the one right before it. Contexts with equal orders
 * keep the order of the batch. Cost: O(n log n) comparisons of prefixes.
 */
export function executionOrder({ starts, items }: NumberedOrders): Int32Array {
  const order = Int32Array.from({ length: starts.length - 1 }, (_, i) => i);
  return order.sort((one, other) => {
    const startOne = starts[one]!;
    const startOther = starts[other]!;
    const lengthOne = starts[one + 1]! - startOne;
    const lengthOther = starts[other + 1]! - startOther;
    const length = Math.min(lengthOne, lengthOther);
    for (let i = 0; i < length; i++) {
      const difference = items[startOne + i]! - items[startOther + i]!;
      if (difference !== 0) return difference;
    }
    return lengthOne - lengthOther || one - other;
  });
}

/** Documents that each step of an execution order shares with the step before it. Cost: O(total documents). */
export function sharedWithPrevious({ starts, items }: NumberedOrders, order: Int32Array): Int32Array {
  const shared = new Int32Array(order.length);
  for (let step = 1; step < order.length; step++) {
    const start = starts[order[step]!]!;
    const startBefore = starts[order[step - 1]!]!;
    const limit = Math.min(starts[order[step]! + 1]! - start, starts[order[step - 1]! + 1]! - startBefore);
    let length = 0;
    while (length < limit && items[start + length] === items[startBefore + length]) length++;
    shared[step] = length;
  }
  return shared;
}
