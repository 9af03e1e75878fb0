import { hash, randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type { EngineSettings, GatewayConfig } from '../config/schema.js';
import { checksKeys } from '../config/schema-server.js';
import { KEY_HEADERS } from './authenticate.js';

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

/** The HTTP client writes these itself, from the URL and the body, which is decoded. */
const WRITTEN_ANEW = new Set(['host', 'content-length', 'content-encoding', 'expect']);

/** The header by which a client names its conversation; the engine has no use for it. */
export const SESSION_HEADER = 'x-warmpath-session';

/** Only the gateway says which web pages may read an answer. */
const CORS_PREFIX = 'access-control-';

/** Header names that the gateway sets in responses. */
export const RESPONSE_HEADERS = {
  requestId: 'x-request-id',
  /** What became of the request, as a dictionary of structured fields (RFC 9651). */
  summary: 'x-warmpath',
} as const;

/** Headers in place of those that a client sent; one that is `undefined` is left out. Names in lower case. */
export type HeaderOverrides = Readonly<Record<string, string | undefined>>;

/** The client's headers for the engine: hop-by-hop ones removed, then `overrides`, of which a later one goes before. */
export function requestHeaders(
  incoming: IncomingHttpHeaders,
  ...overrides: readonly (HeaderOverrides | undefined)[]
): Record<string, string | string[]> {
  const outgoing: Record<string, string | string[]> = {};
  const perConnection = connectionTokens(incoming);
  for (const name in incoming) {
    const value = incoming[name];
    if (value === undefined || HOP_BY_HOP.has(name) || WRITTEN_ANEW.has(name) || perConnection?.has(name)) continue;
    if (name !== SESSION_HEADER) outgoing[name] = value;
  }
  for (const headers of overrides) {
    for (const name in headers) {
      const value = headers[name];
      if (value !== undefined) outgoing[name] = name === HOPS_HEADER ? withHop(incoming, value) : value;
      else if (outgoing[name] !== undefined) delete outgoing[name];
    }
  }
  return outgoing;
}

/** Whether the engine gets the key that the client sent: where the gateway has none for it, and checks none itself. */
export function forwardsClientKey(
  { apiKey }: Pick<EngineSettings, 'apiKey'>,
  { server }: Pick<GatewayConfig, 'server'>,
): boolean {
  return apiKey === undefined && !checksKeys(server);
}

/**
 * Overrides for every request to the engine: the gateway's own key in place of the client's, and nothing that is only
 * between the client, a proxy in front and the gateway.
 */
export function engineCredentials(
  engine: Pick<EngineSettings, 'apiKey'>,
  config: GatewayConfig,
  keyHeader: 'authorization' | 'x-api-key',
): HeaderOverrides {
  const { apiKey } = engine;
  const overrides: Record<string, string | undefined> = {};
  if (!forwardsClientKey(engine, config)) for (const name of KEY_HEADERS) overrides[name] = undefined;
  for (const name of Object.values(config.server.trustedHeaders)) if (name !== undefined) overrides[name] = undefined;
  if (apiKey !== undefined) overrides[keyHeader] = keyHeader === 'authorization' ? `Bearer ${apiKey}` : apiKey;
  return overrides;
}

/** What only Anthropic's API reads. */
const ANTHROPIC_ONLY = ['anthropic-version', 'anthropic-beta', 'anthropic-dangerous-direct-browser-access'];

/**
 * Overrides for a request that was translated into chat completions: the client's key, if that is what the engine gets,
 * stands where chat completions have it, and the answer must come as it can be read.
 */
export function translatedHeaders(incoming: IncomingHttpHeaders, hasClientsKey: boolean): HeaderOverrides {
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

/** The engine's headers for the client: without those of hops and of CORS, with the gateway's own. */
export function responseHeaders(incoming: IncomingHttpHeaders, own: Readonly<Record<string, string>>) {
  const outgoing: OutgoingHttpHeaders = {};
  const perConnection = connectionTokens(incoming);
  for (const name in incoming) {
    const value = incoming[name];
    if (value === undefined || HOP_BY_HOP.has(name) || perConnection?.has(name)) continue;
    if (!name.startsWith(CORS_PREFIX)) outgoing[name] = value;
  }
  for (const name in own) outgoing[name] = own[name]!;
  return outgoing;
}

/** Headers of the engine that keep what the gateway's own `Vary` says: caches mind both. */
export function withVary(
  client: { getHeader(name: string): unknown },
  headers: OutgoingHttpHeaders,
): OutgoingHttpHeaders {
  const [own, { vary }] = [client.getHeader('vary'), headers];
  if (own === undefined || vary === undefined) return headers;
  const isSaid = String(vary).toLowerCase().split(/, */).includes(String(own));
  return isSaid ? headers : { ...headers, vary: `${String(own)}, ${String(vary)}` };
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

/** When a client that was refused for want of room may try again. */
export function retryAfter({ status, retryAfterS }: WarmpathError): { 'retry-after'?: string } {
  const seconds = retryAfterS ?? (status === 429 ? 1 : undefined);
  return seconds === undefined ? {} : { 'retry-after': String(seconds) };
}

/** Headers in which clients say how long they wait, and milliseconds of their unit: OpenAI's and Anthropic's SDKs. */
const TIMEOUT_HEADERS = [
  ['x-stainless-timeout', 1_000],
  ['x-stainless-read-timeout', 1_000],
] as const;

/** Milliseconds that a client waits for an answer to begin; `undefined` where it does not say. */
export function clientTimeoutMs(headers: IncomingHttpHeaders): number | undefined {
  let least: number | undefined;
  for (const [name, unitMs] of TIMEOUT_HEADERS) {
    const value = Number(headers[name]);
    if (!(value > 0)) continue;
    least = Math.min(least ?? Number.POSITIVE_INFINITY, value * unitMs);
  }
  return least;
}

/** Names the gateways that a request came through, as `Via` does; a header of its own, for some servers mind `Via`. */
export const HOPS_HEADER = 'x-warmpath-via';

/** Gateways behind each other; more are a circle whose middle hides it. */
const MAX_HOPS = 8;

/** What a gateway calls itself in that header: drawn at its start, says nothing about it. */
export function newHopName(): string {
  return randomBytes(8).toString('hex');
}

/** The header for the next hop. */
function withHop(incoming: IncomingHttpHeaders, own: string): string {
  const before = incoming[HOPS_HEADER];
  return before === undefined ? own : `${String(before)}, ${own}`;
}

/** Error: `WARMPATH_LOOP` for a request that this gateway sent itself, or that came through too many. */
export function checkHops(incoming: IncomingHttpHeaders, own: string): WarmpathError | undefined {
  const before = incoming[HOPS_HEADER];
  if (before === undefined) return undefined;
  const hops = String(before).split(',', MAX_HOPS + 1);
  if (hops.some((hop) => hop.trim() === own)) return new WarmpathError('WARMPATH_LOOP');
  if (hops.length <= MAX_HOPS) return undefined;
  return new WarmpathError('WARMPATH_LOOP', { detail: `This request came through more than ${MAX_HOPS} gateways.` });
}

/** How one kind of client names its sessions. */
interface AgentHeaders {
  /** As in logs and metrics. */
  readonly client: string;
  /** The version whose requests were looked at; of a convention that several clients follow, none. */
  readonly version: string | undefined;
  readonly session: string;
  /** Names one agent of the session. Left out, or the session's own name, for the main agent. */
  readonly agent?: string;
  /** Names the agent that started this one; where there is no `agent`, the session that started this one. */
  readonly parent?: string;
}

/** The first row with a value counts. */
export const AGENT_HEADERS = [
  {
    client: 'claude-code',
    version: '2.1',
    session: 'x-claude-code-session-id',
    agent: 'x-claude-code-agent-id',
    parent: 'x-claude-code-parent-agent-id',
  },
  {
    client: 'codex',
    version: '0.171',
    session: 'session-id',
    agent: 'thread-id',
    parent: 'x-codex-parent-thread-id',
  },
  { client: 'dynamo', version: undefined, session: 'x-dynamo-session-id', parent: 'x-dynamo-parent-session-id' },
  { client: 'opencode', version: '1.18', session: 'x-session-id', parent: 'x-parent-session-id' },
  { client: 'other', version: undefined, session: 'x-session-affinity', parent: 'x-parent-session-id' },
] as const satisfies readonly AgentHeaders[];

/** A kind of client that names its sessions; `warmpath`: by a name of the gateway's own. */
export type AgentClient = (typeof AGENT_HEADERS)[number]['client'] | 'warmpath';

/** What the headers of a request say about its session. A name of another tenant or end user is another session. */
export interface AgentSession {
  readonly client: AgentClient;
  /** Of the session, and within it of the agent. */
  readonly name: string;
  /** The name of the agent or session that started this one; `undefined` for a main agent. */
  readonly parent: string | undefined;
}

/** Characters of an id; a longer one counts as its digest. */
const MAX_ID_LENGTH = 128;

/** The session that an agent's headers name; `undefined` for a request without such headers. */
export function agentSessionOf(headers: IncomingHttpHeaders): AgentSession | undefined {
  let row: AgentHeaders | undefined;
  for (const each of AGENT_HEADERS) if (headers[each.session]) row ??= each;
  if (row === undefined) return undefined;
  const session = idIn(headers, row.session)!;
  const parent = idIn(headers, row.parent);
  const client = row.client as AgentClient;
  if (row.agent === undefined) {
    const started = parent === undefined || parent === session ? undefined : nameOf(row.session, parent);
    return { client, name: nameOf(row.session, session), parent: started };
  }
  const named = (agent: string | undefined) => nameOf(row.session, session, agent === session ? undefined : agent);
  const name = named(idIn(headers, row.agent));
  // An agent that does not say who started it was started by the main one.
  const started = named(parent);
  return { client, name, parent: started === name ? undefined : started };
}

function nameOf(header: string, session: string, agent?: string): string {
  return JSON.stringify(agent === undefined ? [header, session] : [header, session, agent]);
}

function idIn(headers: IncomingHttpHeaders, name: string | undefined): string | undefined {
  const value = name === undefined ? undefined : headers[name];
  if (typeof value !== 'string' || value === '') return undefined;
  return value.length > MAX_ID_LENGTH ? `sha256:${hash('sha256', value)}` : value;
}
