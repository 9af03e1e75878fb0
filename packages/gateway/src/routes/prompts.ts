import { estimateTokens, WarmpathError } from '@warmpath/core';
import { estimateTokensOfBytes, type WorkSteps } from '@warmpath/core/internal';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { type ForwardParts, forward } from '../answer/relay.js';
import { chatApi, completionsApi, messagesApi, responsesApi } from '../apis/prompt-apis.js';
import { translateRequest } from '../apis/translate-request.js';
import type { PromptServer } from '../dispatch/serve-prompt.js';
import type { Engines } from '../engines/engines.js';
import { parseRequest } from '../intake/parse-request.js';
import type { RateLimits } from '../intake/rate-limits.js';
import { bodyOf } from '../intake/request-body.js';
import { readObject } from '../json/json-body.js';
import type { EventLoopBudget } from '../limits/load.js';
import type { ServedHistories } from '../memory/served-histories.js';
import type { Metrics } from '../observe/metrics.js';
import type { PlanJobs } from '../plan/plan-jobs.js';
import type { InsertedDocuments } from '../prompt/insert-slot.js';
import { modelIn } from '../prompt/parse-prompt.js';
import { engineToWarm, readPreamble, type WarmParts, warmPreamble } from '../warm/warm-preamble.js';

/** Tokens that a chat template spends on one message beside its text (ChatML). */
const TOKENS_PER_MESSAGE = 5;

export interface CountTokensParts extends ForwardParts {
  readonly engines: Engines;
  readonly histories: ServedHistories;
  readonly documents: InsertedDocuments;
  readonly eventLoopBudget: EventLoopBudget;
}

/**
 * `POST /v1/messages/count_tokens` of Anthropic's API. An engine that speaks Messages counts the tokens. For any other
 * engine the gateway estimates them, scaled by what it has learned of the model's tokenizer.
 */
export function countTokensRoute(app: FastifyInstance, parts: CountTokensParts): void {
  const { engines, eventLoopBudget, now } = parts;
  app.post(`${messagesApi.path}/count_tokens`, async (request, reply) => {
    const { headers, report } = request;
    const way = await engines.apiRoute(messagesApi.name, report.caller, headers);
    report.bodyAt = now();
    const body = bodyOf(request);
    if (way === 'native') {
      forward(
        parts,
        engines.first(() => modelIn({ body })),
        { request, reply },
        body,
      );
      return reply;
    }
    const tokens = await eventLoopBudget.runSteps(tokenSteps(parts, request, body), () => reply.raw.destroyed);
    return reply.send({ input_tokens: tokens });
  });
}

function* tokenSteps(
  { engines, histories, documents: inserted }: CountTokensParts,
  { report }: FastifyRequest,
  body: Buffer,
): WorkSteps<number> {
  const { tenant } = report.caller;
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
  const parsed = parseRequest(chat, chatApi, { headers: {}, caller: report.caller });
  if (parsed !== undefined) {
    const { documents } = yield* inserted.readDocuments(parsed, tenant);
    for (const document of documents) tokens += document.tokens;
  }
  const name = typeof model === 'string' ? model : '';
  // All engines of a model count alike.
  const engine = engines.first(() => name);
  return histories.of(engine, tenant, name).counts.toEngineTokens(tokens);
}

/**
 * `POST /v1/warmup`: clients call it when a retrieval starts, with the messages so far. Prefills the beginning of the
 * prompt up to the documents, unless it is warm (RAGCache++ §3.6). Answers 202 at once with
 * `{"state": "warming" | "warm"}`.
 */
export function warmupRoute(app: FastifyInstance, parts: WarmParts & { readonly rateLimits: RateLimits }): void {
  app.post('/v1/warmup', async (request, reply) => {
    const { report } = request;
    report.bodyAt = parts.now();
    const steps = readPreamble(parts, chatApi, bodyOf(request));
    const asked = await parts.eventLoopBudget.runSteps(steps, () => reply.raw.destroyed);
    const { tenant, key } = report.caller;
    const { state, isOwn } = warmPreamble(parts, request, engineToWarm(parts, tenant, asked), asked);
    if (isOwn && key !== undefined) parts.rateLimits.charge(key, estimateTokensOfBytes(asked.body.bytes));
    parts.metrics.warmup(state);
    return reply.code(202).send({ state });
  });
}

export interface PlanParts {
  readonly plans: PlanJobs;
  readonly metrics: Metrics;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * `POST /v1/plan`: the orders of a whole batch and its execution order, by core's `planBatch`, on a thread of its own.
 * The job ends when its client leaves. Nothing is sent to the engine, and nothing counts as served.
 */
export function planRoute(app: FastifyInstance, { plans, metrics, now }: PlanParts): void {
  app.post('/v1/plan', async (request, reply) => {
    request.report.bodyAt = now();
    const job = plans.start(bodyOf(request));
    reply.raw.once('close', () => job.abort());
    let json: Uint8Array;
    try {
      json = await job.result;
    } catch (error) {
      metrics.planned(WarmpathError.isInstance(error) ? error.code : 'WARMPATH_INTERNAL');
      throw error;
    }
    metrics.planned('planned');
    return reply
      .type('application/json; charset=utf-8')
      .send(Buffer.from(json.buffer, json.byteOffset, json.byteLength));
  });
}

/**
 * The routes of prompts, each with `documents` and `warmpath` beside the API's own members. Messages and Responses are
 * translated for an engine that does not speak them.
 */
export function promptRoutes(app: FastifyInstance, prompts: PromptServer): void {
  app.post(chatApi.path, prompts.handler(chatApi));
  app.post(completionsApi.path, prompts.handler(completionsApi));
  app.post(messagesApi.path, prompts.translatingHandler(messagesApi));
  app.post(responsesApi.path, prompts.translatingHandler(responsesApi));
}
