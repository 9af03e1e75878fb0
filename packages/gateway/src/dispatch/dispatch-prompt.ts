import { type ResidencyView, WarmpathError } from '@warmpath/core';
import { estimateTokensOfBytes, expectedCachedTokens } from '@warmpath/core/internal';
import { type EngineFailure, type Lifecycle, ownHeaders, refuse } from '../answer/relay.js';
import { errorShapeOf } from '../apis/prompt-apis.js';
import type { Dispatch, EnginePlace, Waiting, WaitingContext } from '../engines/dispatch-queue.js';
import type { Engine } from '../engines/engine.js';
import type { Engines } from '../engines/engines.js';
import { type ColdPrefix, coldPrefix } from '../engines/leading-prompts.js';
import { clientTimeoutMs } from '../intake/headers.js';
import { BodyView } from '../json/json-body.js';
import type { SentPrefixes } from '../memory/sent-prefixes.js';
import type { ServedHistories } from '../memory/served-histories.js';
import type { ArrangedPrompt, OpenDocuments, PromptArranger } from '../prompt/decide.js';
import { sharedTokens } from '../prompt/insert-slot.js';
import { modelIn } from '../prompt/parse-prompt.js';
import type { AgentSessions } from '../sessions/agent-sessions.js';
import type { Call, Prompt } from '../shapes/shapes.js';
import type { PromptSender, SentPromptListener } from './send-prompt.js';

const NONE: readonly never[] = [];

/** Engines that one request is tried on where none of them could have begun with it. */
const MAX_TRIES = 3;
/** The same where they may have: a prompt that ends engines must not end many. */
const MAX_BEGUN = 2;

export interface PromptDispatcherParts {
  readonly engines: Engines;
  readonly sentPrefixes: SentPrefixes;
  readonly histories: ServedHistories;
  readonly arranger: PromptArranger;
  readonly sessions: AgentSessions;
  readonly sender: PromptSender;
  readonly lifecycle: Lifecycle;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/** One prompt, from the time it is ready until an engine answers it. */
interface DispatchedPrompt {
  readonly call: Call;
  readonly prompt: Prompt;
  /** Engines that failed to answer it, and how many of them may have begun. */
  readonly tried: readonly Engine[];
  readonly begun: number;
}

/** The engine that a prompt goes to. */
interface Destination {
  readonly engine: Engine;
  /** Tokens that the prompt adds to the work of the engine until its prefill is over. */
  readonly pendingTokens: number;
  /** The documents of the prompt whose order is open, if routing needed them. */
  readonly open: OpenDocuments | undefined | 'unread';
}

/** Routes prompts to engines, lets them wait there, and tries another engine before the client got a byte. */
export class PromptDispatcher {
  readonly parts: PromptDispatcherParts;

  constructor(parts: PromptDispatcherParts) {
    this.parts = parts;
  }

  dispatch(call: Call, prompt: Prompt): void {
    this.#enter({ call, prompt, tried: NONE, begun: 0 });
  }

  /** The prompt moves to another engine after this one failed, or goes away. */
  retry(prompt: DispatchedPrompt, engine: Engine, failure: EngineFailure): void {
    engine.requests.retriedElsewhere++;
    const tried = [...prompt.tried, engine];
    try {
      this.#enter({ ...prompt, tried, begun: prompt.begun + Number(hasBegun(failure)) });
    } catch (error) {
      this.fail(prompt.call, tried, error);
    }
  }

  /** The queue of its engine closed before its turn. */
  reroute(prompt: DispatchedPrompt): void {
    try {
      this.#enter(prompt);
    } catch (error) {
      this.fail(prompt.call, prompt.tried, error);
    }
  }

  /** No engine answers it. */
  fail({ request, reply }: Call, tried: readonly Engine[], error: unknown): void {
    if (tried.length === 0) {
      reply.send(error);
      return;
    }
    // The reply is past Fastify's reach since the first try.
    const known = WarmpathError.isInstance(error) ? error : new WarmpathError('WARMPATH_INTERNAL', { cause: error });
    refuse({ raw: reply.raw, report: request.report }, known, {
      headers: ownHeaders(this.parts.lifecycle, request.report),
      errors: errorShapeOf(request.url),
    });
  }

  /** Whether another engine gets the prompt if this one fails; `undefined` where there is none to go to. */
  canRetryElsewhere(
    { call, tried, begun }: DispatchedPrompt,
    engine: Engine,
  ): ((failure: EngineFailure) => boolean) | undefined {
    const { engines, lifecycle } = this.parts;
    if (engines.only !== undefined || tried.length + 1 >= MAX_TRIES) return undefined;
    return (failure) => {
      if (hasBegun(failure) && begun + 1 >= MAX_BEGUN) return false;
      // One that did not answer in time may be computing still, and so would the next one.
      if ('error' in failure && failure.error.code === 'WARMPATH_UPSTREAM_TIMEOUT' && hasBegun(failure)) return false;
      return !lifecycle.draining && engines.hasOther(() => modelIn(call), [...tried, engine], !hasBegun(failure));
    };
  }

  /** What the queue may know of a prompt; `undefined` for one without documents whose order is open. */
  waitingContext(
    { call: { tenant }, prompt }: DispatchedPrompt,
    { engine, open: known }: Destination,
  ): WaitingContext | undefined {
    const { arranger, histories } = this.parts;
    const open = known === 'unread' ? arranger.openDocuments(prompt, tenant) : known;
    if (open === undefined) return undefined;
    const { documents, preamble, model, request } = open;
    return {
      documents,
      preamble,
      reuse: () => {
        const { history } = histories.of(engine, tenant, model);
        const { tokens } = history.bestPath(documents, preamble, undefined);
        // The question is computed in any case.
        return { cachedTokens: tokens, computeTokens: sharedTokens(request) - tokens + 1 };
      },
    };
  }

  #enter(prompt: DispatchedPrompt): void {
    if (!prompt.call.reply.raw.destroyed) new EngineAttempt(this, prompt, this.#route(prompt)).enter();
  }

  #route({ call, prompt, tried }: DispatchedPrompt): Destination {
    const { engines, sentPrefixes, histories, arranger, sessions } = this.parts;
    const { only } = engines;
    const { tenant, body } = call;
    if (only !== undefined) return { engine: only, pendingTokens: 0, open: 'unread' };
    const beginnings = sentPrefixes.beginningsOf(tenant, body);
    const sharedBytes = sentPrefixes.sharedBytes(beginnings);
    const open = arranger.openDocuments(prompt, tenant);
    const reuse = this.#reuseOf(open);
    const promptTokens = estimateTokensOfBytes(body);
    const tokensPerByte = promptTokens / Math.max(1, body.length);
    const documentTokens = (engine: Engine): number => {
      if (open === undefined || reuse === undefined) return 0;
      try {
        return reuse(histories.of(engine, tenant, open.model).history);
      } catch {
        return 0;
      }
    };
    const { session } = call.request.report;
    const before = session && sessions.latest(tenant, session);
    const ofSession = ({ name }: Engine) => (before?.engine === name ? Math.min(promptTokens, before.heldTokens) : 0);
    const { engine, route } = engines.route({
      model: () => open?.model ?? modelIn(call),
      promptTokens,
      cachedTokens: (engine) =>
        Math.max(documentTokens(engine), tokensPerByte * sharedBytes(engine.number), ofSession(engine)),
      tried,
    });
    sentPrefixes.sent(beginnings, engine.number);
    call.request.report.engine = route;
    engine.pendingTokens += route.newTokens;
    return { engine, pendingTokens: route.newTokens, open };
  }

  /** What an engine would reuse of the documents of a prompt. */
  #reuseOf(open: OpenDocuments | undefined): ((view: ResidencyView) => number) | undefined {
    try {
      return open && expectedCachedTokens(open.request, this.parts.now());
    } catch {
      // Bad input is refused, and a defect counted, where the order is decided.
      return undefined;
    }
  }
}

/**
 * One prompt at one engine: it waits for room, is arranged, goes out, and its answer is followed to the end. One object
 * and no closures: an answer may take minutes, and closures would keep all that was read of the prompt for as long.
 */
class EngineAttempt implements Dispatch, SentPromptListener {
  readonly tenant: string;
  readonly deadline: number | undefined;
  readonly canRetryElsewhere: SentPromptListener['canRetryElsewhere'];
  isAwaited = false;
  readonly #dispatcher: PromptDispatcher;
  readonly #call: Call;
  readonly #destination: Pick<Destination, 'engine' | 'pendingTokens'>;
  /** `undefined` once no other engine can get it any more. */
  #prompt: DispatchedPrompt | undefined;
  /** `undefined` once no other engine can get it any more. */
  #open: Destination['open'];
  #context: WaitingContext | undefined | 'unread' = 'unread';
  #beginnings: readonly string[] | undefined;
  #room: EnginePlace | undefined;
  #isComputed = false;

  constructor(dispatcher: PromptDispatcher, prompt: DispatchedPrompt, destination: Destination) {
    const { call } = prompt;
    this.#dispatcher = dispatcher;
    this.#call = call;
    this.#prompt = prompt;
    const { engine, pendingTokens, open } = destination;
    this.#destination = { engine, pendingTokens };
    this.#open = open;
    this.tenant = call.tenant;
    this.deadline = deadlineOf(call);
    this.canRetryElsewhere = dispatcher.canRetryElsewhere(prompt, engine);
  }

  /** Starts it, or lets it wait. Throws: the engine has no room, and no place to wait. */
  enter(): void {
    const { engine } = this.#destination;
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
    return urgencyOf(this.#call, this.#destination.engine);
  }

  context(): WaitingContext | undefined {
    if (this.#context === 'unread') {
      this.#context = this.#dispatcher.waitingContext(this.#prompt!, { ...this.#destination, open: this.#open });
    }
    return this.#context;
  }

  beginnings(): readonly string[] {
    const { prompt } = this.#prompt!;
    const { sentPrefixes } = this.#dispatcher.parts;
    this.#beginnings ??= prompt.slots === undefined ? sentPrefixes.beginningsOf(this.tenant, prompt.body).hashes : NONE;
    return this.#beginnings;
  }

  start(queuedMs: number, room: EnginePlace): void {
    const { engine } = this.#destination;
    const { arranger, sender } = this.#dispatcher.parts;
    if (queuedMs > 0) this.#noteWait(queuedMs);
    engine.prefilling++;
    this.#room = room;
    try {
      const arranged = arranger.arrange(this.#call, this.#prompt!.prompt, engine);
      this.#call.request.report.decision = arranged.decision.summary;
      if (engine.dialect.needsLeader) this.#lead(arranged, room);
      sender.send(engine, this.#call, arranged, this);
    } catch (error) {
      this.released(false);
      this.#fail(error);
      return;
    }
    if (this.canRetryElsewhere === undefined) this.#forget();
  }

  refuse(error: WarmpathError): void {
    this.#endPrefill();
    this.#fail(error);
  }

  moved(): void {
    this.#endPrefill();
    this.#dispatcher.reroute(this.#prompt!);
  }

  retryElsewhere(failure: EngineFailure): void {
    this.#dispatcher.retry(this.#prompt!, this.#destination.engine, failure);
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

  #noteWait(queuedMs: number): void {
    const { report } = this.#call.request;
    const now = this.#dispatcher.parts.now();
    report.queuedMs = (report.queuedMs ?? 0) + queuedMs;
    report.trace?.stage('queue', now - queuedMs, now);
  }

  #lead({ decision }: ArrangedPrompt, room: EnginePlace): void {
    const lead = leadOf(decision);
    if (lead !== undefined) room.leads(lead);
    this.isAwaited = room.leadsBytes(this.beginnings());
  }

  /** The engine has computed the prompt, or will not. */
  #endPrefill(): void {
    if (this.#isComputed) return;
    this.#isComputed = true;
    const { engine, pendingTokens } = this.#destination;
    engine.pendingTokens -= pendingTokens;
    if (this.#room !== undefined) engine.prefilling--;
  }

  #fail(error: unknown): void {
    this.#dispatcher.fail(this.#call, this.#prompt?.tried ?? NONE, error);
  }

  /** No other engine can get it any more, so what was read of the prompt is needed no longer. */
  #forget(): void {
    this.#prompt = undefined;
    this.#open = undefined;
    this.#context = undefined;
    this.#beginnings = undefined;
  }
}

/** When the client gives up, as far as it says. */
function deadlineOf({ request: { headers, report } }: Call): number | undefined {
  const timeoutMs = clientTimeoutMs(headers);
  return timeoutMs === undefined ? undefined : report.arrivedAt + timeoutMs;
}

/** The request's own `priority` as the engine reads it, the higher the sooner; 0 where it has none, or the engine. */
function urgencyOf({ body }: Call, { dialect: { priority: direction } }: Engine): number {
  if (direction === undefined || !body.includes('"priority"')) return 0;
  try {
    const priority = new BodyView(body).parse('priority');
    if (!Number.isSafeInteger(priority)) return 0;
    return direction === 'higher' ? (priority as number) : 0 - (priority as number);
  } catch {
    return 0;
  }
}

/** What a prompt is the first to compute of what others may begin with. */
function leadOf({ arrangements }: ArrangedPrompt['decision']): ColdPrefix | undefined {
  const [first] = arrangements;
  if (first?.preamble === undefined) return undefined;
  return coldPrefix({ preamble: first.preamble, documents: first.documents }, first.predictedCachedTokens);
}

/** Whether the engine may have begun with the prompt: it had got it. */
function hasBegun(failure: EngineFailure): boolean {
  if ('status' in failure) return true;
  const { code, cause } = failure.error;
  const isUnsent = (cause as NodeJS.ErrnoException | undefined)?.code === 'UND_ERR_CONNECT_TIMEOUT';
  return code !== 'WARMPATH_UPSTREAM_UNREACHABLE' && !isUnsent;
}
