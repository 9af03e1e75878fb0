import { type ArrangeRequest, type Document, type Preamble, type ResidencyView, WarmpathError } from '@warmpath/core';
import { estimateTokensOfBytes, expectedCachedTokens } from '@warmpath/core/internal';
import { type EngineFailure, refuse } from '../answer/relay.js';
import { errorShapeOf } from '../apis/error-shape.js';
import { arrangePrompt } from '../arrange/arrange-prompt.js';
import type { ArrangedPrompt } from '../arrange/arranged-prompt.js';
import { openDocuments } from '../arrange/found/serve-recognised.js';
import { type Call, modelIn, type PreparedPrompt } from '../arrange/prepare-prompt.js';
import type { Engine } from '../engines/engine.js';
import { type ColdPrefix, coldPrefix } from '../engines/leading-prompts.js';
import type { Dispatch, EnginePlace, Waiting, WaitingContext } from '../engines/tenant-queue.js';
import type { Gateway } from '../gateway.js';
import { clientTimeoutMs } from '../intake/headers.js';
import { KeySign } from '../intake/parse-request.js';
import { BodyView } from '../json/body-view.js';
import type { Exchange } from '../observe/exchange.js';
import { ownHeaders } from './forward.js';
import { type SentPromptListener, sendPrompt } from './send-prompt.js';

const NONE: readonly never[] = [];

/** Engines that one request is tried on where none of them could have begun with it. */
const MAX_TRIES = 3;
/** The same where they may have: a prompt that ends engines must not end many. */
const MAX_BEGUN = 2;

/** One prompt, from the time it is ready until an engine answers it. */
interface PromptUnderWay {
  readonly gateway: Gateway;
  readonly call: Call;
  readonly prepared: PreparedPrompt;
  /** Engines that failed to answer it, and how many of them may have begun. */
  readonly tried: readonly Engine[];
  readonly begun: number;
}

/** The prompt goes to an engine, and waits for it if it must. */
export function dispatchPrompt(gateway: Gateway, call: Call, prepared: PreparedPrompt): void {
  enter({ gateway, call, prepared, tried: NONE, begun: 0 });
}

function enter(prompt: PromptUnderWay): void {
  if (!prompt.call.reply.raw.destroyed) new EngineAttempt(prompt).enter();
}

/**
 * One prompt at one engine: it waits for room, is arranged, goes out, and its answer is followed to the end. One object
 * and no closures: an answer may take minutes, and closures would keep all that was read of the prompt for as long.
 */
class EngineAttempt implements Dispatch, SentPromptListener {
  readonly tenant: string;
  readonly deadline: number | undefined;
  readonly movesOn: SentPromptListener['movesOn'];
  isAwaited = false;
  readonly #gateway: Gateway;
  readonly #call: Call;
  readonly #place: Place;
  /** `undefined` once no other engine can get it any more. */
  #prompt: PromptUnderWay | undefined;
  #context: WaitingContext | undefined | 'unread' = 'unread';
  #beginnings: readonly string[] | undefined;
  #room: EnginePlace | undefined;
  #isComputed = false;

  constructor(prompt: PromptUnderWay) {
    const { gateway, call } = prompt;
    this.#gateway = gateway;
    this.#call = call;
    this.#prompt = prompt;
    this.#place = placeOf(prompt);
    this.tenant = call.tenant;
    this.deadline = deadlineOf(call);
    this.movesOn = movesOn(prompt, this.#place.engine);
  }

  /** Starts it, or lets it wait. Throws: the engine has no room, and no place to wait. */
  enter(): void {
    const { engine } = this.#place;
    let waiting: Waiting | undefined;
    try {
      waiting = engine.queue.enter(this);
    } catch (error) {
      this.#endPrefill();
      throw error;
    }
    if (waiting === undefined || waiting.isOver) return;
    const own = waiting;
    this.#call.reply.raw.once('close', () => {
      if (engine.queue.leave(own)) this.#endPrefill();
    });
  }

  urgency(): number {
    return urgencyOf(this.#call, this.#place.engine);
  }

  context(): WaitingContext | undefined {
    if (this.#context === 'unread') {
      const { engine } = this.#place;
      this.#context = waitingContext(this.#gateway, engine, this.tenant, this.#prompt!.prepared);
    }
    return this.#context;
  }

  beginnings(): readonly string[] {
    const { prepared } = this.#prompt!;
    this.#beginnings ??=
      prepared.kind === 'plain' ? this.#gateway.sentPrefixes.beginningsOf(this.tenant, prepared.body).hashes : NONE;
    return this.#beginnings;
  }

  start(queuedMs: number, room: EnginePlace): void {
    const { engine } = this.#place;
    const { prepared, tried } = this.#prompt!;
    if (queuedMs > 0) waited(this.#gateway, this.#call.request.exchange, queuedMs);
    engine.prefilling++;
    this.#room = room;
    try {
      if (tried.length > 0) forgetFirstTry(this.#call);
      const arranged = arrangePrompt(this.#gateway, engine, this.#call, prepared);
      if (engine.dialect.needsLeader) this.#lead(arranged, room);
      sendPrompt(this.#gateway, engine, this.#call, arranged, this);
    } catch (error) {
      this.released(false);
      this.#fail(error);
      return;
    }
    if (this.movesOn === undefined) this.#forget();
  }

  refuse(error: WarmpathError): void {
    this.#endPrefill();
    this.#fail(error);
  }

  moved(): void {
    this.#endPrefill();
    try {
      enter(this.#prompt!);
    } catch (error) {
      this.#fail(error);
    }
  }

  movedOn(failure: EngineFailure): void {
    enterAgain(this.#prompt!, this.#place.engine, failure);
  }

  computed(): void {
    this.#endPrefill();
    this.#forget();
  }

  began(): void {
    this.#room!.began();
  }

  released(isComputed: boolean): void {
    this.#endPrefill();
    this.#room!.release(isComputed);
  }

  #lead(arranged: ArrangedPrompt, room: EnginePlace): void {
    const lead = leadOf(arranged);
    if (lead !== undefined) room.leads(lead);
    this.isAwaited = room.leadsBytes(this.beginnings());
  }

  /** The engine has computed the prompt, or will not. */
  #endPrefill(): void {
    if (this.#isComputed) return;
    this.#isComputed = true;
    const { engine, pendingTokens } = this.#place;
    engine.pendingTokens -= pendingTokens;
    if (this.#room !== undefined) engine.prefilling--;
  }

  #fail(error: unknown): void {
    fail(this.#gateway, this.#call, this.#prompt?.tried ?? NONE, error);
  }

  /** No other engine can get it any more, so what was read of the prompt is needed no longer. */
  #forget(): void {
    this.#prompt = undefined;
    this.#context = undefined;
    this.#beginnings = undefined;
  }
}

function waited({ now }: Gateway, exchange: Exchange, queuedMs: number): void {
  exchange.queuedMs = (exchange.queuedMs ?? 0) + queuedMs;
  exchange.trace?.stage('queue', now() - queuedMs, now());
}

const PRIORITY_SIGN = new KeySign('priority');

/** When the client gives up, as far as it says. */
function deadlineOf({ request: { headers, exchange } }: Call): number | undefined {
  const timeoutMs = clientTimeoutMs(headers);
  return timeoutMs === undefined ? undefined : exchange.arrivedAt + timeoutMs;
}

/** The request's own `priority` as the engine reads it, the higher the sooner; 0 where it has none, or the engine. */
function urgencyOf({ body }: Call, { dialect: { priority: direction } }: Engine): number {
  if (direction === undefined || !PRIORITY_SIGN.isIn(body)) return 0;
  try {
    const priority = new BodyView(body).parse('priority');
    if (!Number.isSafeInteger(priority)) return 0;
    return direction === 'higher' ? (priority as number) : 0 - (priority as number);
  } catch {
    return 0;
  }
}

/** What a prompt is the first to compute of what others may begin with. */
function leadOf({ arrangements }: ArrangedPrompt): ColdPrefix | undefined {
  const [first] = arrangements;
  if (first?.preamble === undefined) return undefined;
  return coldPrefix({ preamble: first.preamble, documents: first.documents }, first.predictedCachedTokens);
}

/** Where a prompt goes, and what it adds there to the work to be done. */
interface Place {
  readonly engine: Engine;
  /** Tokens that the engine has more to compute until the prefill is over, or will not be. */
  readonly pendingTokens: number;
}

function placeOf({ gateway, call, prepared, tried }: PromptUnderWay): Place {
  const { engines, sentPrefixes, now } = gateway;
  const { only } = engines;
  const { tenant, body } = call;
  if (only !== undefined) return { engine: only, pendingTokens: 0 };
  const beginnings = sentPrefixes.beginningsOf(tenant, body);
  const sharedBytes = sentPrefixes.sharedBytes(beginnings);
  const question = routeQuestion(gateway, tenant, prepared, now());
  const promptTokens = estimateTokensOfBytes(body);
  const tokensPerByte = promptTokens / Math.max(1, body.length);
  const beginningTokens = (engine: Engine): number => tokensPerByte * sharedBytes(engine.number);
  const { engine, route } = engines.route({
    model: () => question?.model ?? modelIn(call),
    promptTokens,
    cachedTokens: (engine) => Math.max(question?.cachedTokens(engine) ?? 0, beginningTokens(engine)),
    tried,
  });
  sentPrefixes.sent(beginnings, engine.number);
  call.request.exchange.engine = route;
  engine.pendingTokens += route.newTokens;
  return { engine, pendingTokens: route.newTokens };
}

/** What the gateway believes that engines hold of a prompt. */
interface RouteQuestion {
  readonly model: string;
  readonly cachedTokens: (engine: Engine) => number;
}

/** What each engine holds of the documents of a prompt; `undefined` for one without any that may be ordered. */
function routeQuestion(
  gateway: Gateway,
  tenant: string,
  prepared: PreparedPrompt,
  now: number,
): RouteQuestion | undefined {
  if (prepared.kind === 'plain') return undefined;
  try {
    const open = prepared.kind === 'found' ? openDocuments(gateway, prepared) : prepared.request;
    if (open === undefined) return undefined;
    const model = prepared.kind === 'found' ? prepared.found.model : prepared.parsed.model;
    const asked: ArrangeRequest = prepared.kind === 'found' ? { ...prepared.switches, ...open } : prepared.request;
    const reuse: (view: ResidencyView) => number = expectedCachedTokens(asked, now);
    const cachedTokens = (engine: Engine): number => {
      try {
        return reuse(gateway.histories.of(engine, tenant, model).history);
      } catch {
        return 0;
      }
    };
    return { model, cachedTokens };
  } catch {
    // Bad input is refused, and a defect counted, where the order is decided.
    return undefined;
  }
}

/** Whether the prompt goes to another engine if this one fails; `undefined` where there is none to go to. */
function movesOn(
  { gateway, call, tried, begun }: PromptUnderWay,
  engine: Engine,
): ((failure: EngineFailure) => boolean) | undefined {
  const { engines } = gateway;
  if (engines.only !== undefined || tried.length + 1 >= MAX_TRIES) return undefined;
  return (failure) => {
    if (hasBegun(failure) && begun + 1 >= MAX_BEGUN) return false;
    // One that did not answer in time may be computing still, and so would the next one.
    if ('error' in failure && failure.error.code === 'WARMPATH_UPSTREAM_TIMEOUT' && hasBegun(failure)) return false;
    return !gateway.draining && engines.hasOther(() => modelIn(call), [...tried, engine], !hasBegun(failure));
  };
}

/** Whether the engine may have begun with the prompt: it had got it. */
function hasBegun(failure: EngineFailure): boolean {
  if ('status' in failure) return true;
  const { code, cause } = failure.error;
  const isUnsent = (cause as NodeJS.ErrnoException | undefined)?.code === 'UND_ERR_CONNECT_TIMEOUT';
  return code !== 'WARMPATH_UPSTREAM_UNREACHABLE' && !isUnsent;
}

function enterAgain(prompt: PromptUnderWay, engine: Engine, failure: EngineFailure): void {
  engine.requests.movedOn++;
  try {
    enter({ ...prompt, tried: [...prompt.tried, engine], begun: prompt.begun + Number(hasBegun(failure)) });
  } catch (error) {
    fail(prompt.gateway, prompt.call, [...prompt.tried, engine], error);
  }
}

/** What the first try noted is noted anew. */
function forgetFirstTry({ request: { exchange }, translation }: Call): void {
  exchange.warnings = translation?.warnings ?? [];
}

/** No engine answers it. */
function fail(gateway: Gateway, { request, reply }: Call, tried: readonly Engine[], error: unknown): void {
  if (tried.length === 0) {
    reply.send(error);
    return;
  }
  // The reply is past Fastify's reach since the first try.
  const known = WarmpathError.isInstance(error) ? error : new WarmpathError('WARMPATH_INTERNAL', { cause: error });
  refuse({ raw: reply.raw, exchange: request.exchange }, known, {
    headers: ownHeaders(gateway, request.exchange),
    errors: errorShapeOf(request.url),
  });
}

/**
 * What the queue may know of a request: enough for policies, and to be weighed against others. `undefined`
 * for one without documents whose order is open. O(1); where documents stand in the prompt, O(text up to the end of the
 * first).
 */
function waitingContext(
  gateway: Gateway,
  engine: Engine,
  tenant: string,
  prepared: PreparedPrompt,
): WaitingContext | undefined {
  if (prepared.kind === 'inserted') return contextOf(gateway, engine, tenant, prepared.parsed.model, prepared.request);
  const open = prepared.kind === 'found' ? openDocuments(gateway, prepared) : undefined;
  return open && contextOf(gateway, engine, tenant, open.model, open);
}

function contextOf(
  { histories }: Gateway,
  engine: Engine,
  tenant: string,
  model: string,
  { documents, preamble }: { readonly documents: readonly Document[]; readonly preamble: Preamble },
): WaitingContext {
  return {
    documents,
    preamble,
    reuse: () => {
      const { tokens } = histories.of(engine, tenant, model).history.bestPath(documents, preamble, undefined);
      const total = documents.reduce((sum, document) => sum + document.tokens, preamble.tokens);
      // The question is computed in any case.
      return { cachedTokens: tokens, hostTokens: 0, computeTokens: total - tokens + 1 };
    },
  };
}
