import type { Document } from '../document.js';
import type { HotnessView, ResidencyView } from '../residency/view.js';
import {
  BEST_PATH_MAX_OPERATIONS,
  CountedBudget,
  OPERATIONS_A_LOOK_UP,
  preambleNode,
  residentPreambleTokens,
} from '../tree/best-path.js';
import { createExactPolicy, createForesightPolicy } from './foresight.js';
import { ConstraintRule, limitShift, retrievalOrder, withCachedPrefix } from './placement.js';
import type { Context, Ordering, OrderingPolicy, PolicyName } from './policy.js';

/** Keeps retrieval order, as every failure does. O(k). */
function createRetrievalPolicy(): OrderingPolicy {
  return {
    name: 'retrieval',
    arrange: (context, view) => withCachedPrefix(retrievalOrder(context.documents.length), context, view),
  };
}

/** Orders by id, code unit by code unit: the baseline of RAGCache++ §4.1 («APC + Sorted»). O(k log k). */
function createSortedPolicy(): OrderingPolicy {
  return {
    name: 'sorted',
    arrange(context, view) {
      const { documents } = context;
      const desired = retrievalOrder(documents.length).sort(
        (a, b) => compareIds(documents[a]!, documents[b]!) || a - b,
      );
      return withCachedPrefix(limitShift(desired, context), context, view);
    },
  };
}

function compareIds(a: Document, b: Document): number {
  if (a.id === b.id) return 0;
  return a.id < b.id ? -1 : 1;
}

/**
 * Orders by the requests in the sliding window that had a document, most first: the CA-Table of the CP-Tree paper. O(k
 * log k).
 */
function createHotnessPolicy(): OrderingPolicy {
  return createStatisticPolicy('hotness', (hotness, key) => hotness.frequency(key));
}

/** Orders by a statistic of each document, highest first; equal documents keep retrieval order. O(k log k). */
export function createStatisticPolicy(
  name: string,
  statistic: (hotness: HotnessView, key: string) => number,
): OrderingPolicy {
  return {
    name,
    arrange(context, view) {
      const { documents } = context;
      const values = documents.map((document) => statistic(view.hotness, document.key));
      const desired = retrievalOrder(documents.length).sort((a, b) => values[b]! - values[a]! || a - b);
      return withCachedPrefix(limitShift(desired, context), context, view);
    },
  };
}

/**
 * Algorithm 1 of RAGCache++ (§3.3): at each node, follows the first document in retrieval rank that has a cached child.
 * The rest comes in retrieval order. Skips documents that the constraints forbid. Where moving has a price, cuts the
 * walk where it saves most. O(k²) look-ups, at most `maxOperations`.
 */
function createGreedyPolicy(maxOperations: number = BEST_PATH_MAX_OPERATIONS): OrderingPolicy {
  return { name: 'greedy', arrange: (context, view) => arrangeGreedily(context, view, maxOperations) };
}

function arrangeGreedily(context: Context, view: ResidencyView, maxOperations: number): Ordering {
  const { documents, preamble } = context;
  const { tree } = view;
  const rule = new ConstraintRule(documents.length, context);
  const path: number[] = [];
  let node = preambleNode(tree, preamble);
  let cachedTokens = residentPreambleTokens(tree, preamble, node);
  const left = node === undefined ? [] : retrievalOrder(documents.length);
  const budget = new CountedBudget(maxOperations);
  let most = 0;
  let kept = 0;
  let walkedTokens = 0;
  for (let i = 0; i < left.length; ) {
    if (!budget.take(OPERATIONS_A_LOOK_UP)) break;
    const rank = left[i]!;
    const child = node?.children.get(documents[rank]!.key);
    if (child === undefined || !rule.allows(path, rank)) {
      i++;
      continue;
    }
    path.push(rank);
    cachedTokens += documents[rank]!.tokens;
    node = child;
    left.splice(i, 1);
    i = 0;
    if (rule.priceOf === undefined) continue;
    walkedTokens += documents[rank]!.tokens;
    const worth = walkedTokens - rule.priceOf(path);
    if (worth > most) [most, kept] = [worth, path.length];
  }
  if (rule.priceOf !== undefined) path.length = kept;
  const order = rule.complete(path);
  const ordering =
    rule.priceOf === undefined && view.slots === undefined
      ? { order, cachedDocuments: path.length, cachedTokens, laterTokens: 0 }
      : { ...withCachedPrefix(order, context, view, budget), laterTokens: 0 };
  return budget.isCutShort ? { ...ordering, cutShort: 'partial' } : ordering;
}

export interface PolicyOptions {
  /**
   * Operations of one decision of `greedy` and `exact`; `foresight` takes at most twice as many. Default 65,536: a few
   * milliseconds. `trace.cutShort` says if it was not enough.
   */
  readonly maxOperations?: number;
}

/** Creates the ordering policy of a name. Policies have no state and may be shared. */
export function createPolicy(name: PolicyName, options: PolicyOptions = {}): OrderingPolicy {
  switch (name) {
    case 'retrieval':
      return createRetrievalPolicy();
    case 'sorted':
      return createSortedPolicy();
    case 'hotness':
      return createHotnessPolicy();
    case 'greedy':
      return createGreedyPolicy(options.maxOperations);
    case 'exact':
      return createExactPolicy(options.maxOperations);
    case 'foresight':
      return createForesightPolicy(options.maxOperations);
  }
}
