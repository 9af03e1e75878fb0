import type { TranslatedApi } from '@warmpath/translate';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { hasMessages, type PromptApi } from './apis/prompt-api.js';
import { chatApi } from './apis/prompt-apis.js';
import { translateRequest } from './apis/translate-request.js';
import { type Call, preparePrompt } from './arrange/prepare-prompt.js';
import { type Way as AnswerWay, answerInStages } from './collections/answer-in-stages.js';
import { readRetrievalCall } from './collections/retrieve-documents.js';
import { dispatchPrompt } from './dispatch/dispatch-prompt.js';
import type { Way } from './engines/engine-apis.js';
import type { Gateway } from './gateway.js';
import { checkStoredState } from './intake/engine-paths.js';
import { bodyOf } from './intake/request-body.js';
import { BodyView } from './json/body-view.js';
import { whenReady } from './limits/event-loop-budget.js';

/**
 * The way of a prompt through the gateway: intake, retrieval where it asks for it, conversation, arrange, render,
 * dispatch, answer, observe. A body that has nothing for the gateway passes through as it is. A defect of the gateway
 * forwards the original body; only bad input is refused. Documents are arranged when the engine has room and not
 * before, so that the order knows what was served meanwhile, and what still waits.
 */
export function servePrompt(gateway: Gateway, api: PromptApi) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    received(gateway, request);
    const call = callOf(gateway, request, reply, api);
    const answered = answer(gateway, call, { serve: (call) => serve(gateway, call), isTranslated: false });
    answered?.catch((error: unknown) => refuseLate(reply, error));
  };
}

/**
 * The same for an API that the engine may not speak: then the request is translated first, and its answer on the way
 * back.
 */
export function serveTranslatable(gateway: Gateway, api: PromptApi & { readonly name: TranslatedApi }) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    const { headers, exchange } = request;
    const go = (way: Way): void | Promise<void> => {
      if (reply.raw.destroyed) return;
      received(gateway, request);
      const call = callOf(gateway, request, reply, api);
      const isTranslated = way !== 'native';
      return answer(gateway, call, {
        serve: isTranslated
          ? (call) => whenReady(translated(gateway, call, api.name), (call) => serve(gateway, call))
          : (call) => serve(gateway, call),
        isTranslated,
      });
    };
    const served = whenReady(gateway.engines.way(api.name, exchange.caller, headers), go);
    if (served instanceof Promise) served.catch((error: unknown) => refuseLate(reply, error));
  };
}

function received({ now }: Gateway, { exchange }: FastifyRequest): void {
  exchange.bodyAt = now();
  exchange.trace?.stage('intake', exchange.arrivedAt, exchange.bodyAt);
}

/** What the call asks for is looked for first. */
function answer(gateway: Gateway, call: Call, way: AnswerWay): undefined | Promise<void> {
  const { collections } = gateway;
  const read =
    collections === undefined || !hasMessages(call.api) ? call : readRetrievalCall(gateway, collections, call);
  const answered = 'search' in read ? answerInStages(gateway, collections!, read, way) : way.serve(read);
  return answered instanceof Promise ? answered : undefined;
}

function refuseLate(reply: FastifyReply, error: unknown): void {
  if (!reply.sent) reply.send(error);
}

/** Error: `WARMPATH_INVALID_JSON` or `WARMPATH_BODY_TOO_COMPLEX` for a body that could not be given its salt. */
function callOf(gateway: Gateway, request: FastifyRequest, reply: FastifyReply, api: PromptApi): Call {
  const { tenant } = request.exchange.caller;
  request.exchange.tenant = tenant;
  const given = bodyOf(request);
  checkStoredState(gateway.config, given);
  const body = gateway.cacheSalts === undefined ? given : new BodyView(given).bytes;
  return { request, reply, tenant, route: api.name, api, body };
}

function translated(gateway: Gateway, call: Call, api: TranslatedApi): Call | Promise<Call> {
  const { exchange } = call.request;
  const steps = translateRequest({
    api,
    body: call.body,
    requestId: exchange.requestId,
    limitBytes: gateway.config.server.bodyLimitBytes,
  });
  return whenReady(
    gateway.eventLoopBudget.runSteps(steps, () => call.reply.raw.destroyed),
    (translation) => {
      exchange.warnings = translation.warnings;
      return { ...call, api: chatApi, body: translation.body, translation };
    },
  );
}

function serve(gateway: Gateway, call: Call): void {
  const prepared = preparePrompt(gateway, call);
  if (!(prepared instanceof Promise)) dispatchPrompt(gateway, call, prepared);
  else prepared.then((ready) => dispatchPrompt(gateway, call, ready)).catch((error: unknown) => call.reply.send(error));
}
