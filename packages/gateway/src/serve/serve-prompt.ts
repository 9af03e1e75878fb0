import { WarmpathError } from '@warmpath/core';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { serveRecognised } from '../arrange/found/serve-recognised.js';
import type { Dispatch } from '../dispatch/dispatch-queue.js';
import type { Way } from '../engines/engine-apis.js';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import type { PromptApi } from '../intake/apis/prompt-api.js';
import { type TranslatedApi, translate } from '../translation/translation.js';
import { arrangeDocuments } from './arrange-documents.js';
import { bodyOf, type Call, isReadable } from './call.js';
import { forwardArranged } from './forward-arranged.js';
import { forwardPlain } from './forward-plain.js';
import { type Prepared, prepare } from './prepare.js';
import { send } from './send.js';
import { waitingContext } from './waiting-context.js';

/**
 * The way of a prompt through the gateway: extract, wait for room in the engine, arrange, render, forward, observe. A body
 * without documents passes through as it is. A defect of the gateway forwards the original body; only bad input is
 * refused. Documents are arranged when the engine has room and not before, so that the order knows what was served meanwhile,
 * and what is still waiting.
 */
export function servePrompt(gateway: Gateway, api: PromptApi) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    request.exchange.bodyAt = gateway.now();
    serve(gateway, { request, reply, route: api.name, api, body: bodyOf(request) });
  };
}

/** The same for an API that the engine may not speak: then the request is translated first, and its answer on the way back. */
export function serveTranslatable(gateway: Gateway, api: PromptApi & { readonly name: TranslatedApi }) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    const { headers, exchange } = request;
    const go = (way: Way): void => {
      if (reply.raw.destroyed) return;
      exchange.bodyAt = gateway.now();
      const call = { request, reply, route: api.name, api, body: bodyOf(request) };
      serve(gateway, way === 'native' ? call : translated(gateway, call));
    };
    const way = gateway.engineApis.way(api.name, exchange.caller, headers);
    if (typeof way === 'string') {
      go(way);
      return;
    }
    void way.then(go).catch((error: unknown) => {
      if (!reply.sent) reply.send(error);
    });
  };
}

function translated(gateway: Gateway, call: Call & { readonly api: { readonly name: TranslatedApi } }): Call {
  if (!isReadable(call.request)) {
    const detail = 'A compressed body cannot be translated, and the engine speaks chat completions only.';
    throw new WarmpathError('WARMPATH_NOT_TRANSLATABLE', { path: 'content-encoding', detail });
  }
  const translation = translate(call.body, call.api.name, gateway.config.server.bodyLimitBytes);
  return { ...call, api: chatApi, body: translation.body, translation };
}

function serve(gateway: Gateway, call: Call): void {
  const { tenant } = call.request.exchange.caller;
  call.request.exchange.tenant = tenant;
  const prepared = prepare(gateway, call, tenant);
  if (!(prepared instanceof Promise)) enter(gateway, call, tenant, prepared);
  else prepared.then((ready) => enter(gateway, call, tenant, ready)).catch((error: unknown) => call.reply.send(error));
}

/** The request waits for the engine, if it must. */
function enter(gateway: Gateway, call: Call, tenant: string, prepared: Prepared): void {
  const { request, reply } = call;
  if (reply.raw.destroyed) return;
  let context: ReturnType<typeof waitingContext> | 'unread' = 'unread';
  const dispatch: Dispatch = {
    tenant,
    // A request that need not wait is not read for it.
    get context() {
      if (context === 'unread') context = waitingContext(gateway, tenant, prepared);
      return context;
    },
    start: (queuedMs, release) => {
      if (queuedMs > 0) request.exchange.queuedMs = queuedMs;
      try {
        start(gateway, call, { tenant, prepared, release });
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

/** The engine has room: arranges and forwards. Error: bad input that only the arrangement brings to light. */
function start(
  gateway: Gateway,
  call: Call,
  { tenant, prepared, release }: { readonly tenant: string; readonly prepared: Prepared; readonly release: () => void },
): void {
  if (prepared.kind === 'plain') {
    forwardPlain(gateway, call, { prepared, release });
    return;
  }
  if (prepared.kind === 'recognised') {
    serveRecognised(gateway, call.request, prepared.waiting, {
      send: (body, options) => send(gateway, call, body, options),
      release,
    });
    return;
  }
  const arranged = arrangeDocuments(gateway, call.request, { tenant, prepared });
  if (arranged !== undefined) forwardArranged(gateway, call, { arranged, release });
  else forwardPlain(gateway, call, { prepared: { kind: 'plain', body: call.body, fallback: 'original' }, release });
}
