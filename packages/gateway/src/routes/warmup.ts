import { estimateTokensOfBytes, observe, type Preamble, type PrewarmPath } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { engineHeaders } from '../dispatch/forward.js';
import { RESPONSE_HEADERS, requestHeaders } from '../dispatch/headers.js';
import type { Engine } from '../engines/engine.js';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { BodyView } from '../intake/body-view.js';
import { modelOf } from '../intake/parse-request.js';
import { invalid, PromptView } from '../intake/prompt-view.js';
import { bodyOf } from '../intake/request-body.js';
import { prefillBody } from '../render/prefill.js';
import { prefixOf } from '../warm/warm-prefixes.js';

/**
 * `POST /v1/warmup`: called when a retrieval starts, with the messages that the request will have, as far as they are
 * known. Prefills what will stand before the documents, unless that is warm (RAGCache++ §3.6). Answers 202 at once with
 * `{"state": "warming" | "warm"}`.
 *
 * The engine gets these messages with an empty user message in the question's place, and `max_tokens: 1`: what a chat
 * template writes before a user's text is the same for every text, so all tokens up to the documents are a prefix of
 * the real prompt, for any template that renders messages one after the other.
 */
export function warmupRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post('/v1/warmup', async (request, reply) => {
    const { exchange } = request;
    exchange.bodyAt = gateway.now();
    const { requestId } = exchange;
    const { tenant, key } = exchange.caller;
    const steps = prefillSteps(gateway, bodyOf(request));
    const { model, body, preamble } = await gateway.slices.run(steps, () => reply.raw.destroyed);
    const engine = engineFor(gateway, { tenant, model, preamble });
    const prefill = () => {
      if (key !== undefined) gateway.rateLimits.charge(key, estimateTokensOfBytes(body.bytes));
      return {
        method: 'POST',
        path: chatApi.path,
        headers: requestHeaders(request.headers, engineHeaders(engine, requestId)),
        body: gateway.cacheSalts?.salted(body.bytes, tenant) ?? body.bytes,
      };
    };
    const state = gateway.warmups.start(engine.upstream, prefixOf(tenant, model, preamble.key), prefill, () => {
      if (gateway.engines.only === engine) return;
      // The request that follows is to find it: there it is warm, and on the others it is not.
      const path: PrewarmPath = { documents: [], preamble, newTokens: 0, expectedSaved: 0 };
      const { history } = gateway.histories.of(engine, tenant, model);
      observe({ kind: 'prewarmed', path, now: gateway.now() }, history);
    });
    gateway.metrics.warmup(state);
    return reply.code(202).header(RESPONSE_HEADERS.requestId, requestId).send({ state });
  });
}

/** Where the request that follows will go most likely. */
function engineFor(
  { engines, histories }: Gateway,
  { tenant, model, preamble }: { readonly tenant: string; readonly model: string; readonly preamble: Preamble },
): Engine {
  if (engines.only !== undefined) return engines.only;
  return engines.route({
    model: () => model,
    promptTokens: preamble.tokens,
    cachedTokens: (engine) => histories.of(engine, tenant, model).history.bestPath([], preamble, undefined).tokens,
    tried: [],
  }).engine;
}

function* prefillSteps({ config, documents }: Gateway, bytes: Buffer) {
  const given = new BodyView(bytes);
  const model = modelOf(given);
  const prompt = PromptView.of(given, chatApi);
  if (prompt === undefined) throw invalid('messages', 'an array of messages was expected');
  yield* prompt.read(0);
  // All of it is checked, though not all of it is sent.
  prompt.view(0);
  const body = prefillBody(given, chatApi, config.arrange.layout);
  yield bytes.length;
  const asked = { api: chatApi, model, body: given };
  const prefilled = PromptView.of(body, chatApi)!;
  yield* documents.measure(asked, prefilled, 0);
  return { model, body, preamble: documents.preamble(asked, prefilled.view(0).messages) };
}
