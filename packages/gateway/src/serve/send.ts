import { type ForwardOptions, forward } from '../dispatch/forward.js';
import { forwardsClientKey, RESPONSE_HEADERS, translatedHeaders } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { guard } from '../observe/fail-open.js';
import { type Call, isReadable } from './call.js';
import { warningsHeader } from './warnings-header.js';

/** Forwards, and where prompts are compared, says where this one parts from an earlier one. */
export function send(gateway: Gateway, call: Call, body: Buffer | string, options: ForwardOptions): void {
  transmit(gateway, call, body, options);
  const { request, api } = call;
  const { exchange } = request;
  // Behind the dispatch: the client does not wait for it.
  if (gateway.config.explain.prompts === 'off' || !isReadable(request)) return;
  guard(gateway, () => {
    exchange.prefix = gateway.requests.compare(exchange.tenant!, exchange.requestId, { body: String(body), api });
  });
}

/** With the tenant's salt where one is configured; a translation to where chat completions are served, and its answer back through the translation. */
function transmit(gateway: Gateway, call: Call, plain: Buffer | string, options: ForwardOptions): void {
  const { request, translation } = call;
  const body = gateway.cacheSalts?.salted(plain, request.exchange.caller.tenant) ?? plain;
  if (translation === undefined) {
    forward(gateway, call, body, options);
    return;
  }
  const { leftOut } = translation;
  forward(gateway, call, body, {
    ...options,
    path: chatApi.path,
    requestHeaders: { ...translationHeaders(gateway, call), ...options.requestHeaders },
    responseHeaders: {
      ...(leftOut.length > 0 && { [RESPONSE_HEADERS.warnings]: warningsHeader(leftOut) }),
      ...options.responseHeaders,
    },
    body: translation.answer(request.exchange.requestId),
  });
}

/** Overrides for a request that is a translation; none for any other. */
export function translationHeaders(
  { config }: Gateway,
  { request, translation }: Call,
): Record<string, string | undefined> {
  return translation === undefined ? {} : translatedHeaders(request.headers, forwardsClientKey(config));
}
