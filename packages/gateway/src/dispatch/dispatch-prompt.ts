import {
  type ArrangeRequest,
  type Document,
  estimateTokensOfBytes,
  expectedReuse,
  type Preamble,
  type ResidencyView,
  WarmpathError,
} from '@warmpath/core';
import { type EngineFailure, refuse } from '../answer/relay.js';
import { arrangePrompt } from '../arrange/arrange-prompt.js';
import type { ArrangedPrompt } from '../arrange/arranged-prompt.js';
import { openDocuments } from '../arrange/found/serve-recognised.js';
import { type Call, isReadable, modelIn, type PreparedPrompt } from '../arrange/prepare-prompt.js';
import type { Engine } from '../engines/engine.js';
import type { Gateway } from '../gateway.js';
import { errorShapeOf } from '../intake/apis/error-shape.js';
import { BodyView } from '../intake/body-view.js';
import { mentionsKey } from '../intake/parse-request.js';
import type { ChosenEngine, Exchange } from '../observe/exchange.js';
import { askIndexer, type IndexedShares, type RouteQuestion } from './ask-indexer.js';
import { ownHeaders } from './forward.js';
import { clientTimeoutMs } from './headers.js';
import { type ColdPrefix, coldPrefix } from './leading-prompts.js';
import { sendPrompt } from './send-prompt.js';
import type { Dispatch, Waiting, WaitingContext } from './tenant-queue.js';

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
  /** What an index of the engines' caches says of it. */
  readonly indexed: IndexedShares | undefined;
}

/** The prompt goes to an engine, and waits for it if it must. */
export function dispatchPrompt(gateway: Gateway, call: Call, prepared: PreparedPrompt): void {
  const { indexer, engines, now } = gateway;
  const prompt = { gateway, call, prepared, tried: [], begun: 0 };
  if (indexer === undefined || engines.only !== undefined) {
    enter({ ...prompt, indexed: undefined });
    return;
  }
  const question = routeQuestion(gateway, call.tenant, prepared, now());
  void askIndexer(gateway, indexer, call, prepared, question).then((indexed) => {
    try {
      enter({ ...prompt, indexed });
    } catch (error) {
      fail({ ...prompt, indexed }, error);
    }
  });
}

function enter(prompt: PromptUnderWay): void {
  const { gateway, call, prepared, tried } = prompt;
  const { request, reply, tenant } = call;
  if (reply.raw.destroyed) return;
  const place = placeOf(prompt);
  const { engine } = place;
  let context: WaitingContext | undefined | 'unread' = 'unread';
  let beginnings: readonly string[] | undefined;
  const dispatch: Dispatch = {
    tenant,
    tells: asksForStream(call.body),
    deadline: deadlineOf(call),
    urgency: () => urgencyOf(call, engine),
    // A function, not a getter: V8 gives each object with a getter in its literal a shape of its own, and that held
    // the whole request until the next full collection.
    context: () => {
      if (context === 'unread') context = waitingContext(gateway, engine, tenant, prepared);
      return context;
    },
    beginnings: () => {
      beginnings ??= prepared.kind === 'plain' ? gateway.sentPrefixes.beginningsOf(tenant, prepared.body).hashes : NONE;
      return beginnings;
    },
    start: (queuedMs, room) => {
      if (queuedMs > 0) waited(gateway, request.exchange, queuedMs);
      const computed = prefills(place);
      const left = (isComputed: boolean): void => {
        computed();
        room.release(isComputed);
      };
      try {
        if (tried.length > 0) forgetFirstTry(call);
        const arranged = arrangePrompt(gateway, engine, call, prepared);
        const lead = engine.dialect.needsLeader ? leadOf(arranged) : undefined;
        if (lead !== undefined) room.leads(lead);
        const isAwaited = engine.dialect.needsLeader && room.leadsBytes(dispatch.beginnings());
        sendPrompt(gateway, engine, call, arranged, {
          computed,
          isAwaited,
          began: () => room.began(newTokensOf(place, arranged)),
          released: left,
          movesOn: movesOn(prompt, engine),
          moved: (failure) => enterAgain(prompt, engine, failure),
        });
      } catch (error) {
        left(false);
        fail(prompt, error);
      }
    },
    refuse: (error) => {
      place.computed();
      fail(prompt, error);
    },
    moved: () => {
      place.computed();
      try {
        enter(prompt);
      } catch (error) {
        fail(prompt, error);
      }
    },
  };
  let waiting: Waiting | undefined;
  try {
    waiting = engine.queue.enter(dispatch);
  } catch (error) {
    place.computed();
    throw error;
  }
  if (waiting === undefined || waiting.isOver) return;
  const own = waiting;
  reply.raw.once('close', () => {
    if (engine.queue.leave(own)) place.computed();
  });
}

function waited({ now }: Gateway, exchange: Exchange, queuedMs: number): void {
  exchange.queuedMs = (exchange.queuedMs ?? 0) + queuedMs;
  exchange.trace?.stage('queue', now() - queuedMs, now());
}

const STREAM = ['"stream":true', '"stream": true'];

/**
 * Whether the answer to a body is a stream. In a text of the body, quotes have a backslash before them. O(body).
 */
function asksForStream(body: Buffer): boolean {
  return mentionsKey(body, 'stream') && STREAM.some((member) => body.includes(member));
}

/** When the client gives up, as far as it says. */
function deadlineOf({ request: { headers, exchange } }: Call): number | undefined {
  const timeoutMs = clientTimeoutMs(headers);
  return timeoutMs === undefined ? undefined : exchange.arrivedAt + timeoutMs;
}

/** The request's own `priority` as the engine reads it, the higher the sooner; 0 where it has none, or the engine. */
function urgencyOf({ request, body }: Call, { dialect: { priority: direction } }: Engine): number {
  if (direction === undefined || !isReadable(request) || !mentionsKey(body, 'priority')) return 0;
  try {
    const priority = new BodyView(body).parse('priority');
    if (!Number.isSafeInteger(priority)) return 0;
    return direction === 'higher' ? (priority as number) : 0 - (priority as number);
  } catch {
    return 0;
  }
}

/** What a token of a body that nobody has read is taken for. */
const BYTES_PER_TOKEN = 4;

/** Tokens of a prompt that the engine has to compute, by estimate. */
function newTokensOf({ newTokens, body }: Place, { arrangements, estimatedTokens }: ArrangedPrompt): number {
  const last = arrangements.at(-1);
  if (last !== undefined) return Math.max(1, estimatedTokens - last.predictedCachedTokens);
  return newTokens ?? body.length / BYTES_PER_TOKEN;
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
  readonly body: Buffer;
  /** Tokens that it has to compute there; `undefined` where engines were not compared. */
  readonly newTokens: number | undefined;
  /** Its prefill is over, or will not be. */
  readonly computed: () => void;
}

const nothing = (): void => {};

function placeOf({ gateway, call, prepared, tried, indexed }: PromptUnderWay): Place {
  const { engines, sentPrefixes, now } = gateway;
  const { only } = engines;
  const { tenant, body } = call;
  if (only !== undefined) return { engine: only, body, newTokens: undefined, computed: nothing };
  const beginnings = sentPrefixes.beginningsOf(tenant, body);
  const sharedBytes = sentPrefixes.sharedBytes(beginnings);
  const question = routeQuestion(gateway, tenant, prepared, now());
  const promptTokens = estimateTokensOfBytes(body);
  const tokensPerByte = promptTokens / Math.max(1, body.length);
  const beginningTokens = (engine: Engine): number => {
    const share = indexed?.of(engine);
    const sent = tokensPerByte * sharedBytes(engine.number);
    if (share === undefined) return sent;
    // What it has not begun to answer is in no index yet.
    const isBehind = !indexed!.isComplete || engine.prefilling > 0;
    return isBehind ? Math.max(share * promptTokens, sent) : share * promptTokens;
  };
  const { engine, route } = engines.route({
    model: () => question?.model ?? modelIn(call),
    promptTokens,
    cachedTokens: (engine) => Math.max(question?.cachedTokens(engine) ?? 0, beginningTokens(engine)),
    tried,
  });
  sentPrefixes.sent(beginnings, engine.number);
  call.request.exchange.engine = route;
  return { engine, body, newTokens: route.newTokens, computed: pending(engine, route) };
}

/** The engine has the prompt and has not begun to answer it, until that is called. */
function prefills({ engine, computed }: Place): () => void {
  engine.prefilling++;
  return once(() => {
    engine.prefilling--;
    computed();
  });
}

/** The engine has so many tokens more to compute, until that is called. */
function pending(engine: Engine, { newTokens }: ChosenEngine): () => void {
  engine.pendingTokens += newTokens;
  return once(() => {
    engine.pendingTokens -= newTokens;
  });
}

/** What only the first of its calls does. */
function once(work: () => void): () => void {
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    work();
  };
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
    const model = prepared.kind === 'found' ? prepared.found.request.model : prepared.parsed.model;
    const asked: ArrangeRequest = prepared.kind === 'found' ? { ...prepared.switches, ...open } : prepared.request;
    const reuse: (view: ResidencyView) => number = expectedReuse(asked, now);
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
    fail({ ...prompt, tried: [...prompt.tried, engine] }, error);
  }
}

/** What the first try noted is noted anew. */
function forgetFirstTry({ request: { exchange }, translation }: Call): void {
  exchange.warnings = translation?.warnings ?? [];
}

/** No engine answers it. */
function fail({ gateway, call, tried }: PromptUnderWay, error: unknown): void {
  const { request, reply } = call;
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
