import type { ResidencyView } from '../residency/view.js';
import { preambleNode, residentPreambleTokens } from '../tree/preamble-path.js';
import type { Context, Ordering } from './policy.js';

/** Completes an order to an `Ordering`: how far the view holds it as a path behind the preamble. O(k) expected. */
export function withCachedPrefix(order: readonly number[], context: Context, view: ResidencyView): Ordering {
  const { tree } = view;
  const { preamble } = context;
  let node = preambleNode(tree, preamble);
  let cachedTokens = residentPreambleTokens(tree, preamble, node);
  if (node < 0) return { order, cachedDocuments: 0, cachedTokens };
  let cachedDocuments = 0;
  for (const rank of order) {
    const document = context.documents[rank]!;
    node = tree.child(node, document.key);
    if (node < 0) break;
    cachedTokens += document.tokens;
    cachedDocuments++;
  }
  return { order, cachedDocuments, cachedTokens };
}
