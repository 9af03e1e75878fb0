import type { RecalledHistory, SentTurn } from '@warmpath/core';
import { guard } from '../fail-open.js';
import type { ForwardOptions } from '../forward.js';
import type { Gateway } from '../gateway.js';
import type { RelayResult } from '../relay.js';

/** A turn goes to the engine. */
export function rememberTurn(gateway: Gateway, history: RecalledHistory, turn: SentTurn): void {
  guard(gateway, () => gateway.conversations.store.sent(history, turn, gateway.now()));
}

/** An unnamed conversation is known by what the model answers, which a compressed answer would hide. */
export function readsAnswer({ session }: RecalledHistory): Pick<ForwardOptions, 'requestHeaders' | 'readsAnswer'> {
  return session === undefined ? { requestHeaders: { 'accept-encoding': 'identity' }, readsAnswer: true } : {};
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
