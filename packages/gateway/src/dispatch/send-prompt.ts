import type { LabelMap } from '@warmpath/core/internal';
import { MappedAnswer } from '../answer/map-labels.js';
import { type EngineFailure, type ForwardParts, forward, type OwnField, type RelayResult } from '../answer/relay.js';
import { SourcedAnswer } from '../answer/sourced-answer.js';
import { askingForUsage, WithoutUsage } from '../answer/stream-usage.js';
import { chatApi } from '../apis/prompt-apis.js';
import { errorShapeOf, type ResponseBody, UntouchedBody } from '../apis/response-body.js';
import { type Engine, IDENTITY, promptHeaders } from '../engines/engine.js';
import type { Baselines, PromptBaseline } from '../memory/baselines.js';
import type { ReportBuilder } from '../observe/report.js';
import type { RequestLog } from '../observe/request-log.js';
import { type TracedAnswer, traced } from '../observe/tracing.js';
import type { ArrangedPrompt, PromptArranger } from '../prompt/decide.js';
import { modelIn } from '../prompt/parse-prompt.js';
import type { CacheSalts } from '../prompt/render.js';
import type { Call } from '../shapes/shapes.js';
import type { Learning, LearningPrompt } from './learn.js';

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
  /**
   * Whether another engine gets it, if this one fails before its client hears of it; `undefined` where none can.
   */
  readonly canRetryElsewhere: ((failure: EngineFailure) => boolean) | undefined;
  /** After `released`, where `canRetryElsewhere` said so: another engine is to get it. */
  retryElsewhere(failure: EngineFailure): void;
}

/** Characters of a model's name that are recorded. */
const MAX_MODEL_LENGTH = 256;

export interface PromptSenderParts extends ForwardParts {
  readonly learning: Learning;
  readonly baselines: Baselines;
  readonly arranger: PromptArranger;
  /** Only where a key is configured. */
  readonly cacheSalts: CacheSalts | undefined;
  /** Where prompts are compared with earlier ones; `undefined` where they are not. */
  readonly compared: RequestLog | undefined;
}

/** Sends prompts to engines, with the tenant's salt where one is configured, and learns from their answers. */
export class PromptSender {
  readonly #parts: PromptSenderParts;

  constructor(parts: PromptSenderParts) {
    this.#parts = parts;
  }

  send(engine: Engine, call: Call, arranged: ArrangedPrompt, listener: SentPromptListener): void {
    const { learning, cacheSalts, now } = this.#parts;
    const dispatchedAt = now();
    const { report } = call.request;
    const { labels } = arranged.sent;
    const { dialect, name, upstream } = engine;
    const trace = report.trace?.dispatched(
      { api: call.api.name, model: modelIn(call), engine: { name, url: upstream.url, dialect: dialect.name } },
      dispatchedAt,
    );
    let baseline: PromptBaseline | undefined;
    const prompt = learning.keep(arranged, call.tenant, engine);
    const readsAnswer = mustReadAnswer(prompt);
    learning.dispatched(arranged, prompt, call.tenant);
    const back = responseBodyOf(call, prompt, labels);
    const body = cacheSalts?.salted(arranged.sent.body, call.tenant) ?? arranged.sent.body;
    const mayAsk = engine.streamUsage !== 'refused' && report.unmoved !== 'bypass';
    const asking = mayAsk ? askingForUsage(body, call.api, engine.dialect) : undefined;
    const usage = asking && new WithoutUsage(back ?? new UntouchedBody(errorShapeOf(call.request.url)), dialect);
    forward(this.#parts, engine, call, asking ?? body, {
      path: call.translation && chatApi.path,
      body: usage ?? back,
      labels,
      withoutOwnField: usage && engine.streamUsage === 'untried' ? ownField(engine, usage, body) : undefined,
      requestHeaders: [promptHeaders(engine, call), IDENTITY, trace?.headers],
      reads: readsAnswer ? 'answer' : 'usage',
      onAccepted: () => learning.accepted(prompt),
      onFirstData: () => {
        baseline?.prefilled();
        listener.computed();
      },
      onFirstContent: () => listener.began(),
      canRetryElsewhere: listener.canRetryElsewhere,
      onSettled: (result) => {
        const isOver = now();
        traced(this.#parts, report, 'observe', () =>
          learning.ended({ engine, call, prompt, sent: body, dispatchedAt, baseline, result }),
        );
        trace?.ended(tracedAnswer(report, result), isOver);
        // The next prompt is arranged with what was learned.
        listener.released(result.status !== undefined && result.status < 300);
        if (result.retriedAfter !== undefined) listener.retryElsewhere(result.retriedAfter);
      },
    });
    baseline = this.#baseline(engine, call, arranged);
    this.#compare(call, body);
  }

  /** Behind the dispatch: the client does not wait for it. */
  #baseline(engine: Engine, call: Call, arranged: ArrangedPrompt): PromptBaseline | undefined {
    const { arranger, baselines, cacheSalts, learning, now } = this.#parts;
    const { report } = call.request;
    let baseline: PromptBaseline | undefined;
    report.isUnchanged = false;
    learning.guarded(() => {
      const body = arranger.asWritten(call, arranged, engine);
      const { history, slots } = arranged.prompt;
      report.isUnchanged = body.equals(arranged.sent.body);
      baseline = baselines.begin({
        engine,
        api: call.api,
        body,
        tenant: call.tenant,
        isSalted: cacheSalts !== undefined,
        turn: slots?.kind === 'insert' ? arranged.sent.turn?.sent.id : undefined,
        turnBefore: history?.turns.at(-1)?.id,
        now: now(),
      });
      report.predictedBaselineTokens = baseline?.predictedTokens;
      report.model = baseline?.model.slice(0, MAX_MODEL_LENGTH);
    });
    return baseline;
  }

  /** Says where this prompt parts from an earlier one. Behind the dispatch: the client does not wait for it. */
  #compare({ request: { report }, api, tenant }: Call, body: Buffer): void {
    const { compared, learning } = this.#parts;
    if (compared === undefined) return;
    learning.guarded(() => {
      report.prefix = compared.compare(tenant, report.requestId, { body: body.toString(), api });
    });
  }
}

/** An engine that was not tried yet may refuse the field that asks for counts. It is tried once. */
function ownField(engine: Engine, usage: WithoutUsage, body: Buffer): OwnField {
  let isWithdrawn = false;
  return {
    body,
    withdrawn: () => {
      isWithdrawn = true;
      usage.withdraw();
    },
    accepted: () => {
      engine.streamUsage = isWithdrawn ? 'refused' : 'taken';
    },
  };
}

function tracedAnswer(
  { errorCode, cachedTokens, decision }: ReportBuilder,
  { status, sniffer }: RelayResult,
): TracedAnswer {
  const { usage, completionTokens, firstContentAt } = sniffer;
  return {
    status,
    errorCode,
    promptTokens: usage?.promptTokens,
    cachedTokens: cachedTokens ?? usage?.cachedTokens,
    predictedCachedTokens: decision.predictedCachedTokens,
    completionTokens,
    firstContentAt,
  };
}

/**
 * The answer gets the client's labels; then that to a translation goes back through it, and one from retrieved passages
 * gets its sources.
 */
function responseBodyOf(
  { request, translation, sources, route }: Call,
  { arrangements }: LearningPrompt,
  labels: LabelMap | undefined,
): ResponseBody | undefined {
  if (sources === undefined && labels === undefined) return translation?.answer;
  let answer = translation?.answer ?? new UntouchedBody(errorShapeOf(request.url));
  if (labels !== undefined) answer = new MappedAnswer(answer, labels);
  return sources === undefined ? answer : new SourcedAnswer(answer, { api: route, sources, arrangements });
}

/**
 * Whether the answer is to be known again. Where other documents went out for the very same messages before, the next
 * request continues one of the two.
 */
function mustReadAnswer({ turn }: LearningPrompt): boolean {
  return turn?.history.siblings.some(({ id }) => id !== turn.sent.id) === true;
}
