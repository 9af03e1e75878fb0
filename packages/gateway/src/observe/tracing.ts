import type { IncomingHttpHeaders } from 'node:http';
import type { Attributes, Context, Span, TextMapSetter } from '@opentelemetry/api';
import type { ErrorCode } from '@warmpath/core';
import type { ApiName } from '../apis/prompt-view.js';
import type { DialectName } from '../dialects/dialects.js';
import type { Report } from '../shapes/shapes.js';

/**
 * The parts of a request's way that have a span of their own. `intake`: until its body is there. `retrieval`: one stage
 * of a search. `read`: what it asks for is read and checked. `conversation`: what its earlier turns were is looked up.
 * `documents`: they are found in it, or measured. `queue`: it waits for the engine. `arrange`: the order is decided.
 * `render`: the body for the engine is made. `prefill`: until the engine's first content. `answer`: from there to its
 * end. `observe`: what was learned is remembered.
 */
type Stage =
  | 'intake'
  | 'retrieval'
  | 'read'
  | 'conversation'
  | 'documents'
  | 'queue'
  | 'arrange'
  | 'render'
  | 'prefill'
  | 'answer'
  | 'observe';

/** What is said of a prompt when it goes out. */
interface TracedCall {
  readonly api: ApiName;
  readonly model: string;
  readonly engine: { readonly name: string; readonly url: string; readonly dialect: DialectName };
}

/** How the engine answered; a count that it did not state is `undefined`. */
export interface TracedAnswer {
  readonly status: number | undefined;
  readonly errorCode: ErrorCode | undefined;
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  readonly predictedCachedTokens: number | undefined;
  readonly completionTokens: number | undefined;
  /** `undefined` for an answer in one piece. */
  readonly firstContentAt: number | undefined;
}

/** The span of one prompt at one engine. */
interface CallTrace {
  readonly headers: Readonly<Record<string, string>>;
  ended(answer: TracedAnswer, at: number): void;
}

/** Writes spans, where this process has somebody who wants them. */
export interface Tracing {
  /** `undefined` where nobody records anything, and no trace is to be carried on. */
  begin(
    request: { readonly method: string; readonly route: string; readonly headers: IncomingHttpHeaders },
    clock: { readonly now: () => number; readonly startedAt: number },
  ): RequestTrace | undefined;
}

type Api = typeof import('@opentelemetry/api');

/** OpenTelemetry's API, if it is installed. Without an SDK in the process it records nothing. */
export async function loadTracing(): Promise<Tracing | undefined> {
  try {
    const api = await import('@opentelemetry/api');
    return { begin: (request, clock) => begin(api, request, clock) };
  } catch {
    return undefined;
  }
}

/**
 * Runs a part of a request's way, with a span where the request is traced. Work that goes on later is waited for.
 */
export function traced<Result>(
  { now }: { readonly now: () => number },
  { trace }: { readonly trace: RequestTrace | undefined },
  name: Stage,
  work: () => Result,
): Result {
  if (trace === undefined) return work();
  const startedAt = now();
  const ended = (): void => trace.stage(name, startedAt, now());
  try {
    const result = work();
    if (result instanceof Promise) return result.finally(ended) as Result;
    ended();
    return result;
  } catch (error) {
    ended();
    throw error;
  }
}

const SCOPE = '@warmpath/gateway';

/** As the conventions for generative AI name operations. Responses of every kind are a chat. */
const OPERATIONS: Readonly<Record<ApiName, string>> = {
  chat: 'chat',
  messages: 'chat',
  responses: 'chat',
  completions: 'text_completion',
};

/** Hosted APIs by the conventions' names; an engine of one's own goes by its dialect. */
const PROVIDERS: Readonly<Partial<Record<DialectName, string>>> = {
  gemini: 'gcp.gemini',
  mistral: 'mistral_ai',
  xai: 'x_ai',
};

const SETTER: TextMapSetter<Record<string, string>> = {
  set: (headers, name, value) => {
    headers[name.toLowerCase()] = value;
  },
};

function begin(
  api: Api,
  { method, route, headers }: Parameters<Tracing['begin']>[0],
  { now, startedAt }: Parameters<Tracing['begin']>[1],
): RequestTrace | undefined {
  const { context, propagation, SpanKind, trace, isSpanContextValid } = api;
  // Most processes have no SDK: nothing is made for a request there.
  const provider = trace.getTracerProvider();
  const tracer =
    provider instanceof api.ProxyTracerProvider ? provider.getDelegateTracer(SCOPE) : provider.getTracer(SCOPE);
  if (tracer === undefined) return undefined;
  // Where Node's HTTP server is instrumented, its span is the parent; the client's is, otherwise.
  const around = context.active();
  const isInside = trace.getSpan(around) !== undefined;
  const parent = isInside ? around : propagation.extract(around, headers);
  // Spans want the time of day.
  const dayMs = Date.now() - now();
  const span = tracer.startSpan(
    `${method} ${route}`,
    {
      kind: isInside ? SpanKind.INTERNAL : SpanKind.SERVER,
      startTime: dayMs + startedAt,
      attributes: { 'http.request.method': method, 'http.route': route },
    },
    parent,
  );
  if (!isSpanContextValid(span.spanContext())) return undefined;
  return new RequestTrace(api, span, trace.setSpan(parent, span), dayMs);
}

/** Spans of one request. All times are of the gateway's clock. */
export class RequestTrace {
  /** What carries the trace on: `traceparent`, `tracestate`, `baggage`. */
  readonly headers: Readonly<Record<string, string>>;
  readonly #api: Api;
  readonly #span: Span;
  readonly #context: Context;
  readonly #dayMs: number;

  constructor(api: Api, span: Span, context: Context, dayMs: number) {
    this.#api = api;
    this.#span = span;
    this.#context = context;
    this.#dayMs = dayMs;
    this.headers = carried(api, context);
  }

  /** 32 hexadecimal digits. */
  get traceId(): string {
    return this.#span.spanContext().traceId;
  }

  stage(name: Stage, startedAt: number, endedAt: number): void {
    this.#stage(this.#context, name, startedAt, endedAt);
  }

  /** A prompt goes to an engine. */
  dispatched({ api, model, engine }: TracedCall, at: number): CallTrace {
    const operation = OPERATIONS[api];
    const { hostname, port, protocol } = new URL(engine.url);
    const span = this.#api.trace.getTracer(SCOPE).startSpan(
      model === '' ? operation : `${operation} ${model}`,
      {
        kind: this.#api.SpanKind.CLIENT,
        startTime: this.#dayMs + at,
        attributes: {
          'gen_ai.operation.name': operation,
          'gen_ai.provider.name': PROVIDERS[engine.dialect] ?? engine.dialect,
          ...(model !== '' && { 'gen_ai.request.model': model }),
          'server.address': hostname,
          'server.port': Number(port) || (protocol === 'https:' ? 443 : 80),
          'warmpath.engine': engine.name,
        },
      },
      this.#context,
    );
    const context = this.#api.trace.setSpan(this.#context, span);
    return {
      headers: carried(this.#api, context),
      ended: (answer, endedAt) => {
        const { firstContentAt } = answer;
        if (firstContentAt !== undefined) {
          this.#stage(context, 'prefill', at, firstContentAt);
          this.#stage(context, 'answer', firstContentAt, endedAt);
        }
        span.setAttributes(attributesOf(answer));
        if (errorOf(answer) !== undefined) span.setStatus({ code: this.#api.SpanStatusCode.ERROR });
        span.end(this.#dayMs + endedAt);
      },
    };
  }

  /** The answer is over, or its client gone. */
  ended(report: Report, at: number): void {
    const { errorCode, requestId, status } = report;
    this.#span.setAttributes({
      'http.response.status_code': status,
      'warmpath.request_id': requestId,
      ...stated({
        'error.type': errorCode ?? (status >= 500 ? String(status) : undefined),
        'warmpath.policy': report.policy,
        'warmpath.documents': report.documents,
        'warmpath.documents_moved': report.documentsMoved,
        'warmpath.references': report.references || undefined,
        'warmpath.deduplicated_tokens': report.deduplicatedTokens || undefined,
        'warmpath.speculation': report.retrieval?.speculation ?? undefined,
        'warmpath.fallback': report.fallback,
      }),
    });
    // What the client did wrong, or that it left, is no error of this server's.
    if (status >= 500) this.#span.setStatus({ code: this.#api.SpanStatusCode.ERROR });
    this.#span.end(this.#dayMs + at);
  }

  #stage(context: Context, name: Stage, startedAt: number, endedAt: number): void {
    if (!this.#span.isRecording()) return;
    const options = { startTime: this.#dayMs + startedAt };
    this.#api.trace
      .getTracer(SCOPE)
      .startSpan(name, options, context)
      .end(this.#dayMs + Math.max(startedAt, endedAt));
  }
}

function carried({ propagation }: Api, context: Context): Record<string, string> {
  const headers: Record<string, string> = {};
  propagation.inject(context, headers, SETTER);
  return headers;
}

function attributesOf(answer: TracedAnswer): Attributes {
  return stated({
    'http.response.status_code': answer.status,
    'error.type': errorOf(answer),
    'gen_ai.usage.input_tokens': answer.promptTokens,
    'gen_ai.usage.output_tokens': answer.completionTokens,
    'gen_ai.usage.cache_read.input_tokens': answer.cachedTokens,
    'warmpath.predicted_cached_tokens': answer.predictedCachedTokens,
  });
}

function errorOf({ status, errorCode }: TracedAnswer): string | undefined {
  if (errorCode !== undefined) return errorCode;
  return status !== undefined && status >= 400 ? String(status) : undefined;
}

/** Without what there is nothing to say of. */
function stated(attributes: Attributes): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
}
