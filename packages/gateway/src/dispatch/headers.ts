import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import type { GatewayConfig } from '../config/schema.js';
import { checksKeys } from '../config/schema-server.js';
import { KEY_HEADERS } from '../intake/authenticate.js';

/** Headers that concern one connection only and are never forwarded (RFC 9110, section 7.6.1). */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** The HTTP client writes these itself, from the URL and the body. */
const WRITTEN_ANEW = new Set(['host', 'content-length', 'expect']);

/** The header by which a client names its conversation; the engine has no use for it. */
export const SESSION_HEADER = 'x-warmpath-session';

/** Header names that the gateway sets in responses; the README documents each. */
export const RESPONSE_HEADERS = {
  requestId: 'x-request-id',
  errorSource: 'x-warmpath-error-source',
  overheadMs: 'x-warmpath-overhead-ms',
  predictedCachedTokens: 'x-warmpath-predicted-cached-tokens',
  policy: 'x-warmpath-policy',
  recognised: 'x-warmpath-recognised',
  replayedTurns: 'x-warmpath-replayed-turns',
  references: 'x-warmpath-references',
  shortened: 'x-warmpath-shortened',
  deduplicatedTokens: 'x-warmpath-deduplicated-tokens',
  warnings: 'x-warmpath-warnings',
  fallback: 'x-warmpath-fallback',
} as const;

/** What the response says of documents that were referred to, whole or in part; nothing if none was. */
export function referenceHeaders({
  references,
  shortened,
  deduplicatedTokens,
}: {
  readonly references: number;
  readonly shortened: number;
  readonly deduplicatedTokens: number;
}): Record<string, string> {
  if (references + shortened === 0) return {};
  return {
    ...(references > 0 && { [RESPONSE_HEADERS.references]: String(references) }),
    ...(shortened > 0 && { [RESPONSE_HEADERS.shortened]: String(shortened) }),
    [RESPONSE_HEADERS.deduplicatedTokens]: String(deduplicatedTokens),
  };
}

/**
 * The client's headers for the engine: hop-by-hop ones removed, `overrides` (names in lower case) in place of the client's; one
 * that is `undefined` there is left out.
 */
export function requestHeaders(
  incoming: IncomingHttpHeaders,
  overrides: Readonly<Record<string, string | undefined>>,
): Record<string, string | string[]> {
  const outgoing: Record<string, string | string[]> = {};
  const perConnection = connectionTokens(incoming);
  for (const name in incoming) {
    const value = incoming[name];
    if (value === undefined || HOP_BY_HOP.has(name) || WRITTEN_ANEW.has(name) || perConnection?.has(name)) continue;
    if (name !== SESSION_HEADER) outgoing[name] = value;
  }
  for (const name in overrides) {
    const value = overrides[name];
    if (value === undefined) delete outgoing[name];
    else outgoing[name] = value;
  }
  return outgoing;
}

/** Whether the engine gets the key that the client sent: where the gateway has none for it, and checks none itself. */
export function forwardsClientKey({ upstream, server }: GatewayConfig): boolean {
  return upstream.apiKey === undefined && !checksKeys(server);
}

/**
 * Overrides for every request to the engine: the gateway's own key in place of the client's, and nothing that is only between
 * the client, a proxy in front and the gateway.
 */
export function engineCredentials(config: GatewayConfig): Record<string, string | undefined> {
  const { apiKey, apiKeyHeader } = config.upstream;
  const overrides: Record<string, string | undefined> = {};
  if (!forwardsClientKey(config)) for (const name of KEY_HEADERS) overrides[name] = undefined;
  for (const name of Object.values(config.server.trustedHeaders)) if (name !== undefined) overrides[name] = undefined;
  if (apiKey !== undefined) overrides[apiKeyHeader] = apiKeyHeader === 'authorization' ? `Bearer ${apiKey}` : apiKey;
  return overrides;
}

/** What only Anthropic's API reads. */
const ANTHROPIC_ONLY = ['anthropic-version', 'anthropic-beta', 'anthropic-dangerous-direct-browser-access'];

/**
 * Overrides for a request that was translated into chat completions: the client's key, if that is what the engine gets, stands
 * where chat completions have it, and the answer must come as it can be read.
 */
export function translatedHeaders(
  incoming: IncomingHttpHeaders,
  hasClientsKey: boolean,
): Record<string, string | undefined> {
  const { authorization, 'x-api-key': key } = incoming;
  const none = ANTHROPIC_ONLY.map((name) => [name, undefined]);
  return {
    ...(Object.fromEntries(none) as Record<string, undefined>),
    ...(hasClientsKey && { 'x-api-key': undefined }),
    ...(hasClientsKey && typeof key === 'string' && { authorization: authorization ?? `Bearer ${key}` }),
    'content-type': 'application/json',
    'accept-encoding': 'identity',
  };
}

/** The engine's headers for the client, hop-by-hop ones removed, the gateway's own added. */
export function responseHeaders(incoming: IncomingHttpHeaders, own: Readonly<Record<string, string>>) {
  const outgoing: OutgoingHttpHeaders = {};
  const perConnection = connectionTokens(incoming);
  for (const name in incoming) {
    const value = incoming[name];
    if (value === undefined || HOP_BY_HOP.has(name) || perConnection?.has(name)) continue;
    outgoing[name] = value;
  }
  for (const name in own) outgoing[name] = own[name]!;
  return outgoing;
}

/** Names that `Connection` declares to be hop-by-hop, too; `undefined` in the usual case. */
function connectionTokens(headers: IncomingHttpHeaders): ReadonlySet<string> | undefined {
  const { connection } = headers;
  if (connection === undefined || connection === 'keep-alive' || connection === 'close') return undefined;
  return new Set(
    connection
      .toLowerCase()
      .split(',')
      .map((name) => name.trim()),
  );
}
