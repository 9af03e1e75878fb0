import { observe } from '@warmpath/core';
import { isPrefilled, noteAnswer } from '../answer/answer-counts.js';
import type { RelayResult } from '../answer/relay.js';
import { engineHeaders } from '../dispatch/forward.js';
import { requestHeaders } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
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
  const now = gateway.now();
  if (!isPrefilled(result)) {
    observe({ kind: 'failed', arrangement, now }, state.history);
    return;
  }
  const { counts } = state;
  noteAnswer(exchange, counts, result, { dispatchedAt, estimatedTokens: composed.estimatedTokens });
  const { ttftMs } = exchange;
  observe(
    {
      kind: 'completed',
      arrangement,
      now,
      ...counts.outcome(exchange),
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
