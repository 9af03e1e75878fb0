import type { ChatMessage } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { engineHeaders } from '../dispatch/forward.js';
import { RESPONSE_HEADERS, requestHeaders } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { readMessages } from '../intake/apis/client-messages.js';
import { tenantOf } from '../intake/authenticate.js';
import { readObject } from '../intake/json-body.js';
import { objectMembers, rewriteObject } from '../intake/json-members.js';
import { NO_MORE_THAN_PREFILL, withEmptyQuestion, withLeastAnswer } from '../render/prefill.js';
import { bodyOf } from '../serve/call.js';
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
  app.post('/v1/warmup', (request, reply) => {
    request.exchange.bodyAt = gateway.now();
    const bytes = bodyOf(request);
    const object = readObject(bytes);
    const text = bytes.toString('utf8');
    const messages = withEmptyQuestion(readMessages(object['messages']), gateway.config.arrange.layout);
    const model = typeof object['model'] === 'string' ? object['model'] : '';
    const members = objectMembers(text);
    const preamble = gateway.composer.preamble({
      api: chatApi,
      model,
      prompt: { kind: 'chat', messages },
      rawValue: (key) => {
        const member = members.findLast((candidate) => candidate.key === key);
        return member === undefined ? undefined : text.slice(member.valueStart, member.end);
      },
    });
    const { requestId } = request.exchange;
    const tenant = tenantOf(request.headers);
    const state = gateway.warmups.start(prefixOf(tenant, model, preamble.key), () => {
      const body = warmupBody(text, messages);
      return {
        method: 'POST',
        path: '/v1/chat/completions',
        headers: requestHeaders(request.headers, engineHeaders(gateway, requestId)),
        body: gateway.cacheSalts?.salted(body, tenant) ?? body,
      };
    });
    gateway.metrics.warmup(state);
    return reply.code(202).header(RESPONSE_HEADERS.requestId, requestId).send({ state });
  });
}

function warmupBody(text: string, messages: readonly ChatMessage[]): string {
  const changes = new Map([...NO_MORE_THAN_PREFILL, ['messages', JSON.stringify(messages)]]);
  return withLeastAnswer(rewriteObject(text, objectMembers(text), changes), chatApi);
}
