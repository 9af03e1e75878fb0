import { estimateTokens, type WorkSteps } from '@warmpath/core';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { modelIn } from '../arrange/prepare-prompt.js';
import { forward } from '../dispatch/forward.js';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import { translateRequest } from '../engines/translate-request.js';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { messagesApi } from '../intake/apis/messages-api.js';
import { readObject } from '../intake/json-body.js';
import { parseRequest } from '../intake/parse-request.js';
import { bodyOf } from '../intake/request-body.js';

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
        gateway.engines.first(() => modelIn({ request, body })),
        { request, reply },
        body,
      );
      return reply;
    }
    const tokens = await gateway.slices.run(tokenSteps(gateway, request, body), () => reply.raw.destroyed);
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
  const parsed = parseRequest(chat, chatApi, { headers: {}, endUser: undefined });
  if (parsed !== undefined) {
    const { documents } = yield* gateway.documents.readDocuments(parsed, tenant);
    for (const document of documents) tokens += document.tokens;
  }
  const name = typeof model === 'string' ? model : '';
  // Every engine that serves a model counts alike.
  const engine = gateway.engines.first(() => name);
  return gateway.histories.of(engine, tenant, name).counts.toEngineTokens(tokens);
}
