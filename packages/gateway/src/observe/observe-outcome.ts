import { observe, type ServedHistory } from '@warmpath/core';
import type { RelayResult } from '../answer/relay.js';
import type { ArrangedPrompt } from '../arrange/arranged-prompt.js';
import type { Call } from '../arrange/prepare-prompt.js';
import { documentTexts, tokensRequest } from '../dispatch/ask-tokens.js';
import { engineHeaders, IDENTITY, promptHeaders } from '../dispatch/forward.js';
import type { Engine } from '../engines/engine.js';
import type { KvResidency } from '../engines/kv-residency.js';
import type { Gateway } from '../gateway.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import { BodyView } from '../json/body-view.js';
import { guard } from './fail-open.js';

/** One prompt's way, from the moment it goes out: all that shared state is changed by. */
export interface RequestOutcome {
  /** The engine that got it. */
  readonly engine: Engine;
  readonly call: Call;
  readonly prompt: ArrangedPrompt;
  /** The body that went out. */
  readonly sent: Buffer;
  /** Milliseconds of the gateway's clock. */
  readonly dispatchedAt: number;
  /** Whether the engine had no other prompt from then until the answer began, as far as this gateway knows. */
  readonly isAlone: boolean;
  /** How the exchange with the engine ended. */
  readonly result: RelayResult;
}

/**
 * A prompt goes to the engine: its paths count as resident from now on, so that concurrent requests follow each other.
 */
export function observeDispatch(
  gateway: Gateway,
  { arrangements, state }: ArrangedPrompt,
  keepFound: ArrangedPrompt['keepFound'],
): void {
  guard(gateway, () => {
    keepFound?.();
    if (state === undefined) return;
    const now = gateway.now();
    for (const arrangement of arrangements) {
      observe({ kind: 'dispatched', arrangement, now }, state.history);
      gateway.peers?.dispatched(state, arrangement);
    }
  });
}

/** The engine has taken the prompt: the turn is remembered, so that the next one of its conversation continues it. */
export function observeAccepted(gateway: Gateway, { turn }: ArrangedPrompt): void {
  if (turn === undefined) return;
  guard(gateway, () => gateway.conversations.store.sent(turn.history, turn.sent, gateway.now()));
}

/** The exchange with the engine is over. */
export function observeOutcome(gateway: Gateway, outcome: RequestOutcome): void {
  guard(gateway, () => observeAnswer(gateway, outcome));
  guard(gateway, () => observeTurn(gateway, outcome));
}

function observeAnswer(
  gateway: Gateway,
  { engine, call, prompt, sent, dispatchedAt, isAlone, result }: RequestOutcome,
): void {
  const { state, arrangements, prefix } = prompt;
  if (state === undefined) return;
  const now = gateway.now();
  const { exchange } = call.request;
  const { counts, history } = state;
  if (!isPrefilled(result)) {
    for (const arrangement of arrangements) observe({ kind: 'failed', arrangement, now }, history);
    return;
  }
  const { firstContentAt, usage, completionTokens } = result.sniffer;
  if (firstContentAt !== undefined) exchange.ttftMs = firstContentAt - dispatchedAt;
  if (usage !== undefined) {
    counts.observe(prompt.estimatedTokens, usage);
    exchange.promptTokens = usage.promptTokens;
    exchange.cachedTokens = counts.cachedTokens(usage);
  }
  // The counts are of the whole prompt: they belong to the path that goes farthest into it.
  const { promptTokens, cachedTokens, answerTokens } = counts.outcome({
    promptTokens: exchange.promptTokens,
    cachedTokens: exchange.cachedTokens,
    answerTokens: completionTokens,
  });
  // Beside others, or behind them, a time says nothing of what was cached.
  const ttftMs = isAlone ? exchange.ttftMs : undefined;
  for (const [place, arrangement] of arrangements.entries()) {
    const isLast = place === arrangements.length - 1;
    const outcome = isLast
      ? ({ kind: 'completed', arrangement, now, promptTokens, cachedTokens, answerTokens, ttftMs } as const)
      : ({ kind: 'completed', arrangement, now } as const);
    observe(outcome, history);
  }
  if (engine.kvResidency !== undefined)
    followTokens(gateway, engine.kvResidency, { engine, call, prompt, sent }, history);
  if (prefix !== undefined) gateway.prefixes.touch(prefix, now);
  if (prompt.parsed !== undefined) observeForPrewarming(engine, call, prompt.parsed, prompt);
}

/** What the engine's events say of this prompt can be read once its tokens are known. */
function followTokens(
  gateway: Gateway,
  residency: KvResidency,
  { engine, call, prompt, sent }: Pick<RequestOutcome, 'engine' | 'call' | 'prompt' | 'sent'>,
  history: ServedHistory,
): void {
  const body = viewOf(sent);
  residency.completed({
    history,
    arrangements: prompt.arrangements,
    texts: () => documentTexts(gateway, prompt),
    request: () => body && tokensRequest(engine, call, body),
    salt: body?.string('cache_salt'),
    model: body?.string('model'),
    cachedTokens: call.request.exchange.cachedTokens,
    bytes: call.body.length + sent.length,
  });
}

function viewOf(bytes: Buffer): BodyView | undefined {
  try {
    return new BodyView(bytes);
  } catch {
    return undefined;
  }
}

function observeForPrewarming(engine: Engine, call: Call, parsed: ParsedRequest, prompt: ArrangedPrompt): void {
  const [served] = prompt.arrangements;
  if (engine.prewarmer === undefined || served === undefined || prompt.state === undefined) return;
  engine.prewarmer.served({
    parsed,
    served,
    state: prompt.state,
    headers: engineHeaders(engine, call.request, promptHeaders(engine, call), IDENTITY),
    bytes: 2 * prompt.body.length,
  });
}

function observeTurn(gateway: Gateway, { prompt: { turn }, result }: RequestOutcome): void {
  if (turn === undefined || !result.complete) return;
  for (const answer of result.sniffer.answers) {
    gateway.conversations.store.answered(turn.history, turn.sent, answer, gateway.now());
  }
}

/**
 * Whether the engine has the prompt's KV now. A client that left after the first content left a prompt that is
 * prefilled.
 */
function isPrefilled({ status, complete, sniffer }: RelayResult): boolean {
  return status !== undefined && status < 300 && (complete || sniffer.prefilled);
}
