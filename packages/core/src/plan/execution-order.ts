/**
 * RAGBoost's schedule (section 5.2): contexts grouped by the first element of their search paths, larger groups first,
 * and within a group longer paths first, then by path, then by index. Empty paths form a group of their own. Cost: O(n
 * log n) comparisons.
 */
export function schedulePaths(paths: readonly (readonly number[])[]): number[] {
  const groups = new Map<number, number[]>();
  for (const [index, path] of paths.entries()) {
    const first = path[0] ?? -1;
    const group = groups.get(first);
    if (group === undefined) groups.set(first, [index]);
    else group.push(index);
  }
  return [...groups.entries()]
    .sort(([firstOfOne, one], [firstOfOther, other]) => other.length - one.length || firstOfOne - firstOfOther)
    .flatMap(([, group]) => group.sort((one, other) => comparePaths(paths[one]!, paths[other]!) || one - other));
}

function comparePaths(one: readonly number[], other: readonly number[]): number {
  if (one.length !== other.length) return other.length - one.length;
  for (const [level, child] of one.entries()) if (child !== other[level]) return child - other[level]!;
  return 0;
}

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

/**
 * How many documents of each step, from the start, an earlier step had in the same places: what a cache that forgets
 * nothing holds of it, whatever the execution order. Cost: O(total documents) expected, one entry of a hash table a
 * trie node.
 */
export function sharedWithAnyEarlier({ starts, items }: NumberedOrders, order: Int32Array): Int32Array {
  const shared = new Int32Array(order.length);
  let documents = 0;
  for (const item of items) documents = Math.max(documents, item + 1);
  const children = new Map<number, number>();
  for (const [step, context] of order.entries()) {
    let node = 0;
    for (let i = starts[context]!; i < starts[context + 1]!; i++) {
      const key = node * documents + items[i]!;
      const child = children.get(key);
      if (child !== undefined) shared[step]!++;
      node = child ?? children.size + 1;
      if (child === undefined) children.set(key, node);
    }
  }
  return shared;
}
