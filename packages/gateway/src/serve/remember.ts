import type { RecalledHistory, SentTurn } from '@warmpath/core';
import type { RelayResult } from '../answer/relay.js';
import type { ForwardOptions } from '../dispatch/forward.js';
import type { Gateway } from '../gateway.js';
import { guard } from '../observe/fail-open.js';

/** A turn goes to the engine. */
export function rememberTurn(gateway: Gateway, history: RecalledHistory, turn: SentTurn): void {
  guard(gateway, () => gateway.conversations.store.sent(history, turn, gateway.now()));
}

/**
 * An unnamed conversation is known by what the model answers, which a compressed answer would hide. So is a named one where other
 * documents went out for the very same messages before: whoever goes on continues one of the two.
 */
export function readsAnswer(
  { session, siblings }: RecalledHistory,
  turn: SentTurn,
): Pick<ForwardOptions, 'requestHeaders' | 'readsAnswer'> {
  const isKnown = session !== undefined && siblings.every(({ id }) => id === turn.id);
  return isKnown ? {} : { requestHeaders: { 'accept-encoding': 'identity' }, readsAnswer: true };
}

/** The model answered it. */
export function rememberAnswers(
  gateway: Gateway,
  history: RecalledHistory,
  turn: SentTurn,
  { complete, sniffer }: RelayResult,
): void {
  if (!complete) return;
  guard(gateway, () => {
    for (const answer of sniffer.answers) gateway.conversations.store.answered(history, turn, answer, gateway.now());
  });
}
