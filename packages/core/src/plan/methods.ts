import { agglomeration } from './agglomerate.js';
import type { Batch } from './batch.js';
import { ContextIndex } from './context-index.js';
import { groupRecursion, hangLeaves } from './group-recursion.js';
import { PlanTree } from './plan-tree.js';
import { type RefinementLimits, refine } from './refine.js';
import { Remainders } from './remainders.js';

/**
 * Writes down the orders that a plan tree stands for: every context's labels from the root down. Within a label,
 * documents stand in the retrieval order of the first context below it, so that the plan moves nothing that it need not
 * move. Returns symbols in the layout of the batch; contexts with the same documents get the same order. Cost: O(total
 * documents x log k).
 */
function treeOrders(tree: PlanTree): Int32Array {
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

/** Names of the ways to plan a batch, the default first. */
export const PLAN_METHODS = [
  'combined',
  'agglomeration',
  'group-recursion',
  'frequency',
  'retrieval',
  'context-index',
] as const;

/** How a batch is planned; see `planBatch`. */
export type PlanMethod = (typeof PLAN_METHODS)[number];

/** What a method decides. */
export interface PlannedOrders {
  /** Symbols in prompt order, in the layout of the batch. */
  readonly symbols: Int32Array;
  /** Execution order, where it is the method's own and not depth first. */
  readonly schedule?: Int32Array;
}

/** Batches of up to this many sets are agglomerated whole. Quadratic: four times the time for twice as many. */
const WHOLE_LIMIT = 2000;
/**
 * Larger ones in groups of this size. On 100,000 Zipf contexts, 1,000 found 0.1 points more in nearly twice the time.
 */
const GROUP_LIMIT = 512;
/** 1,000 contexts settle within 3 million labels, 4,000 within 10 million; 100,000 stop there, after half a second. */
const REFINEMENT: RefinementLimits = { rounds: 16, labels: 10_000_000 };
/** Contexts that the context index clusters; its matrix then takes 32 MB. */
const CLUSTER_LIMIT = 2000;

/** Every method by its name. */
export const METHODS: Readonly<Record<PlanMethod, (batch: Batch) => PlannedOrders>> = {
  combined: (batch) => {
    const tree = agglomerateGroups(batch, batch.sets.length <= WHOLE_LIMIT ? WHOLE_LIMIT : GROUP_LIMIT);
    refine(tree, REFINEMENT);
    return { symbols: treeOrders(tree) };
  },
  agglomeration: (batch) => ({ symbols: treeOrders(agglomerateGroups(batch, Number.POSITIVE_INFINITY)) }),
  'group-recursion': (batch) => {
    const tree = new PlanTree(batch);
    const remainders = new Remainders(batch);
    groupRecursion(tree, remainders, 1, (group) => hangLeaves(tree, remainders, group));
    return { symbols: treeOrders(tree) };
  },
  frequency: (batch) => ({ symbols: frequencyOrder(batch) }),
  retrieval: (batch) => ({ symbols: batch.items }),
  'context-index': planByContextIndex,
};

function agglomerateGroups(batch: Batch, groupLimit: number): PlanTree {
  const tree = new PlanTree(batch);
  const remainders = new Remainders(batch);
  groupRecursion(tree, remainders, groupLimit, agglomeration(tree, remainders));
  return tree;
}

function planByContextIndex({ contexts, starts, items }: Batch): PlannedOrders {
  const index = new ContextIndex();
  const context = (i: number) => Array.from(items.subarray(starts[i], starts[i + 1]));
  const clustered = Array.from({ length: Math.min(contexts, CLUSTER_LIMIT) }, (_, i) => context(i));
  const symbols = new Int32Array(items.length);
  for (const { requestId, documents } of index.build(clustered)) symbols.set(documents, starts[requestId]);
  for (let i = clustered.length; i < contexts; i++) symbols.set(index.insert(context(i)).documents, starts[i]);
  return { symbols, schedule: Int32Array.from(index.schedule()) };
}

/**
 * Every set in the order of an FP-tree: the documents that most contexts have first, weighted by their tokens. Returns
 * symbols in the layout of the batch. Cost: O(total documents x log k).
 */
function frequencyOrder({ items, starts, weights, documentOf }: Batch): Int32Array {
  const counts = new Float64Array(documentOf.length);
  for (const symbol of items) counts[symbol]! += weights[symbol]!;
  const orders = items.slice();
  for (let i = 0; i + 1 < starts.length; i++) {
    orders.subarray(starts[i], starts[i + 1]).sort((a, b) => counts[b]! - counts[a]! || a - b);
  }
  return orders;
}
