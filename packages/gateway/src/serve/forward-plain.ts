import { plainTurn } from '@warmpath/core';
import type { ForwardOptions } from '../dispatch/forward.js';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import type { Call } from './call.js';
import type { PlainRequest } from './prepare.js';
import { readsAnswer, rememberAnswers, rememberTurn } from './remember.js';
import { send } from './send.js';

/** Sends a request that nothing is added to, and remembers that it went out like this, if it is a turn of a conversation. */
export function forwardPlain(
  gateway: Gateway,
  call: Call,
  { prepared, release }: { readonly prepared: PlainRequest; readonly release: () => void },
): void {
  const { body, fallback, history } = prepared;
  const told: Pick<ForwardOptions, 'responseHeaders'> =
    fallback === undefined ? {} : { responseHeaders: { [RESPONSE_HEADERS.fallback]: fallback } };
  if (history === undefined) {
    send(gateway, call, body, { ...told, readsNothing: true, onSettled: release });
    return;
  }
  const turn = plainTurn(history);
  const reads = readsAnswer(history, turn);
  rememberTurn(gateway, history, turn);
  send(gateway, call, body, {
    ...told,
    ...reads,
    // A conversation with a name is not known by its answers.
    readsNothing: reads.readsAnswer !== true,
    onSettled: (result) => {
      rememberAnswers(gateway, history, turn, result);
      release();
    },
  });
}
