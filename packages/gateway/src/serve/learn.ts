import { observe } from '@warmpath/core';
import { engineHeaders } from '../forward.js';
import type { Gateway } from '../gateway.js';
import { requestHeaders } from '../headers.js';
import type { RelayResult } from '../relay.js';
import type { Arranged } from './arrange-documents.js';
import type { Call } from './call.js';
import { translationHeaders } from './send.js';

/** Puts what the engine said into the state: the end of the request's way. */
export function learn(
  gateway: Gateway,
  call: Call,
  { extracted, composed, state, prefix }: Arranged,
  { dispatchedAt, result }: { readonly dispatchedAt: number; readonly result: RelayResult },
): void {
  const { arrangement } = composed;
  const { headers, exchange } = call.request;
  const { sniffer, status } = result;
  const now = gateway.now();
  const { firstContentAt, usage } = sniffer;
  // A client that left after the first content left a prompt that is prefilled, and therefore cached.
  const prefilled = status !== undefined && status < 300 && (result.complete || sniffer.prefilled);
  if (!prefilled) {
    observe({ kind: 'failed', arrangement, now }, state.history);
    return;
  }
  if (firstContentAt !== undefined) exchange.ttftMs = firstContentAt - dispatchedAt;
  if (usage !== undefined) {
    state.counts.observe(composed.estimatedTokens, usage);
    exchange.promptTokens = usage.promptTokens;
    exchange.cachedTokens = state.counts.cachedTokens(usage);
  }
  const { promptTokens, cachedTokens, ttftMs } = exchange;
  const { counts } = state;
  observe(
    {
      kind: 'completed',
      arrangement,
      now,
      // The knowledge tree counts in estimated tokens; the engine's own counts are compared in the same unit.
      ...(promptTokens !== undefined && { promptTokens: counts.toEstimatedTokens(promptTokens) }),
      ...(cachedTokens !== undefined && { cachedTokens: counts.toEstimatedTokens(cachedTokens) }),
      ...(ttftMs !== undefined && { ttftMs }),
    },
    state.history,
  );
  gateway.prefixes.touch(prefix, now);
  if (extracted === undefined) return;
  gateway.prewarmer?.served({
    extracted,
    served: arrangement,
    state,
    headers: requestHeaders(headers, {
      ...engineHeaders(gateway, exchange.requestId),
      ...translationHeaders(gateway, call),
      'accept-encoding': 'identity',
    }),
    bytes: 2 * composed.body.length,
  });
}
