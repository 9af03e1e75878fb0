import { type Arrangement, observe, type Warning } from '@warmpath/core';
import type { ComposedRequest } from '../compose.js';
import type { Exchange } from '../exchange.js';
import type { RecordedBlock } from '../explain/request-log.js';
import { guard } from '../fail-open.js';
import type { Gateway } from '../gateway.js';
import { RESPONSE_HEADERS, referenceHeaders } from '../headers.js';
import type { Arranged } from './arrange-documents.js';
import type { Call } from './call.js';
import { learn } from './learn.js';
import { readsAnswer, rememberAnswers, rememberTurn } from './remember.js';
import { send } from './send.js';
import { warningsHeader } from './warnings-header.js';

/** Sends an arranged request, remembers that it was sent, and learns from the answer. */
export function forwardArranged(
  gateway: Gateway,
  call: Call,
  { arranged, release }: { readonly arranged: Arranged; readonly release: () => void },
): void {
  const { composed, state, history } = arranged;
  const { exchange } = call.request;
  const { arrangement, turn } = composed;
  note(exchange, arranged);
  const dispatchedAt = gateway.now();
  guard(gateway, () => observe({ kind: 'dispatched', arrangement, now: dispatchedAt }, state.history));
  if (history !== undefined && turn !== undefined) rememberTurn(gateway, history, turn);
  send(gateway, call, composed.body, {
    ...(history !== undefined && turn !== undefined && readsAnswer(history, turn)),
    // The answer's usage is read on the way through, which a compressed answer would hide.
    requestHeaders: { 'accept-encoding': 'identity' },
    responseHeaders: arrangementHeaders(composed, exchange, call.translation?.warnings),
    onSettled: (result) => {
      guard(gateway, () => learn(gateway, call, arranged, { dispatchedAt, result }));
      if (history !== undefined && turn !== undefined) rememberAnswers(gateway, history, turn, result);
      // Whoever is next is arranged with what was learned.
      release();
    },
  });
}

/** What the access log and the metrics say about it. */
function note(exchange: Exchange, { composed, history, state }: Arranged): void {
  const { documents, references, predictedCachedTokens, trace } = composed.arrangement;
  exchange.documents = documents.length + references.length;
  exchange.documentsMoved = trace.moves.filter((places) => places !== 0).length;
  if (documents.length > 0) exchange.blocks = [arrangedBlock(composed.arrangement)];
  exchange.references = references.length;
  exchange.shortened = documents.filter(({ whole }) => whole !== undefined).length;
  exchange.deduplicatedTokens =
    references.reduce((sum, { document }) => sum + document.tokens, 0) +
    documents.reduce((sum, { whole, tokens }) => sum + (whole === undefined ? 0 : whole.tokens - tokens), 0);
  exchange.replayedTurns = history?.turns.length ?? 0;
  exchange.predictedCachedTokens = state.counts.toEngineTokens(predictedCachedTokens);
}

/** The documents that the request brought itself and that were sent, as the request's record has them. */
function arrangedBlock({ documents, order }: Arrangement): RecordedBlock {
  const shortened = order.filter((_, place) => documents[place]!.whole !== undefined).sort((a, b) => a - b);
  return {
    format: 'documents',
    documents: order.length,
    decided: 'arranged',
    order,
    labels: 'none',
    references: [],
    shortened,
  };
}

function arrangementHeaders(
  composed: ComposedRequest,
  exchange: Exchange,
  leftOut: readonly Warning[] = [],
): Record<string, string> {
  const { arrangement, fallback } = composed;
  const warnings = [...leftOut, ...composed.warnings];
  return {
    [RESPONSE_HEADERS.policy]: arrangement.trace.policy,
    [RESPONSE_HEADERS.predictedCachedTokens]: String(exchange.predictedCachedTokens),
    ...(exchange.replayedTurns > 0 && { [RESPONSE_HEADERS.replayedTurns]: String(exchange.replayedTurns) }),
    ...referenceHeaders(exchange),
    ...(warnings.length > 0 && { [RESPONSE_HEADERS.warnings]: warningsHeader(warnings) }),
    ...(fallback !== undefined && { [RESPONSE_HEADERS.fallback]: fallback }),
  };
}
