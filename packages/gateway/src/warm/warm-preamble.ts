import { observe, type Preamble } from '@warmpath/core';
import type { PrewarmPath, WorkSteps } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import type { PromptApi } from '../apis/prompt-api.js';
import { invalid, PromptView } from '../apis/prompt-view.js';
import type { Engine } from '../engines/engine.js';
import { engineHeaders } from '../engines/engine.js';
import type { Gateway } from '../gateway.js';
import { modelOf } from '../intake/parse-request.js';
import { BodyView } from '../json/body-view.js';
import { prefixOf } from '../memory/warm-prefixes.js';
import { prefillBody } from '../prompt/render.js';
import type { Call } from '../shapes/shapes.js';
import type { Warmup } from './warmups.js';

/** What stands before the documents of a request, and the body that prefills it. */
export interface PreambleToWarm {
  readonly api: PromptApi;
  readonly model: string;
  readonly body: BodyView;
  readonly preamble: Preamble;
}

/**
 * Reads what a request that is still without documents will begin with.
 *
 * The engine gets its messages with an empty user message in the question's place, and the least answer: what a chat
 * template writes before a user's text is the same for every text, so all tokens up to the documents are a prefix of
 * the real prompt, for any template that renders messages one after the other.
 */
export function* readPreamble(
  { config, documents }: Gateway,
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

/** Where the request that follows will go most likely. */
export function engineToWarm({ engines, histories }: Gateway, tenant: string, asked: PreambleToWarm): Engine {
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
 * Error: `WARMPATH_OVERLOADED` when too many are under way.
 */
export function warmPreamble(
  gateway: Gateway,
  request: FastifyRequest,
  engine: Engine,
  { api, model, body, preamble }: PreambleToWarm,
): Warmup {
  const { tenant } = request.exchange.caller;
  const prefill = () => ({
    method: 'POST',
    path: api.path,
    headers: engineHeaders(engine, request),
    body: gateway.cacheSalts?.salted(body.bytes, tenant) ?? body.bytes,
  });
  return gateway.warmups.start(engine.upstream, prefixOf(tenant, model, preamble.key), prefill, () => {
    if (gateway.engines.only === engine) return;
    // The request that follows is to find it: there it is warm, and on the others it is not.
    const path: PrewarmPath = { documents: [], preamble, newTokens: 0, expectedSaved: 0 };
    const { history } = gateway.histories.of(engine, tenant, model);
    observe({ kind: 'prewarmed', path, now: gateway.now() }, history);
  });
}

/** What is warmed while a search goes on. */
export interface SearchWarming {
  end(): void;
}

/** Milliseconds of a search before which nothing is warmed: most of those that are over by then never wait. */
const SEARCH_MS = 10;
/** Tokens of a preamble below which an engine computes it along with the documents in no time. */
const LEAST_TOKENS = 64;

/**
 * Warms the preamble of a call while its documents are looked for (RAGCache++ §3.6), where that pays and costs nobody:
 * an engine of one's own that keeps prefixes has nothing else to prefill, and the preamble is cold. `end` stops it: the
 * prompt itself goes out then, and goes on behind what is computed by that time. Never throws.
 *
 * @param coming The call as it will be, without documents.
 */
export function warmDuringSearch(gateway: Gateway, coming: () => Call): SearchWarming {
  let warmup: Warmup | undefined;
  let isOver = false;
  const begin = async (): Promise<void> => {
    const { api, body, request, tenant } = coming();
    const asked = await gateway.eventLoopBudget.runSteps(readPreamble(gateway, api, body), () => isOver);
    const engine = engineToWarm(gateway, tenant, asked);
    const keepsPrefixes = engine.dialect.reuse.kind === 'prefix' && engine.dialect.owners.length > 0;
    if (isOver || !keepsPrefixes || asked.preamble.tokens < LEAST_TOKENS || engine.prefilling > 0) return;
    warmup = warmPreamble(gateway, request, engine, asked);
    if (warmup.isOwn) gateway.metrics.warmedDuringSearch('started');
  };
  const timer = setTimeout(() => {
    // What is wrong with the request is said where it is answered.
    begin().catch(() => {});
  }, SEARCH_MS);
  return {
    end: () => {
      isOver = true;
      clearTimeout(timer);
      const under = warmup;
      warmup = undefined;
      if (under?.stop() === true) gateway.metrics.warmedDuringSearch('stopped');
    },
  };
}
