import type { EngineFailure } from '../answer/relay.js';
import type { ArrangedPrompt } from '../arrange/arranged-prompt.js';
import { type Call, isReadable } from '../arrange/prepare-prompt.js';
import { SourcedAnswer } from '../collections/sourced-answer.js';
import type { Engine } from '../engines/engine.js';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { guard } from '../observe/fail-open.js';
import { observeAccepted, observeDispatch, observeOutcome } from '../observe/observe-outcome.js';
import { type ForwardOptions, forward, promptHeaders } from './forward.js';

/** What becomes of a prompt that was sent. None of it may throw. */
export interface SentPromptListener {
  /** The engine has prefilled it: called when the answer begins, if it does. */
  computed(): void;
  /** The engine is done with it. */
  released(): void;
  /** Whether another engine gets it, if this one fails before its client hears of it; `undefined` where none can. */
  readonly movesOn: ((failure: EngineFailure) => boolean) | undefined;
  /** After `released`, where `movesOn` said so: another engine is to get it. */
  moved(failure: EngineFailure): void;
}

/** Sends a prompt to an engine, with the tenant's salt where one is configured, and learns from its answer. */
export function sendPrompt(
  gateway: Gateway,
  engine: Engine,
  call: Call,
  prompt: ArrangedPrompt,
  listener: SentPromptListener,
): void {
  let failure: EngineFailure | undefined;
  const { movesOn } = listener;
  const dispatchedAt = gateway.now();
  const number = ++engine.sentPrompts;
  let isAlone = engine.queue.underWay <= 1;
  observeDispatch(gateway, prompt);
  const body = isReadable(call.request)
    ? (gateway.cacheSalts?.salted(prompt.body, call.tenant) ?? prompt.body)
    : prompt.body;
  forward(gateway, engine, call, body, {
    ...wayBack(call, prompt),
    requestHeaders: {
      ...promptHeaders(engine, call),
      ...((isRead(prompt) || call.sources !== undefined) && IDENTITY),
    },
    reads: !isRead(prompt) ? 'nothing' : readsAnswer(prompt) ? 'answer' : 'usage',
    onAccepted: () => observeAccepted(gateway, prompt),
    onFirstData: () => {
      isAlone &&= engine.sentPrompts === number;
      listener.computed();
    },
    movesOn:
      movesOn &&
      ((failed) => {
        failure = failed;
        return movesOn(failed);
      }),
    onSettled: (result) => {
      observeOutcome(gateway, { engine, call, prompt, sent: body, dispatchedAt, isAlone, result });
      // Whoever is next is arranged with what was learned.
      listener.released();
      if (result.movedOn) listener.moved(failure!);
    },
  });
  comparePrefix(gateway, call, body);
}

/** The answer's usage is read on the way through, which a compressed answer would hide. */
const IDENTITY = { 'accept-encoding': 'identity' };

/**
 * A translation goes to where chat completions are served, and its answer back through the translation; to an answer
 * from retrieved passages, its sources are added.
 */
function wayBack({ translation, sources }: Call, prompt: ArrangedPrompt): Pick<ForwardOptions, 'path' | 'body'> {
  if (sources !== undefined) return { body: new SourcedAnswer(sources, prompt.arrangements) };
  if (translation === undefined) return {};
  return { path: chatApi.path, body: translation.answer };
}

function isRead(prompt: ArrangedPrompt): boolean {
  return prompt.state !== undefined || readsAnswer(prompt);
}

/**
 * Whether the answer is to be known again: where other documents went out for the very same messages before, whoever
 * goes on continues one of the two.
 */
function readsAnswer({ turn }: ArrangedPrompt): boolean {
  return turn?.history.siblings.some(({ id }) => id !== turn.sent.id) === true;
}

/**
 * Where prompts are compared, says where this one parts from an earlier one. Behind the dispatch: the client does not
 * wait for it.
 */
function comparePrefix(gateway: Gateway, { request, api, tenant }: Call, body: Buffer): void {
  if (gateway.config.explain.prompts === 'off' || !isReadable(request)) return;
  const { exchange } = request;
  guard(gateway, () => {
    exchange.prefix = gateway.requests.compare(tenant, exchange.requestId, { body: body.toString(), api });
  });
}
