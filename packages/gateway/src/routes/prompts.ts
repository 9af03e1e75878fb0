import { estimateTokens, WarmpathError } from '@warmpath/core';
import { estimateTokensOfBytes, type WorkSteps } from '@warmpath/core/internal';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { chatApi, completionsApi, messagesApi, responsesApi } from '../apis/prompt-apis.js';
import { translateRequest } from '../apis/translate-request.js';
import { forward } from '../dispatch/forward.js';
import type { Gateway } from '../gateway.js';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { parseRequest } from '../intake/parse-request.js';
import { bodyOf } from '../intake/request-body.js';
import { readObject } from '../json/json-body.js';
import { modelIn } from '../prompt/parse-prompt.js';
import { engineToWarm, readPreamble, warmPreamble } from '../warm/warm-preamble.js';

/** Tokens that a chat template spends on one message beside its text (ChatML). */
const TOKENS_PER_MESSAGE = 5;

/**
 * `POST /v1/messages/count_tokens`: Anthropic's. An engine that speaks Messages counts itself. For any other the
 * gateway estimates, with what it has learned of the model's way of counting.
 */
export function countTokensRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post(`${messagesApi.path}/count_tokens`, async (request, reply) => {
    const { headers, exchange } = request;
    const way = await gateway.engines.way(messagesApi.name, exchange.caller, headers);
    exchange.bodyAt = gateway.now();
    const body = bodyOf(request);
    if (way === 'native') {
      forward(
        gateway,
        gateway.engines.first(() => modelIn({ body })),
        { request, reply },
        body,
      );
      return reply;
    }
    const tokens = await gateway.eventLoopBudget.runSteps(
      tokenSteps(gateway, request, body),
      () => reply.raw.destroyed,
    );
    return reply.header(RESPONSE_HEADERS.requestId, exchange.requestId).send({ input_tokens: tokens });
  });
}

function* tokenSteps(gateway: Gateway, { exchange }: FastifyRequest, body: Buffer): WorkSteps<number> {
  const { tenant } = exchange.caller;
  const { body: chat } = yield* translateRequest({ api: messagesApi.name, body });
  const { model, tools, ...rest } = readObject(chat);
  yield chat.length;
  let tokens = tools === undefined ? 0 : estimateTokens(JSON.stringify(tools));
  for (const { texts } of chatApi.messages(rest)) {
    tokens += TOKENS_PER_MESSAGE;
    for (const { text } of texts) {
      tokens += estimateTokens(text);
      yield text.length;
    }
  }
  const parsed = parseRequest(chat, chatApi, { headers: {}, caller: exchange.caller });
  if (parsed !== undefined) {
    const { documents } = yield* gateway.documents.readDocuments(parsed, tenant);
    for (const document of documents) tokens += document.tokens;
  }
  const name = typeof model === 'string' ? model : '';
  // Every engine that serves a model counts alike.
  const engine = gateway.engines.first(() => name);
  return gateway.histories.of(engine, tenant, name).counts.toEngineTokens(tokens);
}

/**
 * `POST /v1/warmup`: called when a retrieval starts, with the messages that the request will have, as far as they are
 * known. Prefills what will stand before the documents, unless that is warm (RAGCache++ §3.6). Answers 202 at once with
 * `{"state": "warming" | "warm"}`.
 */
export function warmupRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post('/v1/warmup', async (request, reply) => {
    const { exchange } = request;
    exchange.bodyAt = gateway.now();
    const steps = readPreamble(gateway, chatApi, bodyOf(request));
    const asked = await gateway.eventLoopBudget.runSteps(steps, () => reply.raw.destroyed);
    const { tenant, key } = exchange.caller;
    const { state, isOwn } = warmPreamble(gateway, request, engineToWarm(gateway, tenant, asked), asked);
    if (isOwn && key !== undefined) gateway.rateLimits.charge(key, estimateTokensOfBytes(asked.body.bytes));
    gateway.metrics.warmup(state);
    return reply.code(202).header(RESPONSE_HEADERS.requestId, exchange.requestId).send({ state });
  });
}

/**
 * `POST /v1/plan`: the orders of a whole batch, and the order in which to send it, by core's `planBatch`. Planned on a
 * thread of its own, within the time and memory of the configuration; a client that leaves ends it. Nothing is sent to
 * the engine, and nothing counts as served.
 */
export function planRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post('/v1/plan', async (request, reply) => {
    request.exchange.bodyAt = gateway.now();
    const job = gateway.plans.start(bodyOf(request));
    reply.raw.once('close', () => job.abort());
    let json: Uint8Array;
    try {
      json = await job.result;
    } catch (error) {
      gateway.metrics.planned(WarmpathError.isInstance(error) ? error.code : 'WARMPATH_INTERNAL');
      throw error;
    }
    gateway.metrics.planned('planned');
    return reply
      .header(RESPONSE_HEADERS.requestId, request.exchange.requestId)
      .type('application/json; charset=utf-8')
      .send(Buffer.from(json.buffer, json.byteOffset, json.byteLength));
  });
}

/**
 * Everything that takes a prompt, each with `documents` and `warmpath` beside its own members: OpenAI's chat
 * completions, plain completions and Responses, and Anthropic's Messages. The last two are translated for an engine
 * that does not speak them.
 */
export function promptRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.post(chatApi.path, gateway.prompts.handler(chatApi));
  app.post(completionsApi.path, gateway.prompts.handler(completionsApi));
  app.post(messagesApi.path, gateway.prompts.translatingHandler(messagesApi));
  app.post(responsesApi.path, gateway.prompts.translatingHandler(responsesApi));
}
