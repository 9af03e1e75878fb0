import type { NumberedOrders } from './execution-order.js';

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
