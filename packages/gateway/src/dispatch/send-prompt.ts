import type { WarmpathError } from '@warmpath/core';
import type { LabelMap } from '@warmpath/core/internal';
import { EventSplitter } from '../answer/event-splitter.js';
import { MappedAnswer } from '../answer/map-labels.js';
import { asObject } from '../answer/read-answer.js';
import { type EngineFailure, type ForwardParts, forward, type OwnField, type RelayResult } from '../answer/relay.js';
import { SourcedAnswer } from '../answer/sourced-answer.js';
import {
  chatApi,
  errorShapeOf,
  isStreamHead,
  type ResponseBody,
  type ResponseHead,
  UntouchedBody,
} from '../apis/prompt-apis.js';
import type { PromptApi } from '../apis/prompt-view.js';
import type { Dialect } from '../dialects/dialects.js';
import { type Engine, IDENTITY, promptHeaders } from '../engines/engine.js';
import { applyEdits, BodyView } from '../json/json-body.js';
import { isObject } from '../json/json-scanner.js';
import type { Baselines, PromptBaseline } from '../memory/baselines.js';
import type { ReportBuilder } from '../observe/report.js';
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
    report.mapsLabels = labels !== undefined;
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

const USAGE = '"usage"';
const NULL_USAGE = /,\s*"usage"\s*:\s*null(?=\s*[,}])/;
const NOTHING = Buffer.alloc(0);

/**
 * The body that asks for the counts of a stream whose client did not ask. `undefined` for what is no such stream, and
 * for what cannot be read. O(body) for streams.
 */
export function askingForUsage(body: Buffer, api: PromptApi, dialect: Dialect): Buffer | undefined {
  if (dialect.streamUsage === undefined || (api.name !== 'chat' && api.name !== 'completions')) return undefined;
  if (!body.includes('"stream"')) return undefined;
  try {
    const view = new BodyView(body);
    const options = view.parse('stream_options') ?? {};
    if (view.parse('stream') !== true || !isObject(options) || options['include_usage'] === true) return undefined;
    return applyEdits(body, [view.with('stream_options', JSON.stringify({ ...options, include_usage: true }))]);
  } catch {
    return undefined;
  }
}

/**
 * Takes out of a stream what the engine added because the gateway asked for its counts: the event with them, and
 * `"usage":null` in the others where the engine writes that. All other bytes stay. An event is passed on when it is
 * complete.
 */
export class WithoutUsage implements ResponseBody {
  readonly #inner: ResponseBody;
  readonly #hasNulls: boolean;
  #isStream = false;
  #isAsked = true;
  readonly #events = new EventSplitter();

  constructor(inner: ResponseBody, { streamUsage }: Dialect) {
    this.#inner = inner;
    this.#hasNulls = streamUsage === 'event-and-nulls';
  }

  /** The engine was asked without it after all. */
  withdraw(): void {
    this.#isAsked = false;
  }

  head(head: ResponseHead): ResponseHead | undefined {
    const { status, headers } = head;
    const coding = headers['content-encoding'] ?? 'identity';
    this.#isStream = this.#isAsked && status === 200 && coding === 'identity' && isStreamHead(head);
    if (!this.#isStream) return this.#inner.head(head);
    const { 'content-length': _length, ...others } = headers;
    return this.#inner.head({ status, headers: others });
  }

  data(chunk: Buffer): Buffer | string {
    if (!this.#isStream) return this.#inner.data(chunk);
    return this.#pass(this.#events.take(chunk).map((event) => this.#event(event)));
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    const rest = this.#pass([this.#event(this.#events.rest())]).toString();
    const end = this.#inner.end();
    return { ...end, rest: rest + end.rest };
  }

  broken(error: WarmpathError): string {
    return this.#pass([this.#events.rest()]).toString() + this.#inner.broken(error);
  }

  #pass(events: readonly Buffer[]): Buffer | string {
    const bytes = Buffer.concat(events);
    return bytes.length === 0 ? NOTHING : this.#inner.data(bytes);
  }

  #event(event: Buffer): Buffer {
    if (!event.includes(USAGE)) return event;
    const text = event.toString();
    const data = text.match(/^data:.*$/gm)?.map((line) => line.slice('data:'.length));
    const object = data && asObject(data.join('\n'));
    if (object === undefined) return event;
    const { usage, choices } = object;
    if (isObject(usage) && Array.isArray(choices) && choices.length === 0) return NOTHING;
    return usage === null && this.#hasNulls ? Buffer.from(text.replace(NULL_USAGE, '')) : event;
  }
}
