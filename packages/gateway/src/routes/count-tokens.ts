import { estimateTokens } from '@warmpath/core';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { forward } from '../dispatch/forward.js';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import type { Way } from '../engines/engine-apis.js';
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
  app.post(`${messagesApi.path}/count_tokens`, (request, reply) => {
    const { headers, exchange } = request;
    const go = (way: Way): void => {
      exchange.bodyAt = gateway.now();
      const body = bodyOf(request);
      if (way === 'native') forward(gateway, { request, reply }, body);
      else estimate(gateway, { request, reply }, body);
    };
    const way = gateway.engineApis.way(messagesApi.name, exchange.caller, headers);
    if (typeof way === 'string') go(way);
    else void way.then(go).catch((error: unknown) => reply.send(error));
  });
}

function estimate(
  gateway: Gateway,
  { request, reply }: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  body: Buffer,
): void {
  const { tenant } = request.exchange.caller;
  const { body: chat } = translateRequest({ api: messagesApi.name, body });
  const { model, tools, ...rest } = readObject(chat);
  let tokens = tools === undefined ? 0 : estimateTokens(JSON.stringify(tools));
  for (const { texts } of chatApi.messages(rest)) {
    tokens += TOKENS_PER_MESSAGE;
    for (const { text } of texts) tokens += estimateTokens(text);
  }
  const parsed = parseRequest(chat, chatApi, { headers: {}, endUser: undefined });
  const documents = parsed === undefined ? [] : gateway.documents.readDocuments(parsed, tenant).documents;
  for (const document of documents) tokens += document.tokens;
  const { counts } = gateway.histories.of(tenant, typeof model === 'string' ? model : '');
  reply
    .header(RESPONSE_HEADERS.requestId, request.exchange.requestId)
    .send({ input_tokens: counts.toEngineTokens(tokens) });
}
