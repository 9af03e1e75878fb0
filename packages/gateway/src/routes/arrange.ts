import { estimateTokens, fingerprint, observe, renderCompletion, renderHint, WarmpathError } from '@warmpath/core';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import { tenantOf } from '../intake/authenticate.js';
import { readObject } from '../intake/json-body.js';
import { withoutTexts } from '../observe/open-arrangements.js';
import { bodyOf } from '../serve/call.js';

const FIELDS = ['documents', 'policy', 'maxShift', 'pin', 'hints', 'preamble', 'model'];

/**
 * `POST /v1/arrange`: the order alone, for clients that build their own prompts. The answer counts as served: the next
 * request is arranged as if the engine had seen this one, which is what makes the order useful. `id` names it for
 * `POST /v1/observe`.
 *
 * Body: `documents` and the switches of the `warmpath` field; `preamble` is the text that the client puts before the
 * documents, `model` keeps the histories of several models apart.
 */
export function arrangeRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post('/v1/arrange', (request, reply) => {
    request.exchange.bodyAt = gateway.now();
    const body = readObject(bodyOf(request));
    checkFields(body);
    const answer = arrangeOnly(gateway, request, body);
    request.exchange.overheadMs = gateway.now() - request.exchange.bodyAt;
    return reply
      .header(RESPONSE_HEADERS.requestId, request.exchange.requestId)
      .header(RESPONSE_HEADERS.overheadMs, request.exchange.overheadMs.toFixed(3))
      .send(answer);
  });
}

function arrangeOnly(gateway: Gateway, { headers, exchange }: FastifyRequest, body: Readonly<Record<string, unknown>>) {
  const { documents, model, preamble, ...switches } = body;
  const { composer, config } = gateway;
  const tenant = tenantOf(headers);
  const arrangeRequest = composer.prepare({ documents, switches }, tenant);
  const state = gateway.histories.of(tenant, (model as string | undefined) ?? '');
  const now = gateway.now();
  const arrangement = composer.arrange(
    typeof preamble === 'string'
      ? { ...arrangeRequest, preamble: { key: `text#${fingerprint([preamble])}`, tokens: estimateTokens(preamble) } }
      : arrangeRequest,
    state.history,
    now,
  );
  const served = withoutTexts(arrangement);
  observe({ kind: 'dispatched', arrangement: served, now }, state.history);
  exchange.documents = arrangement.documents.length;
  exchange.documentsMoved = arrangement.trace.moves.filter((places) => places !== 0).length;
  exchange.predictedCachedTokens = state.counts.toEngineTokens(arrangement.predictedCachedTokens);
  const { hint } = arrangement;
  return {
    object: 'arrangement',
    id: gateway.arrangements.open({ arrangement: served, state }),
    documents: arrangement.documents.map(({ id, label, title, tokens }, place) => {
      return { id, label, title, tokens, rank: arrangement.order[place] };
    }),
    order: arrangement.order,
    hint: hint === undefined ? null : { labels: hint.labels, text: renderHint(arrangement, config.arrange.template) },
    text: renderCompletion('', arrangement, config.arrange),
    predictedCachedTokens: exchange.predictedCachedTokens,
    trace: arrangement.trace,
  };
}

function checkFields(body: Readonly<Record<string, unknown>>): void {
  for (const key of Object.keys(body)) {
    if (!FIELDS.includes(key)) throw invalid(key, `unknown field; known ones are ${FIELDS.join(', ')}`);
  }
  for (const key of ['preamble', 'model']) {
    const value = body[key];
    if (value !== undefined && value !== null && typeof value !== 'string') throw invalid(key, 'a string was expected');
  }
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
