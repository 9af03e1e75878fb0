import type { ResidencyView, SlotsView } from '../residency/view.js';
import { preambleNode, residentPreambleTokens } from '../tree/preamble-path.js';
import type { Context, Ordering } from './policy.js';

/** Completes an order to an `Ordering`: how far the view holds it as a path behind the preamble. O(k) expected. */
export function withCachedPrefix(order: readonly number[], context: Context, view: ResidencyView): Ordering {
  const { tree, slots } = view;
  const { preamble } = context;
  if (slots !== undefined) return inSlots(order, context, slots);
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

/** What an engine with slots would reuse, and the documents that lie within it whole. */
function inSlots(order: readonly number[], { documents, preamble }: Context, slots: SlotsView): Ordering {
  const arranged = order.map((rank) => documents[rank]!);
  const cachedTokens = slots.predict(arranged, preamble);
  let end = preamble?.tokens ?? 0;
  let cachedDocuments = 0;
  for (const { tokens } of arranged) {
    end += tokens;
    if (end > cachedTokens) break;
    cachedDocuments++;
  }
  return { order, cachedDocuments, cachedTokens };
}
