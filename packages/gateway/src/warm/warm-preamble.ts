import { observe, type Preamble } from '@warmpath/core';
import type { WorkSteps } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import type { PromptApi } from '../apis/prompt-api.js';
import { PromptView } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import { type Engine, engineHeaders } from '../engines/engine.js';
import type { Engines } from '../engines/engines.js';
import { BodyView, invalid, modelOf } from '../json/json-body.js';
import type { EventLoopBudget } from '../limits/event-loop-budget.js';
import type { ServedHistories } from '../memory/served-histories.js';
import { prefixOf } from '../memory/warm-prefixes.js';
import type { Metrics } from '../observe/metrics.js';
import type { CacheSalts } from '../prompt/cache-salts.js';
import type { InsertedDocuments } from '../prompt/insert-slot.js';
import { prefillBody } from '../prompt/render.js';
import type { Call } from '../shapes/shapes.js';
import type { Warmup, Warmups } from './warmups.js';

/** What warming works with. */
export interface WarmParts {
  readonly config: Pick<GatewayConfig, 'arrange'>;
  readonly engines: Engines;
  readonly histories: ServedHistories;
  readonly documents: InsertedDocuments;
  readonly warmups: Warmups;
  readonly cacheSalts: CacheSalts | undefined;
  readonly eventLoopBudget: EventLoopBudget;
  readonly metrics: Metrics;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/** What stands before the documents of a request, and the body that prefills it. */
export interface PreambleToWarm {
  readonly api: PromptApi;
  readonly model: string;
  readonly body: BodyView;
  readonly preamble: Preamble;
}

/**
 * Reads the beginning of a prompt whose documents are not known yet.
 *
 * The engine gets the messages with an empty question and answers with as few tokens as it can. A chat template writes
 * the same tokens before every question, so that they are a prefix of the real prompt.
 */
export function* readPreamble(
  { config, documents }: Pick<WarmParts, 'config' | 'documents'>,
  api: PromptApi,
  bytes: Buffer,
): WorkSteps<PreambleToWarm> {
  const given = new BodyView(bytes);
  const model = modelOf(given);
  const prompt = PromptView.of(given, api);
  if (prompt === undefined) throw invalid('messages', 'an array of messages was expected');
  yield* prompt.read(0);
  // All of it is checked, though not all of it is sent.
  prompt.view(0);
  const body = prefillBody(given, api, config.arrange.layout);
  yield bytes.length;
  const asked = { api, model, body: given };
  const prefilled = PromptView.of(body, api)!;
  yield* documents.measure(asked, prefilled, 0);
  return { api, model, body, preamble: documents.preamble(asked, prefilled.view(0).messages) };
}

/** The engine that the prompt will most likely go to. */
export function engineToWarm(
  { engines, histories }: Pick<WarmParts, 'engines' | 'histories'>,
  tenant: string,
  asked: PreambleToWarm,
): Engine {
  if (engines.only !== undefined) return engines.only;
  const { model, preamble } = asked;
  return engines.route({
    model: () => model,
    promptTokens: preamble.tokens,
    cachedTokens: (engine) => histories.of(engine, tenant, model).history.bestPath([], preamble, undefined).tokens,
    tried: [],
  }).engine;
}

/**
 * Starts the prefill of a preamble on an engine, unless it is warm or being warmed.
 *
 * @throws WarmpathError `WARMPATH_OVERLOADED` when too many are under way.
 */
export function warmPreamble(
  { cacheSalts, warmups, engines, histories, now }: WarmParts,
  request: FastifyRequest,
  engine: Engine,
  { api, model, body, preamble }: PreambleToWarm,
): Warmup {
  const { tenant } = request.report.caller;
  const prefill = () => ({
    method: 'POST',
    path: api.path,
    headers: engineHeaders(engine, request),
    body: cacheSalts?.salted(body.bytes, tenant) ?? body.bytes,
  });
  return warmups.start(engine.upstream, prefixOf(tenant, model, preamble.key), prefill, () => {
    if (engines.only === engine) return;
    // Routing must know which of the engines is warm.
    const { history } = histories.of(engine, tenant, model);
    observe({ kind: 'prefilled', path: { documents: [], preamble }, now: now() }, history);
  });
}

/** A prefill beside a search. */
export interface SearchWarming {
  end(): void;
}

/** Milliseconds of a search before its preamble is warmed: shorter searches end before a prefill pays. */
const SEARCH_MS = 10;
/** Tokens of the shortest preamble that is worth a prefill of its own. */
const MIN_TOKENS = 64;

/**
 * Warms the preamble of a call during its search (RAGCache++ §3.6): on an engine that keeps prefixes and has nothing
 * else to prefill, where the preamble is cold. `end` stops the prefill when the prompt itself goes out: the engine
 * keeps what it has computed. Never throws.
 *
 * @param coming The call without its documents.
 */
export function warmDuringSearch(parts: WarmParts, coming: () => Call): SearchWarming {
  let warmup: Warmup | undefined;
  let isOver = false;
  const begin = async (): Promise<void> => {
    const { api, body, request, tenant } = coming();
    const asked = await parts.eventLoopBudget.runSteps(readPreamble(parts, api, body), () => isOver);
    const engine = engineToWarm(parts, tenant, asked);
    const keepsPrefixes = engine.dialect.reuse.kind === 'prefix' && engine.dialect.owners.length > 0;
    if (isOver || !keepsPrefixes || asked.preamble.tokens < MIN_TOKENS || engine.prefilling > 0) return;
    warmup = warmPreamble(parts, request, engine, asked);
    if (warmup.isOwn) parts.metrics.warmedDuringSearch('started');
  };
  const timer = setTimeout(() => {
    // The prompt itself reports what is wrong with the request.
    begin().catch(() => {});
  }, SEARCH_MS);
  return {
    end: () => {
      isOver = true;
      clearTimeout(timer);
      const under = warmup;
      warmup = undefined;
      if (under?.stop() === true) parts.metrics.warmedDuringSearch('stopped');
    },
  };
}
