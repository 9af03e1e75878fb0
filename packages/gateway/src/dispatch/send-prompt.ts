import type { EngineFailure, RelayResult } from '../answer/relay.js';
import { SourcedAnswer } from '../answer/sourced-answer.js';
import { errorShapeOf } from '../apis/error-shape.js';
import { chatApi } from '../apis/prompt-apis.js';
import { type ResponseBody, UntouchedBody } from '../apis/response-body.js';
import type { ArrangedPrompt } from '../arrange/arranged-prompt.js';
import { type Call, modelIn } from '../arrange/prepare-prompt.js';
import type { Engine } from '../engines/engine.js';
import type { Gateway } from '../gateway.js';
import { withoutTexts } from '../memory/open-arrangements.js';
import type { Exchange } from '../observe/exchange.js';
import { guard } from '../observe/fail-open.js';
import { observeAccepted, observeDispatch, observeOutcome } from '../observe/observe-outcome.js';
import { type TracedAnswer, traced } from '../observe/tracing.js';
import { forward, IDENTITY, promptHeaders } from './forward.js';

/** What becomes of a prompt that was sent. None of it may throw. */
export interface SentPromptListener {
  /** The engine has prefilled it: called when the answer begins, if it does. */
  computed(): void;
  /** The first token of a streamed answer has come. */
  began(): void;
  /** Whether others wait for the first token of its answer. */
  readonly isAwaited: boolean;
  /** The engine is done with it; `isComputed`: it has computed the prompt. */
  released(isComputed: boolean): void;
  /** Whether another engine gets it, if this one fails before its client hears of it; `undefined` where none can. */
  readonly movesOn: ((failure: EngineFailure) => boolean) | undefined;
  /** After `released`, where `movesOn` said so: another engine is to get it. */
  movedOn(failure: EngineFailure): void;
}

/** Sends a prompt to an engine, with the tenant's salt where one is configured, and learns from its answer. */
export function sendPrompt(
  gateway: Gateway,
  engine: Engine,
  call: Call,
  arranged: ArrangedPrompt,
  listener: SentPromptListener,
): void {
  let failure: EngineFailure | undefined;
  const { movesOn } = listener;
  const dispatchedAt = gateway.now();
  const { exchange } = call.request;
  const { dialect, name, upstream } = engine;
  const trace = exchange.trace?.dispatched(
    { api: call.api.name, model: modelIn(call), engine: { name, url: upstream.url, dialect: dialect.name } },
    dispatchedAt,
  );
  const number = ++engine.sentPrompts;
  let isAlone = engine.queue.underWay <= 1;
  const prompt = withoutReadTexts(engine, arranged);
  const isRead = prompt.state !== undefined || readsAnswer(prompt) || listener.isAwaited;
  observeDispatch(gateway, prompt, arranged.keepFound);
  const body = gateway.cacheSalts?.salted(prompt.body, call.tenant) ?? prompt.body;
  forward(gateway, engine, call, body, {
    path: call.translation && chatApi.path,
    body: wayBack(call, prompt),
    requestHeaders: [
      promptHeaders(engine, call),
      isRead || call.sources !== undefined ? IDENTITY : undefined,
      trace?.headers,
    ],
    reads: readsAnswer(prompt) ? 'answer' : isRead || trace !== undefined ? 'usage' : 'nothing',
    onAccepted: () => observeAccepted(gateway, prompt),
    onFirstData: () => {
      isAlone &&= engine.sentPrompts === number;
      listener.computed();
    },
    onFirstContent: () => listener.began(),
    movesOn:
      movesOn &&
      ((failed) => {
        failure = failed;
        return movesOn(failed);
      }),
    onSettled: (result) => {
      const isOver = gateway.now();
      traced(gateway, exchange, 'observe', () =>
        observeOutcome(gateway, { engine, call, prompt, sent: body, dispatchedAt, isAlone, result }),
      );
      trace?.ended(tracedAnswer(exchange, result), isOver);
      // Whoever is next is arranged with what was learned.
      listener.released(result.status !== undefined && result.status < 300);
      if (result.movedOn) listener.movedOn(failure!);
    },
  });
  comparePrefix(gateway, call, body);
}

/**
 * What is known of a prompt until its answer is over, which may take minutes: what was read of its text is not, but
 * where the engine's events are compared with it.
 */
function withoutReadTexts({ kvResidency }: Engine, arranged: ArrangedPrompt): ArrangedPrompt {
  const needsTexts = arranged.isInserted || kvResidency !== undefined;
  if (arranged.keepFound === undefined && (needsTexts || arranged.arrangements.length === 0)) return arranged;
  return {
    ...arranged,
    arrangements: needsTexts
      ? arranged.arrangements
      : arranged.arrangements.map((arrangement) => ({ ...arrangement, ...withoutTexts(arrangement) })),
    keepFound: undefined,
  };
}

function tracedAnswer(
  { errorCode, cachedTokens, predictedCachedTokens }: Exchange,
  { status, sniffer }: RelayResult,
): TracedAnswer {
  const { usage, completionTokens, firstContentAt } = sniffer;
  return {
    status,
    errorCode,
    promptTokens: usage?.promptTokens,
    cachedTokens: cachedTokens ?? usage?.cachedTokens,
    predictedCachedTokens,
    completionTokens,
    firstContentAt,
  };
}

/** The answer to a translation goes back through it; to an answer from retrieved passages, its sources are added. */
function wayBack(
  { request, translation, sources, route }: Call,
  { arrangements }: ArrangedPrompt,
): ResponseBody | undefined {
  if (sources === undefined) return translation?.answer;
  const answer = translation?.answer ?? new UntouchedBody(errorShapeOf(request.url));
  return new SourcedAnswer(answer, { api: route, sources, arrangements });
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
  if (gateway.config.explain.prompts === 'off') return;
  const { exchange } = request;
  guard(gateway, () => {
    exchange.prefix = gateway.requests.compare(tenant, exchange.requestId, { body: body.toString(), api });
  });
}
