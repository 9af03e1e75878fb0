import { type Document, type Preamble, WarmpathError } from '@warmpath/core';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { arrangePrompt } from './arrange/arrange-prompt.js';
import { openDocuments } from './arrange/found/serve-recognised.js';
import { type Call, isReadable, type PreparedPrompt, preparePrompt } from './arrange/prepare-prompt.js';
import { retrieveDocuments } from './collections/retrieve-documents.js';
import type { Dispatch, WaitingContext } from './dispatch/dispatch-queue.js';
import { sendPrompt } from './dispatch/send-prompt.js';
import type { Way } from './engines/engine-apis.js';
import { type TranslatedApi, translateRequest } from './engines/translate-request.js';
import type { Gateway } from './gateway.js';
import { chatApi } from './intake/apis/chat-api.js';
import type { PromptApi } from './intake/apis/prompt-api.js';
import { bodyOf } from './intake/request-body.js';
import { whenReady } from './intake/work-slices.js';

/**
 * The way of a prompt through the gateway: intake, retrieval where it asks for it, conversation, arrange, render,
 * dispatch, answer, observe. A body that has nothing for the gateway passes through as it is. A defect of the gateway
 * forwards the original body; only bad input is refused. Documents are arranged when the engine has room and not
 * before, so that the order knows what was served meanwhile, and what still waits.
 */
export function servePrompt(gateway: Gateway, api: PromptApi) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    request.exchange.bodyAt = gateway.now();
    const call = callOf(request, reply, api);
    if (gateway.collections === undefined || api !== chatApi) {
      serve(gateway, call);
      return;
    }
    const served = whenReady(retrieveDocuments(gateway, gateway.collections, call), (call) => serve(gateway, call));
    if (served instanceof Promise) served.catch((error: unknown) => reply.send(error));
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
      exchange.bodyAt = gateway.now();
      const call = callOf(request, reply, api);
      if (way === 'native') serve(gateway, call);
      else return whenReady(translated(gateway, call, api.name), (call) => serve(gateway, call));
    };
    const served = whenReady(gateway.engineApis.way(api.name, exchange.caller, headers), go);
    if (served instanceof Promise) {
      served.catch((error: unknown) => {
        if (!reply.sent) reply.send(error);
      });
    }
  };
}

function callOf(request: FastifyRequest, reply: FastifyReply, api: PromptApi): Call {
  const { tenant } = request.exchange.caller;
  request.exchange.tenant = tenant;
  return { request, reply, tenant, route: api.name, api, body: bodyOf(request) };
}

function translated(gateway: Gateway, call: Call, api: TranslatedApi): Call | Promise<Call> {
  if (!isReadable(call.request)) {
    const detail = 'A compressed body cannot be translated, and the engine speaks chat completions only.';
    throw new WarmpathError('WARMPATH_NOT_TRANSLATABLE', { path: 'content-encoding', detail });
  }
  const { exchange } = call.request;
  const steps = translateRequest({
    api,
    body: call.body,
    requestId: exchange.requestId,
    limitBytes: gateway.config.server.bodyLimitBytes,
  });
  return whenReady(
    gateway.slices.run(steps, () => call.reply.raw.destroyed),
    (translation) => {
      exchange.warnings = translation.warnings;
      return { ...call, api: chatApi, body: translation.body, translation };
    },
  );
}

function serve(gateway: Gateway, call: Call): void {
  const prepared = preparePrompt(gateway, call);
  if (!(prepared instanceof Promise)) enter(gateway, call, prepared);
  else prepared.then((ready) => enter(gateway, call, ready)).catch((error: unknown) => call.reply.send(error));
}

/** The request waits for the engine, if it must. */
function enter(gateway: Gateway, call: Call, prepared: PreparedPrompt): void {
  const { request, reply, tenant } = call;
  if (reply.raw.destroyed) return;
  let context: WaitingContext | undefined | 'unread' = 'unread';
  const dispatch: Dispatch = {
    tenant,
    // A function, not a getter: V8 gives each object with a getter in its literal a shape of its own, and that held
    // the whole request until the next full collection.
    context: () => {
      if (context === 'unread') context = waitingContext(gateway, tenant, prepared);
      return context;
    },
    start: (queuedMs, release) => {
      if (queuedMs > 0) request.exchange.queuedMs = queuedMs;
      try {
        sendPrompt(gateway, call, arrangePrompt(gateway, call, prepared), release);
      } catch (error) {
        release();
        reply.send(error);
      }
    },
    refuse: (error) => reply.send(error),
  };
  gateway.queue.enter(dispatch);
  if (!reply.sent) reply.raw.once('close', () => gateway.queue.leave(dispatch));
}

/**
 * What the queue may know of a request: enough to be told to policies, and to be weighed against others. `undefined`
 * for one without documents whose order is open. O(1); where documents stand in the prompt, O(text up to the end of the
 * first).
 */
function waitingContext(gateway: Gateway, tenant: string, prepared: PreparedPrompt): WaitingContext | undefined {
  if (prepared.kind === 'inserted') return contextOf(gateway, tenant, prepared.parsed.model, prepared.request);
  const open = prepared.kind === 'found' ? openDocuments(gateway, prepared) : undefined;
  return open && contextOf(gateway, tenant, open.model, open);
}

function contextOf(
  { histories }: Gateway,
  tenant: string,
  model: string,
  { documents, preamble }: { readonly documents: readonly Document[]; readonly preamble: Preamble },
): WaitingContext {
  return {
    documents,
    preamble,
    reuse: () => {
      const { tokens } = histories.of(tenant, model).history.bestPath(documents, preamble, undefined);
      const total = documents.reduce((sum, document) => sum + document.tokens, preamble.tokens);
      // The question is computed in any case.
      return { cachedTokens: tokens, hostTokens: 0, computeTokens: total - tokens + 1 };
    },
  };
}
