import type { Batch } from './batch.js';

/**
 * Every set in the order of an FP-tree: the documents that most contexts have first, weighted by their tokens. Returns
 * symbols in the layout of the batch. Cost: O(total documents x log k).
 */
export function frequencyOrder({ items, starts, weights, documentOf }: Batch): Int32Array {
  const counts = new Float64Array(documentOf.length);
  for (const symbol of items) counts[symbol]! += weights[symbol]!;
  const orders = items.slice();
  for (let i = 0; i + 1 < starts.length; i++) {
    orders.subarray(starts[i], starts[i + 1]).sort((a, b) => counts[b]! - counts[a]! || a - b);
  }
  return orders;
}
