import { observe, type Warning } from '@warmpath/core';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type ComposedRequest, type Fallback, isBadInput } from './compose.js';
import type { Exchange } from './exchange.js';
import { type ExtractedRequest, extract, type PromptKind } from './extract.js';
import { forward } from './forward.js';
import type { Gateway } from './gateway.js';
import { RESPONSE_HEADERS } from './headers.js';
import { prefixOf } from './prefix.js';
import type { RelayResult } from './relay.js';
import type { TenantModel } from './served-histories.js';
import { tenantOf } from './tenant.js';

/** Warnings named in the response header; the rest shows as a number. */
const WARNINGS_SHOWN = 8;

/** One client call, as fastify hands it over. */
interface Call {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

/** What goes to the engine: the client's body as it came, one without the gateway's fields, or one with documents in place. */
type Outgoing =
  | { readonly kind: 'untouched' }
  | { readonly kind: 'plain'; readonly body: string }
  | {
      readonly kind: 'arranged';
      readonly composed: ComposedRequest;
      readonly state: TenantModel;
      readonly prefix: string;
    };

/**
 * The way of a prompt through the gateway: extract, arrange, render, forward, observe. A body without documents passes
 * through as it is. A defect of the gateway forwards the original body; only bad input is refused.
 */
export function servePrompt(gateway: Gateway, kind: PromptKind) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    request.exchange.bodyAt = gateway.now();
    const body = (request.body as Buffer | undefined) ?? Buffer.alloc(0);
    const call = { request, reply };
    let outgoing: Outgoing;
    try {
      outgoing = isReadable(request) ? compose(gateway, request, extract(body, kind)) : { kind: 'untouched' };
    } catch (error) {
      if (isBadInput(error)) throw error;
      failOpen(gateway, request, 'original', error);
      forward(gateway, call, body, { responseHeaders: { [RESPONSE_HEADERS.fallback]: 'original' } });
      return;
    }
    if (outgoing.kind === 'untouched') forward(gateway, call, body);
    else if (outgoing.kind === 'plain') forward(gateway, call, outgoing.body);
    else forwardArranged(gateway, call, outgoing);
  };
}

/** A compressed body is the engine's to read. */
function isReadable({ headers }: FastifyRequest): boolean {
  const encoding = headers['content-encoding'];
  return encoding === undefined || encoding === 'identity';
}

function compose(gateway: Gateway, request: FastifyRequest, extracted: ExtractedRequest | undefined): Outgoing {
  if (extracted === undefined) return { kind: 'untouched' };
  if (extracted.bypass) return { kind: 'plain', body: extracted.rewrite(new Map()) };
  const tenant = tenantOf(request.headers.authorization);
  const arrangeRequest = gateway.composer.prepare(extracted, tenant, 'warmpath');
  if (extracted.prompt === undefined) return { kind: 'plain', body: extracted.rewrite(new Map()) };
  const state = gateway.histories.of(tenant, extracted.model);
  const composed = gateway.composer.compose(extracted, arrangeRequest, state, gateway.now());
  if (composed.fallback !== undefined) failOpen(gateway, request, composed.fallback, composed.defect);
  const prefix = prefixOf(tenant, extracted.model, composed.arrangement.preamble?.key ?? '');
  return { kind: 'arranged', composed, state, prefix };
}

function forwardArranged(gateway: Gateway, call: Call, outgoing: Extract<Outgoing, { kind: 'arranged' }>): void {
  const { composed, state } = outgoing;
  const { exchange } = call.request;
  const { arrangement } = composed;
  exchange.documents = arrangement.documents.length;
  exchange.documentsMoved = arrangement.trace.moves.filter((places) => places !== 0).length;
  exchange.predictedCachedTokens = state.counts.toEngineTokens(arrangement.predictedCachedTokens);
  const dispatchedAt = gateway.now();
  guard(gateway, () => observe({ kind: 'dispatched', arrangement, now: dispatchedAt }, state.history));
  forward(gateway, call, composed.body, {
    // The answer's usage is read on the way through, which a compressed answer would hide.
    requestHeaders: { 'accept-encoding': 'identity' },
    responseHeaders: arrangementHeaders(composed, exchange),
    onSettled: (result) => guard(gateway, () => learn(gateway, exchange, outgoing, { dispatchedAt, result })),
  });
}

function arrangementHeaders(composed: ComposedRequest, exchange: Exchange): Record<string, string> {
  const { arrangement, warnings, fallback } = composed;
  return {
    [RESPONSE_HEADERS.policy]: arrangement.trace.policy,
    [RESPONSE_HEADERS.predictedCachedTokens]: String(exchange.predictedCachedTokens),
    ...(warnings.length > 0 && { [RESPONSE_HEADERS.warnings]: warningsHeader(warnings) }),
    ...(fallback !== undefined && { [RESPONSE_HEADERS.fallback]: fallback }),
  };
}

function warningsHeader(warnings: readonly Warning[]): string {
  const shown = warnings.slice(0, WARNINGS_SHOWN).map(({ code, path }) => `${code} ${path}`);
  const hidden = warnings.length - shown.length;
  return hidden > 0 ? `${shown.join(', ')}, and ${hidden} more` : shown.join(', ');
}

/** Puts what the engine said into the state: the end of the request's way. */
function learn(
  gateway: Gateway,
  exchange: Exchange,
  { composed, state, prefix }: Extract<Outgoing, { kind: 'arranged' }>,
  { dispatchedAt, result }: { readonly dispatchedAt: number; readonly result: RelayResult },
): void {
  const { arrangement } = composed;
  const { sniffer, status } = result;
  const now = gateway.now();
  const { firstContentAt, usage } = sniffer;
  // A client that left after the first content left a prompt that is prefilled, and therefore cached.
  const prefilled = status !== undefined && status < 300 && (result.complete || sniffer.prefilled);
  if (!prefilled) {
    observe({ kind: 'failed', arrangement, now }, state.history);
    return;
  }
  if (firstContentAt !== undefined) exchange.ttftMs = firstContentAt - dispatchedAt;
  if (usage !== undefined) {
    state.counts.observe(composed.estimatedTokens, usage);
    exchange.promptTokens = usage.promptTokens;
    exchange.cachedTokens = state.counts.cachedTokens(usage);
  }
  const { promptTokens, cachedTokens, ttftMs } = exchange;
  const { counts } = state;
  observe(
    {
      kind: 'completed',
      arrangement,
      now,
      // The knowledge tree counts in estimated tokens; the engine's own counts are compared in the same unit.
      ...(promptTokens !== undefined && { promptTokens: counts.toEstimatedTokens(promptTokens) }),
      ...(cachedTokens !== undefined && { cachedTokens: counts.toEstimatedTokens(cachedTokens) }),
      ...(ttftMs !== undefined && { ttftMs }),
    },
    state.history,
  );
  gateway.prefixes.touch(prefix, now);
}

/** Learning is never worth an answer: a defect in it is counted, and the request goes its way. */
function guard(gateway: Gateway, step: () => void): void {
  try {
    step();
  } catch {
    gateway.metrics.error('WARMPATH_INTERNAL', 'gateway');
  }
}

function failOpen(gateway: Gateway, request: FastifyRequest, fallback: Fallback, defect: unknown): void {
  gateway.metrics.failedOpen(fallback);
  request.log.error({ requestId: request.exchange.requestId, fallback, ...describeDefect(defect) }, 'failed open');
}

/** Where a defect is, without its message, which may quote the request. */
export function describeDefect(defect: unknown): { name: string; at: string | undefined } {
  if (!(defect instanceof Error)) return { name: typeof defect, at: undefined };
  const frames = defect.stack?.split('\n').filter((line) => line.startsWith('    at '));
  return { name: defect.name, at: frames?.[0]?.trim() };
}
