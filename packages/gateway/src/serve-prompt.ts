import { type ArrangeRequest, observe, type RecalledHistory, WarmpathError, type Warning } from '@warmpath/core';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { chatApi } from './apis/chat-api.js';
import type { ApiName, PromptApi } from './apis/prompt-api.js';
import { type ComposedRequest, type Conversation, type Fallback, isBadInput, type PromptRequest } from './compose.js';
import type { Caller } from './conversations.js';
import type { Dispatch, WaitingContext } from './dispatch-queue.js';
import type { Way } from './engine-apis.js';
import type { Exchange } from './exchange.js';
import type { RecordedBlock } from './explain/request-log.js';
import { type ExtractedRequest, extract, type RequestSwitches } from './extract.js';
import { failOpen, guard } from './fail-open.js';
import { engineHeaders, type ForwardOptions, forward } from './forward.js';
import type { Gateway } from './gateway.js';
import { RESPONSE_HEADERS, requestHeaders, SESSION_HEADER, translatedHeaders } from './headers.js';
import { prefixOf } from './prefix.js';
import { recogniseRequest } from './recognised/recognised-request.js';
import { serveRecognised, type WaitingInPlace } from './recognised/serve-recognised.js';
import type { RelayResult } from './relay.js';
import type { TenantModel } from './served-histories.js';
import { tenantOf } from './tenant.js';
import { type TranslatedApi, type Translation, translate } from './translation/translation.js';

/** Warnings named in the response header; the rest shows as a number. */
const WARNINGS_SHOWN = 8;

/** One client call, and what the engine is to get of it. */
interface Call {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  /** The API that the client speaks. */
  readonly route: ApiName;
  /** In which the body is written. */
  readonly api: PromptApi;
  /** The client's, or its translation. */
  readonly body: Buffer;
  readonly translation?: Translation;
}

/** A request as it waits for the engine: the client's body as it came, one without the gateway's fields, or documents to arrange. */
type Prepared =
  | { readonly kind: 'untouched'; readonly fallback?: Fallback }
  | { readonly kind: 'plain'; readonly body: string }
  | {
      readonly kind: 'documents';
      readonly extracted: ExtractedRequest;
      readonly request: PromptRequest;
      readonly conversation: Conversation | undefined;
    }
  | { readonly kind: 'recognised'; readonly waiting: WaitingInPlace };

/** What an arranged request was, to learn from its answer. */
interface Arranged {
  /** Kept only for prefilling ahead: it holds the client's body. */
  readonly extracted: ExtractedRequest | undefined;
  readonly composed: ComposedRequest;
  /** The conversation it belongs to, if any is kept. */
  readonly history: RecalledHistory | undefined;
  /** Nothing was added to the client's body, and nothing had to be taken out. */
  readonly isOriginal: boolean;
  readonly state: TenantModel;
  readonly prefix: string;
}

/**
 * The way of a prompt through the gateway: extract, wait for room in the engine, arrange, render, forward, observe. A body
 * without documents passes through as it is. A defect of the gateway forwards the original body; only bad input is
 * refused. Documents are arranged when the engine has room and not before, so that the order knows what was served meanwhile,
 * and what is still waiting.
 */
export function servePrompt(gateway: Gateway, api: PromptApi) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    request.exchange.bodyAt = gateway.now();
    serve(gateway, { request, reply, route: api.name, api, body: bodyOf(request) });
  };
}

/** The same for an API that the engine may not speak: then the request is translated first, and its answer on the way back. */
export function serveTranslatable(gateway: Gateway, api: PromptApi & { readonly name: TranslatedApi }) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    const { headers, exchange } = request;
    const go = (way: Way): void => {
      if (reply.raw.destroyed) return;
      exchange.bodyAt = gateway.now();
      const call = { request, reply, route: api.name, api, body: bodyOf(request) };
      serve(gateway, way === 'native' ? call : translated(gateway, call));
    };
    const way = gateway.engineApis.way(api.name, headers, engineHeaders(gateway, exchange.requestId));
    if (typeof way === 'string') {
      go(way);
      return;
    }
    void way.then(go).catch((error: unknown) => {
      if (!reply.sent) reply.send(error);
    });
  };
}

function translated(gateway: Gateway, call: Call & { readonly api: { readonly name: TranslatedApi } }): Call {
  if (!isReadable(call.request)) {
    const detail = 'A compressed body cannot be translated, and the engine speaks chat completions only.';
    throw new WarmpathError('WARMPATH_NOT_TRANSLATABLE', { path: 'content-encoding', detail });
  }
  const translation = translate(call.body, call.api.name, gateway.config.server.bodyLimitBytes);
  return { ...call, api: chatApi, body: translation.body, translation };
}

function serve(gateway: Gateway, call: Call): void {
  const tenant = tenantOf(call.request.headers);
  call.request.exchange.tenant = tenant;
  const prepared = prepare(gateway, call, tenant);
  if (!(prepared instanceof Promise)) enter(gateway, call, tenant, prepared);
  else prepared.then((ready) => enter(gateway, call, tenant, ready)).catch((error: unknown) => call.reply.send(error));
}

/** The request waits for the engine, if it must. */
function enter(gateway: Gateway, call: Call, tenant: string, prepared: Prepared): void {
  const { request, reply } = call;
  if (reply.raw.destroyed) return;
  const dispatch: Dispatch = {
    tenant,
    context: prepared.kind === 'documents' ? waitingContext(gateway, tenant, prepared) : undefined,
    start: (queuedMs, release) => {
      if (queuedMs > 0) request.exchange.queuedMs = queuedMs;
      try {
        start(gateway, call, { tenant, prepared, release });
      } catch (error) {
        release();
        reply.send(error);
      }
    },
    refuse: (error) => reply.send(error),
  };
  gateway.queue.enter(dispatch);
  if (!reply.sent) reply.raw.once('close', () => gateway.queue.leave(dispatch));
}

function prepare(gateway: Gateway, call: Call, tenant: string): Prepared | Promise<Prepared> {
  const { request, api, body } = call;
  if (!isReadable(request)) return { kind: 'untouched' };
  const { composer, conversations } = gateway;
  const header = request.headers[SESSION_HEADER];
  const caller = { tenant, header: typeof header === 'string' ? header : undefined };
  try {
    const extracted = extract(body, api, { all: conversations.mayContinue(caller) });
    if (extracted === undefined) return inPlace(gateway, call, { tenant, body }) ?? { kind: 'untouched' };
    if (extracted.bypass) return { kind: 'plain', body: extracted.rewrite(new Map()) };
    const asked = composer.prepare(extracted, tenant, 'warmpath');
    const history = recall(gateway, request, { extracted, caller });
    const ready = (known: RecalledHistory | undefined) =>
      asTurn(gateway, call, { tenant, extracted, asked, history: known });
    return history instanceof Promise ? history.then(ready) : ready(history);
  } catch (error) {
    if (isBadInput(error)) throw error;
    failOpen(gateway, request, 'original', error);
    return { kind: 'untouched', fallback: 'original' };
  }
}

/** A request without `documents`: whether some stand in its prompt, as far as the configuration or the request wants to know. */
function inPlace(
  gateway: Gateway,
  { api, route }: Call,
  { tenant, body, extracted }: { tenant: string; body: Buffer | string; extracted?: ExtractedRequest },
): Prepared | undefined {
  const { recognise, limits } = gateway.config;
  if (body.length > recognise.maxBodyBytes) return undefined;
  const mode = extracted?.recognise ?? recognise[route];
  const options = { mode, relabel: recognise.relabel, maxDocuments: limits.documents };
  const recognised = recogniseRequest(body, api, options);
  if (recognised === undefined) return undefined;
  const switches: RequestSwitches = extracted?.switches ?? {};
  const dial = gateway.composer.prepare({ documents: [], switches }, tenant, 'warmpath');
  return { kind: 'recognised', waiting: { tenant, recognised, dial } };
}

/** A store that fails costs the conversation, not the answer. */
function recall(
  gateway: Gateway,
  request: FastifyRequest,
  { extracted, caller }: { readonly extracted: ExtractedRequest; readonly caller: Caller },
): RecalledHistory | Promise<RecalledHistory | undefined> | undefined {
  const failed = (error: unknown): undefined => {
    if (isBadInput(error)) throw error;
    failOpen(gateway, request, 'conversation', error);
    return undefined;
  };
  try {
    const history = gateway.conversations.recall(extracted, caller, gateway.now());
    return history instanceof Promise ? history.catch(failed) : history;
  } catch (error) {
    return failed(error);
  }
}

/** The request as a turn of its conversation, if one is kept; else on its own. */
function asTurn(
  gateway: Gateway,
  call: Call,
  {
    tenant,
    extracted,
    asked,
    history,
  }: {
    readonly tenant: string;
    readonly extracted: ExtractedRequest;
    readonly asked: ArrangeRequest;
    readonly history: RecalledHistory | undefined;
  },
): Prepared {
  const { composer } = gateway;
  const plain = (): Prepared =>
    extracted.hasOwnFields ? { kind: 'plain', body: extracted.rewrite(new Map()) } : { kind: 'untouched' };
  try {
    // A conversation that has turns to replay goes before documents that stand in its prompt.
    if (asked.documents.length === 0 && (history?.turns ?? []).length === 0) {
      const body = extracted.hasOwnFields ? extracted.rewrite(new Map()) : call.body;
      const recognised = inPlace(gateway, call, { tenant, body, extracted });
      if (recognised !== undefined) return recognised;
    }
    if (extracted.prompt === undefined) return plain();
    if (history !== undefined) return { kind: 'documents', extracted, ...composer.converse(extracted, asked, history) };
    if (asked.documents.length === 0) return plain();
    const preamble = composer.preamble(extracted);
    return { kind: 'documents', extracted, request: { ...asked, preamble }, conversation: undefined };
  } catch (error) {
    // Without documents nothing is asked of the gateway that it could refuse.
    if (isBadInput(error) && asked.documents.length === 0) return plain();
    if (isBadInput(error)) throw error;
    failOpen(gateway, call.request, 'original', error);
    return { kind: 'untouched', fallback: 'original' };
  }
}

function bodyOf({ body }: FastifyRequest): Buffer {
  return (body as Buffer | undefined) ?? Buffer.alloc(0);
}

/** A compressed body is the engine's to read. */
function isReadable({ headers }: FastifyRequest): boolean {
  const encoding = headers['content-encoding'];
  return encoding === undefined || encoding === 'identity';
}

/** What the queue may know of a request: enough to be told to policies, and to be weighed against others. */
function waitingContext(
  { histories }: Gateway,
  tenant: string,
  { extracted: { model }, request }: Extract<Prepared, { kind: 'documents' }>,
): WaitingContext {
  const { documents, preamble } = request;
  return {
    documents,
    preamble,
    reuse: () => {
      const { tokens } = histories.of(tenant, model).history.bestPath(documents, preamble, undefined);
      const total = documents.reduce((sum, document) => sum + document.tokens, preamble.tokens);
      // The question is computed in any case.
      return { cachedTokens: tokens, hostTokens: 0, computeTokens: total - tokens + 1 };
    },
  };
}

/** The engine has room: arranges and forwards. Error: bad input that only the arrangement brings to light. */
function start(
  gateway: Gateway,
  call: Call,
  { tenant, prepared, release }: { readonly tenant: string; readonly prepared: Prepared; readonly release: () => void },
): void {
  if (prepared.kind === 'plain') {
    send(gateway, call, prepared.body, { onSettled: release });
    return;
  }
  if (prepared.kind === 'recognised') {
    serveRecognised(gateway, call.request, prepared.waiting, {
      send: (body, options) => send(gateway, call, body, options),
      release,
    });
    return;
  }
  const arranged = prepared.kind === 'documents' ? arrange(gateway, call.request, { tenant, prepared }) : undefined;
  if (arranged !== undefined) {
    forwardArranged(gateway, call, { arranged, release });
    return;
  }
  const fallback = prepared.kind === 'documents' ? 'original' : prepared.fallback;
  send(gateway, call, call.body, {
    ...(fallback !== undefined && { responseHeaders: { [RESPONSE_HEADERS.fallback]: fallback } }),
    onSettled: release,
  });
}

/** Forwards, and where prompts are compared, says where this one parts from an earlier one. */
function send(gateway: Gateway, call: Call, body: Buffer | string, options: ForwardOptions): void {
  transmit(gateway, call, body, options);
  const { request, api } = call;
  const { exchange } = request;
  // Behind the dispatch: the client does not wait for it.
  if (gateway.config.explain.prompts === 'off' || !isReadable(request)) return;
  guard(gateway, () => {
    exchange.prefix = gateway.requests.compare(exchange.tenant!, exchange.requestId, { body: String(body), api });
  });
}

/** With the tenant's salt where one is configured; a translation to where chat completions are served, and its answer back through the translation. */
function transmit(gateway: Gateway, call: Call, plain: Buffer | string, options: ForwardOptions): void {
  const { request, translation } = call;
  const body = gateway.cacheSalts?.salted(plain, tenantOf(request.headers)) ?? plain;
  if (translation === undefined) {
    forward(gateway, call, body, options);
    return;
  }
  const { leftOut } = translation;
  forward(gateway, call, body, {
    ...options,
    path: chatApi.path,
    requestHeaders: { ...translationHeaders(gateway, call), ...options.requestHeaders },
    responseHeaders: {
      ...(leftOut.length > 0 && { [RESPONSE_HEADERS.warnings]: warningsHeader(leftOut) }),
      ...options.responseHeaders,
    },
    body: translation.answer(request.exchange.requestId),
  });
}

/** Overrides for a request that is a translation; none for any other. */
function translationHeaders({ config }: Gateway, { request, translation }: Call): Record<string, string | undefined> {
  return translation === undefined ? {} : translatedHeaders(request.headers, config.upstream.apiKey === undefined);
}

/** `undefined` after a defect that leaves nothing but the original body. */
function arrange(
  gateway: Gateway,
  request: FastifyRequest,
  { tenant, prepared }: { readonly tenant: string; readonly prepared: Extract<Prepared, { kind: 'documents' }> },
): Arranged | undefined {
  const { extracted, request: arrangeRequest, conversation } = prepared;
  const { model } = extracted;
  const { preamble } = arrangeRequest;
  try {
    const state = gateway.histories.of(tenant, model);
    const waiting = gateway.queue.waitingBehind(preamble, tenant);
    const known = waiting.length === 0 ? arrangeRequest : { ...arrangeRequest, waiting };
    const composed = gateway.composer.compose(extracted, { request: known, conversation }, state, gateway.now());
    if (composed.fallback !== undefined) failOpen(gateway, request, composed.fallback, composed.defect);
    // What stands before a later turn is one conversation's own: nobody else will ask for it.
    const isShared = conversation === undefined || conversation.history.turns.length === 0;
    const kept = gateway.prewarmer === undefined || !isShared ? undefined : extracted;
    return {
      extracted: kept,
      composed,
      history: conversation?.history,
      isOriginal: isUnchanged(extracted, composed, conversation),
      state,
      prefix: prefixOf(tenant, model, preamble.key),
    };
  } catch (error) {
    if (isBadInput(error)) throw error;
    failOpen(gateway, request, 'original', error);
    return undefined;
  }
}

function forwardArranged(
  gateway: Gateway,
  call: Call,
  { arranged, release }: { readonly arranged: Arranged; readonly release: () => void },
): void {
  const { composed, state, history, isOriginal } = arranged;
  const { exchange } = call.request;
  const { arrangement, turn } = composed;
  note(exchange, arranged);
  const dispatchedAt = gateway.now();
  if (isArranged(arranged)) {
    guard(gateway, () => observe({ kind: 'dispatched', arrangement, now: dispatchedAt }, state.history));
  }
  const { store } = gateway.conversations;
  if (history !== undefined && turn !== undefined) guard(gateway, () => store.sent(history, turn, dispatchedAt));
  send(gateway, call, isOriginal ? call.body : composed.body, {
    // The answer's usage is read on the way through, which a compressed answer would hide.
    requestHeaders: { 'accept-encoding': 'identity' },
    responseHeaders: isArranged(arranged) ? arrangementHeaders(composed, exchange, call.translation?.leftOut) : {},
    readsAnswer: history !== undefined && history.session === undefined,
    onSettled: (result) => {
      guard(gateway, () => {
        if (isArranged(arranged)) learn(gateway, call, arranged, { dispatchedAt, result });
        if (history === undefined || turn === undefined || !result.complete) return;
        for (const answer of result.sniffer.answers) store.answered(history, turn, answer, gateway.now());
      });
      // Whoever is next is arranged with what was learned.
      release();
    },
  });
}

/** Whether the prompt has anything to do with documents; if not, it is only remembered. */
function isArranged({ composed: { arrangement }, history }: Arranged): boolean {
  return arrangement.documents.length + arrangement.references.length > 0 || (history?.turns.length ?? 0) > 0;
}

/** What the access log and the metrics say about it. */
function note(exchange: Exchange, arranged: Arranged): void {
  if (!isArranged(arranged)) return;
  const { composed, history, state } = arranged;
  const { documents, references, predictedCachedTokens, trace } = composed.arrangement;
  exchange.documents = documents.length + references.length;
  exchange.documentsMoved = trace.moves.filter((places) => places !== 0).length;
  if (documents.length > 0) exchange.blocks = [arrangedBlock(composed.arrangement.order)];
  exchange.references = references.length;
  exchange.deduplicatedTokens = references.reduce((sum, { document }) => sum + document.tokens, 0);
  exchange.replayedTurns = history?.turns.length ?? 0;
  exchange.predictedCachedTokens = state.counts.toEngineTokens(predictedCachedTokens);
}

/** The documents that the request brought itself, as the request's record has them. */
function arrangedBlock(order: readonly number[]): RecordedBlock {
  return { format: 'documents', documents: order.length, decided: 'arranged', order, labels: 'none' };
}

/** A turn of a conversation that nothing is added to goes out with the client's very bytes. */
function isUnchanged(
  { hasOwnFields }: ExtractedRequest,
  { turn }: ComposedRequest,
  conversation: Conversation | undefined,
): boolean {
  if (hasOwnFields || turn === undefined || conversation === undefined) return false;
  return turn.edits.length === 0 && conversation.history.turns.every(({ edits }) => edits.length === 0);
}

function arrangementHeaders(
  composed: ComposedRequest,
  exchange: Exchange,
  leftOut: readonly Warning[] = [],
): Record<string, string> {
  const { arrangement, fallback } = composed;
  const warnings = [...leftOut, ...composed.warnings];
  return {
    [RESPONSE_HEADERS.policy]: arrangement.trace.policy,
    [RESPONSE_HEADERS.predictedCachedTokens]: String(exchange.predictedCachedTokens),
    ...(exchange.replayedTurns > 0 && { [RESPONSE_HEADERS.replayedTurns]: String(exchange.replayedTurns) }),
    ...(exchange.references > 0 && { [RESPONSE_HEADERS.references]: String(exchange.references) }),
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
  call: Call,
  { extracted, composed, state, prefix }: Arranged,
  { dispatchedAt, result }: { readonly dispatchedAt: number; readonly result: RelayResult },
): void {
  const { arrangement } = composed;
  const { headers, exchange } = call.request;
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
  if (extracted === undefined) return;
  gateway.prewarmer?.served({
    extracted,
    served: arrangement,
    state,
    headers: requestHeaders(headers, {
      ...engineHeaders(gateway, exchange.requestId),
      ...translationHeaders(gateway, call),
      'accept-encoding': 'identity',
    }),
    bytes: 2 * composed.body.length,
  });
}
