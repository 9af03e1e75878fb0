import type { Arrangement } from '@warmpath/core';
import { plainTurn, type RecalledConversation } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import type { Engine } from '../engines/engine.js';
import { predictedTokens } from '../engines/expected-reuse.js';
import type { Gateway } from '../gateway.js';
import { applyEdits } from '../json/json-scanner.js';
import { prefixOf } from '../memory/warm-prefixes.js';
import type { RecordedBlock } from '../observe/exchange.js';
import { failOpen } from '../observe/fail-open.js';
import { traced } from '../observe/tracing.js';
import type { ArrangedInsertion, InsertedRequest } from '../render/inserted-prompts.js';
import type { ArrangedPrompt } from './arranged-prompt.js';
import { arrangeFound } from './found/serve-recognised.js';
import { isBadInput } from './inserted-documents.js';
import type { Call, PlainPrompt, PreparedPrompt } from './prepare-prompt.js';

const NONE: readonly never[] = [];

/** A prompt in which nothing is arranged. */
function untouched(body: Buffer, turn?: ArrangedPrompt['turn']): ArrangedPrompt {
  return {
    body,
    state: undefined,
    arrangements: NONE,
    isInserted: false,
    estimatedTokens: 0,
    turn,
    prefix: undefined,
    parsed: undefined,
    keepFound: undefined,
  };
}

/**
 * The engine has room: decides the order and renders the prompt. A defect costs the order, not the answer.
 *
 * @throws WarmpathError bad input that only the arrangement brings to light.
 */
export function arrangePrompt(gateway: Gateway, engine: Engine, call: Call, prepared: PreparedPrompt): ArrangedPrompt {
  if (prepared.kind === 'plain') return plainPrompt(call.request, prepared);
  try {
    return prepared.kind === 'found'
      ? arrangeFound(gateway, engine, call.request, prepared)
      : arrangeInserted(gateway, engine, call, prepared);
  } catch (error) {
    if (isBadInput(error)) throw error;
    failOpen(gateway, call.request, 'original', error);
    const body = prepared.kind === 'found' ? prepared.found.view.bytes : call.body;
    return untouched(body);
  }
}

function plainPrompt({ exchange }: FastifyRequest, { body, fallback, history }: PlainPrompt): ArrangedPrompt {
  if (fallback !== undefined) exchange.fallback = fallback;
  return untouched(body, history && { history, sent: plainTurn(history) });
}

function arrangeInserted(
  gateway: Gateway,
  engine: Engine,
  { request, tenant }: Call,
  asked: InsertedRequest,
): ArrangedPrompt {
  const { parsed, history, isNamed } = asked;
  const { preamble } = asked.request;
  const state = gateway.histories.of(engine, tenant, parsed.model);
  const waiting = engine.queue.waitingBehind(preamble, tenant);
  const known = waiting.length === 0 ? asked.request : { ...asked.request, waiting };
  const { exchange } = request;
  const decided = traced(gateway, exchange, 'arrange', () =>
    gateway.documents.decide(asked, known, state, gateway.now()),
  );
  if (decided.fallback !== undefined) failOpen(gateway, request, decided.fallback, decided.defect);
  note(request, { decided, history });
  exchange.predictedCachedTokens = predictedTokens(state, decided.arrangement);
  // What stands before a later turn is one conversation's own: nobody else will ask for it.
  const isShared = !isNamed || history.turns.length === 0;
  return {
    body: traced(gateway, exchange, 'render', () =>
      applyEdits(parsed.body.bytes, [...parsed.ownFields, ...decided.edits]),
    ),
    state,
    arrangements: [decided.arrangement],
    isInserted: true,
    estimatedTokens: decided.estimatedTokens,
    turn: decided.turn && { history, sent: decided.turn },
    prefix: prefixOf(tenant, parsed.model, preamble.key),
    parsed: engine.prewarmer === undefined || !isShared ? undefined : parsed,
    keepFound: undefined,
  };
}

/** What the summary header, the access log and the metrics say about it. */
function note(
  { exchange }: FastifyRequest,
  { decided, history }: { readonly decided: ArrangedInsertion; readonly history: RecalledConversation },
): void {
  const { documents, references, trace } = decided.arrangement;
  exchange.policy = trace.policy;
  exchange.documents = documents.length + references.length;
  exchange.documentsMoved = trace.moves.filter((places) => places !== 0).length;
  if (documents.length > 0) exchange.blocks = [arrangedBlock(decided.arrangement)];
  exchange.references = references.length;
  exchange.shortened = documents.filter(({ whole }) => whole !== undefined).length;
  exchange.deduplicatedTokens =
    references.reduce((sum, { document }) => sum + document.tokens, 0) +
    documents.reduce((sum, { whole, tokens }) => sum + (whole === undefined ? 0 : whole.tokens - tokens), 0);
  exchange.replayedTurns = history.turns.length;
  exchange.warnings = [...exchange.warnings, ...trace.warnings];
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
