import { WarmpathError } from '../errors.js';
import { agglomeration } from './agglomerate.js';
import { type Batch, internBatch } from './batch.js';
import { groupRecursion, Remainders } from './group-recursion.js';
import { PlanTree, treeOrders } from './plan-tree.js';
import { type RefinementLimits, refine } from './refine.js';

/** Distinct sets up to which a batch is agglomerated as one group. Agglomeration is quadratic. */
const MAX_SETS_IN_ONE_GROUP = 2000;
/** Sets of a group in a larger batch. */
const GROUP_SETS = 512;
/** Bounds the time of refinement on any input. */
const REFINEMENT: RefinementLimits = { rounds: 16, labels: 10_000_000 };

/** How to plan a batch. */
export interface PlanOptions {
  /**
   * Tokens that the prefix cache of the engine holds (documents without `tokens`). Default: unlimited. A cache with
   * room for the longest context finds as much as an unlimited one. Of a longer context, only the leading documents
   * that fit count as cached.
   */
  readonly capacity?: number;
  /** Tokens of a document by its id, finite and 0 or more. Default: 1 for each document. */
  readonly tokens?: (document: string) => number;
}

/** One context of a plan. */
interface PlanStep {
  /** Index of the context in the batch. */
  readonly index: number;
  /** Its documents in prompt order. */
  readonly documents: readonly string[];
  /** Leading documents that earlier steps leave in the cache. */
  readonly sharedDocuments: number;
}

/** The order in which to send a batch, and its cost. */
export interface BatchPlan {
  /** All contexts of the batch, in execution order. */
  readonly steps: readonly PlanStep[];
  /** Documents of all contexts. */
  readonly documents: number;
  /** Tokens of all contexts; `documents` without `tokens`. */
  readonly tokens: number;
  /** Nodes of the trie of all orders: documents to prefill with an unlimited cache. */
  readonly trieNodes: number;
  /** Tokens of these nodes. */
  readonly trieTokens: number;
  /** Share of `documents` found in the cache, 0 to 1. */
  readonly reuse: number;
  /** Share of `tokens` found in the cache, 0 to 1. */
  readonly tokenReuse: number;
}

/**
 * Orders a batch: the documents of each context, and the contexts themselves. Deterministic.
 *
 * The plan has few trie tokens: the prefill left with an unlimited cache. Contexts run depth first through the trie, so
 * a cache with room for one context is enough. A context may be empty or have a document twice. Memory: about 200 bytes
 * for each document of a context.
 *
 * @throws `WARMPATH_INVALID_REQUEST` with path `tokens` or `capacity`
 */
export function planBatch(contexts: readonly (readonly string[])[], options: PlanOptions = {}): BatchPlan {
  const { capacity = Number.POSITIVE_INFINITY } = options;
  if (!(capacity >= 0)) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
      path: 'capacity',
      detail: 'a number of 0 or more was expected',
    });
  }
  const batch = internBatch(contexts, options.tokens);
  const symbols = treeOrders(buildTree(batch));
  const orders = { starts: batch.starts, items: symbols.map((symbol) => batch.documentOf[symbol]!) };
  const order = executionOrder(orders);
  const shared = sharedWithPrevious(orders, order);
  const trie = measure(batch, orders, { order, shared, capacity: Number.POSITIVE_INFINITY });
  const cached = measure(batch, orders, { order, shared, capacity });
  const { documents, tokens } = trie;
  return {
    steps: writeSteps(batch, orders, { order, sharedDocuments: cached.sharedDocuments }),
    documents,
    tokens,
    trieNodes: documents - trie.cachedDocuments,
    trieTokens: tokens - trie.cachedTokens,
    reuse: documents === 0 ? 0 : cached.cachedDocuments / documents,
    tokenReuse: tokens === 0 ? 0 : cached.cachedTokens / tokens,
  };
}

function buildTree(batch: Batch): PlanTree {
  const tree = new PlanTree(batch);
  const remainders = new Remainders(batch);
  const groupLimit = batch.sets.length <= MAX_SETS_IN_ONE_GROUP ? MAX_SETS_IN_ONE_GROUP : GROUP_SETS;
  groupRecursion(tree, remainders, groupLimit, agglomeration(tree, remainders));
  refine(tree, REFINEMENT);
  return tree;
}

interface Execution {
  readonly order: Int32Array;
  /** Documents that each step shares with the step before it. */
  readonly shared: Int32Array;
  readonly capacity: number;
}

interface Measured {
  readonly documents: number;
  readonly tokens: number;
  readonly cachedDocuments: number;
  readonly cachedTokens: number;
  /** By step. */
  readonly sharedDocuments: Int32Array;
}

/** Documents and tokens that a cache of `capacity` has of each step, and in all. */
function measure(batch: Batch, { starts, items }: NumberedOrders, { order, shared, capacity }: Execution): Measured {
  const tokensOf = new Float64Array(batch.names.length);
  for (const [symbol, document] of batch.documentOf.entries()) tokensOf[document] = batch.weights[symbol]!;
  const sharedDocuments = new Int32Array(order.length);
  let tokens = 0;
  let cachedDocuments = 0;
  let cachedTokens = 0;
  for (let step = 0; step < order.length; step++) {
    const start = starts[order[step]!]!;
    let depth = 0;
    for (let i = start; i < starts[order[step]! + 1]!; i++) {
      depth += tokensOf[items[i]!]!;
      if (i - start >= shared[step]! || depth > capacity) continue;
      sharedDocuments[step]!++;
      cachedTokens += tokensOf[items[i]!]!;
    }
    tokens += depth;
    cachedDocuments += sharedDocuments[step]!;
  }
  return { documents: items.length, tokens, cachedDocuments, cachedTokens, sharedDocuments };
}

function writeSteps(
  { names }: Batch,
  { starts, items }: NumberedOrders,
  { order, sharedDocuments }: { order: Int32Array; sharedDocuments: Int32Array },
): PlanStep[] {
  return Array.from(order, (index, step) => ({
    index,
    documents: Array.from(items.subarray(starts[index], starts[index + 1]), (document) => names[document]!),
    sharedDocuments: sharedDocuments[step]!,
  }));
}

/**
 * Contexts in prompt order, as document numbers: context `i` is `items[starts[i]]` up to, not including,
 * `items[starts[i + 1]]`.
 */
interface NumberedOrders {
  readonly starts: Int32Array;
  readonly items: Int32Array;
}

/**
 * The execution order: depth first through the trie of the orders, so contexts with a common prefix follow each other.
 * A context shares with the one before it all that it shares with any earlier one. Equal orders keep the order of the
 * batch. O(n log n) comparisons.
 */
function executionOrder({ starts, items }: NumberedOrders): Int32Array {
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

/** Documents that each step shares with the step before it. O(total documents). */
function sharedWithPrevious({ starts, items }: NumberedOrders, order: Int32Array): Int32Array {
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
