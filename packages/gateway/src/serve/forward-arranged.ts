import { observe, type Warning } from '@warmpath/core';
import type { ComposedRequest } from '../compose.js';
import type { Exchange } from '../exchange.js';
import type { RecordedBlock } from '../explain/request-log.js';
import { guard } from '../fail-open.js';
import type { Gateway } from '../gateway.js';
import { RESPONSE_HEADERS } from '../headers.js';
import { type Arranged, isArranged } from './arrange-documents.js';
import type { Call } from './call.js';
import { learn } from './learn.js';
import { send } from './send.js';
import { warningsHeader } from './warnings-header.js';

/** Sends an arranged request, remembers that it was sent, and learns from the answer. */
export function forwardArranged(
  gateway: Gateway,
  call: Call,
  { arranged, release }: { readonly arranged: Arranged; readonly release: () => void },
): void {
  const { composed, state, history, isOriginal } = arranged;
  const { exchange } = call.request;
  const { arrangement, turn } = composed;
  note(exchange, arranged);
  const dispatchedAt = gateway.now();
  if (isArranged(arranged)) {
    guard(gateway, () => observe({ kind: 'dispatched', arrangement, now: dispatchedAt }, state.history));
  }
  const { store } = gateway.conversations;
  if (history !== undefined && turn !== undefined) guard(gateway, () => store.sent(history, turn, dispatchedAt));
  send(gateway, call, isOriginal ? call.body : composed.body, {
    // The answer's usage is read on the way through, which a compressed answer would hide.
    requestHeaders: { 'accept-encoding': 'identity' },
    responseHeaders: isArranged(arranged) ? arrangementHeaders(composed, exchange, call.translation?.leftOut) : {},
    readsAnswer: history !== undefined && history.session === undefined,
    onSettled: (result) => {
      guard(gateway, () => {
        if (isArranged(arranged)) learn(gateway, call, arranged, { dispatchedAt, result });
        if (history === undefined || turn === undefined || !result.complete) return;
        for (const answer of result.sniffer.answers) store.answered(history, turn, answer, gateway.now());
      });
      // Whoever is next is arranged with what was learned.
      release();
    },
  });
}

/** What the access log and the metrics say about it. */
function note(exchange: Exchange, arranged: Arranged): void {
  if (!isArranged(arranged)) return;
  const { composed, history, state } = arranged;
  const { documents, references, predictedCachedTokens, trace } = composed.arrangement;
  exchange.documents = documents.length + references.length;
  exchange.documentsMoved = trace.moves.filter((places) => places !== 0).length;
  if (documents.length > 0) exchange.blocks = [arrangedBlock(composed.arrangement.order)];
  exchange.references = references.length;
  exchange.deduplicatedTokens = references.reduce((sum, { document }) => sum + document.tokens, 0);
  exchange.replayedTurns = history?.turns.length ?? 0;
  exchange.predictedCachedTokens = state.counts.toEngineTokens(predictedCachedTokens);
}

/** The documents that the request brought itself, as the request's record has them. */
function arrangedBlock(order: readonly number[]): RecordedBlock {
  return { format: 'documents', documents: order.length, decided: 'arranged', order, labels: 'none' };
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
    ...(exchange.references > 0 && { [RESPONSE_HEADERS.references]: String(exchange.references) }),
    ...(warnings.length > 0 && { [RESPONSE_HEADERS.warnings]: warningsHeader(warnings) }),
    ...(fallback !== undefined && { [RESPONSE_HEADERS.fallback]: fallback }),
  };
}
