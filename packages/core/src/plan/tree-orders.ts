import type { PlanTree } from './plan-tree.js';

/**
 * Writes down the orders that a plan tree stands for: every context's labels from the root down. Within a label,
 * documents stand in the retrieval order of the first context below it, so that the plan moves nothing that it need not
 * move. Returns symbols in the layout of the batch; contexts with the same documents get the same order. Cost: O(total
 * documents x log k).
 */
export function treeOrders(tree: PlanTree): Int32Array {
  const { batch } = tree;
  const orders = new Int32Array(batch.items.length);
  sortLabels(tree);
  const ends = new Int32Array(batch.contexts);
  for (let context = 0; context < batch.contexts; context++) {
    const leaf = batch.setOf[context]!;
    const first = batch.sets[leaf]!;
    const start = batch.starts[context]!;
    if (first !== context) {
      orders.copyWithin(start, batch.starts[first]!, batch.starts[first + 1]!);
      continue;
    }
    ends[context] = batch.starts[context + 1]!;
    for (let node = leaf; node >= 0; node = tree.parent[node]!) {
      const label = tree.labels[node]!;
      ends[context]! -= label.length;
      orders.set(label, ends[context]!);
    }
  }
  return orders;
}

/**
 * Leaves come in the order of their first contexts, so the first leaf to reach a node on its way up is the one it goes
 * by.
 */
function sortLabels({ batch, labels, parent, leaves, size }: PlanTree): void {
  const sorted = new Uint8Array(size);
  const rank = new Int32Array(batch.documentOf.length);
  for (let leaf = 0; leaf < leaves; leaf++) {
    const context = batch.sets[leaf]!;
    for (let i = batch.starts[context]!; i < batch.starts[context + 1]!; i++) rank[batch.items[i]!] = i;
    for (let node = leaf; node >= 0 && sorted[node] === 0; node = parent[node]!) {
      sorted[node] = 1;
      labels[node]!.sort((a, b) => rank[a]! - rank[b]!);
    }
  }
}
