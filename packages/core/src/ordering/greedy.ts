import type { ResidencyView } from '../residency/view.js';
import { BEST_PATH_MAX_OPERATIONS, OPERATIONS_A_LOOK_UP } from '../tree/best-path.js';
import { preambleNode, residentPreambleTokens } from '../tree/preamble-path.js';
import { withCachedPrefix } from './cached-prefix.js';
import { ConstraintRule, isFree } from './placement.js';
import type { Context, Ordering, OrderingPolicy } from './policy.js';
import { followedByRetrievalOrder } from './retrieval-order.js';

/**
 * Algorithm 1 of RAGCache++ (§3.3): at each node, follow the first document in retrieval rank that has a cached child;
 * when there is none, append the rest in retrieval order. Under constraints, a document that may not stand at the place
 * is passed over; where moving has a price, the walk is cut where it saves most above it. O(k²) look-ups, and the walk
 * ends where they would pass `maxOperations`.
 */
export function createGreedyPolicy(maxOperations: number = BEST_PATH_MAX_OPERATIONS): OrderingPolicy {
  return { name: 'greedy', arrange: (context, view) => arrangeGreedily(context, view, maxOperations) };
}

function arrangeGreedily(context: Context, view: ResidencyView, maxOperations: number): Ordering {
  const { documents, preamble } = context;
  const { tree } = view;
  const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
  const path: number[] = [];
  let node = preambleNode(tree, preamble);
  let cachedTokens = residentPreambleTokens(tree, preamble, node);
  const left: number[] = [];
  const numbers: number[] = [];
  for (let rank = 0; rank < documents.length; rank++) {
    const number = node < 0 ? -1 : tree.numberOf(documents[rank]!.key);
    if (number >= 0) {
      left.push(rank);
      numbers.push(number);
    }
  }
  let operationsLeft = maxOperations;
  let most = 0;
  let kept = 0;
  let walkedTokens = 0;
  for (let i = 0; i < left.length; ) {
    operationsLeft -= OPERATIONS_A_LOOK_UP;
    if (operationsLeft < 0) break;
    const rank = left[i]!;
    const child = tree.childByNumber(node, numbers[i]!);
    if (child < 0 || (rule !== undefined && !rule.allows(path, rank))) {
      i++;
      continue;
    }
    path.push(rank);
    cachedTokens += documents[rank]!.tokens;
    node = child;
    left.splice(i, 1);
    numbers.splice(i, 1);
    i = 0;
    if (rule?.priceOf === undefined) continue;
    walkedTokens += documents[rank]!.tokens;
    const worth = walkedTokens - rule.priceOf(path);
    if (worth > most) [most, kept] = [worth, path.length];
  }
  if (rule?.priceOf !== undefined) path.length = kept;
  const order = rule === undefined ? followedByRetrievalOrder(path, documents.length) : rule.complete(path);
  if (view.slots !== undefined) return { ...withCachedPrefix(order, context, view), laterTokens: 0 };
  const ordering =
    rule?.priceOf === undefined
      ? { order, cachedDocuments: path.length, cachedTokens, laterTokens: 0 }
      : { ...withCachedPrefix(order, context, view), laterTokens: 0 };
  return operationsLeft < 0 ? { ...ordering, cutShort: 'partial' } : ordering;
}
