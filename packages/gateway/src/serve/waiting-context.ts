import type { Document, Preamble } from '@warmpath/core';
import { openDocuments } from '../arrange/found/serve-recognised.js';
import type { WaitingContext } from '../dispatch/dispatch-queue.js';
import type { Gateway } from '../gateway.js';
import type { Prepared } from './prepare.js';

/**
 * What the queue may know of a request: enough to be told to policies, and to be weighed against others. `undefined` for one without
 * documents whose order is open. O(1); where documents stand in the prompt, O(text up to the end of the first).
 */
export function waitingContext(gateway: Gateway, tenant: string, prepared: Prepared): WaitingContext | undefined {
  if (prepared.kind === 'documents') {
    return contextOf(gateway, { tenant, model: prepared.extracted.model }, prepared.request);
  }
  if (prepared.kind !== 'recognised') return undefined;
  const open = openDocuments(gateway, prepared.waiting);
  return open && contextOf(gateway, { tenant, model: open.model }, open);
}

function contextOf(
  { histories }: Gateway,
  { tenant, model }: { readonly tenant: string; readonly model: string },
  { documents, preamble }: { readonly documents: readonly Document[]; readonly preamble: Preamble },
): WaitingContext {
  return {
    documents,
    preamble,
    reuse: () => {
      const { tokens } = histories.of(tenant, model).history.bestPath(documents, preamble, undefined);
      const total = documents.reduce((sum, document) => sum + document.tokens, preamble.tokens);
      // The question is computed in any case.
      return { cachedTokens: tokens, hostTokens: 0, computeTokens: total - tokens + 1 };
    },
  };
}
