import { WarmpathError } from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import { identifiesTenants, isLoopback } from '../config/schema-server.js';
import { BodyView } from '../json/json-body.js';
import type { JsonMember } from '../json/json-scanner.js';

/** Paths for which an engine keeps nothing, so that no tenant can read another tenant's data. */
const STATELESS = {
  GET: /^\/v1\/models(?:\/|$)/,
  POST: /^\/v1\/(?:embeddings|rerank|reranking|score|similarity|classify|pooling|moderations|tokenize|detokenize|audio\/(?:transcriptions|translations|speech)|images\/(?:generations|edits|variations))\/?$/,
} as const;

/** Fields of a prompt that refer to data on the engine, and the path of that data. */
const STORED = [
  ['previous_response_id', '/v1/responses/'],
  ['conversation', '/v1/conversations/'],
  ['container', '/v1/containers/'],
  ['prompt', '/v1/prompts/'],
  ['background', '/v1/responses/'],
] as const;

/**
 * Whether tenants share one account at the engine: requests carry the gateway's key, or none. With the clients' own
 * keys the engine separates them.
 */
function isShared({ server, upstream, engines = [] }: GatewayConfig): boolean {
  if (identifiesTenants(server)) return true;
  const hasKey = upstream.apiKey !== undefined || engines.some(({ apiKey }) => apiKey !== undefined);
  return hasKey && !isLoopback(server.host);
}

/** @param path Normalised. @throws WarmpathError `WARMPATH_PATH_CLOSED`. */
export function checkEnginePath(config: GatewayConfig, method: string, path: string): void {
  if (!isShared(config) || !path.startsWith('/v1/') || isListed(config, path)) return;
  const stateless = method === 'HEAD' ? STATELESS.GET : STATELESS[method as keyof typeof STATELESS];
  if (stateless?.test(path) !== true) throw new WarmpathError('WARMPATH_PATH_CLOSED');
}

/**
 * Refuses a prompt that refers to data on the engine: it may be another tenant's.
 *
 * @throws WarmpathError `WARMPATH_PATH_CLOSED`; those of reading the body.
 */
export function checkStoredState(config: GatewayConfig, bytes: Buffer): void {
  if (!isShared(config)) return;
  const body = new BodyView(bytes);
  for (const [field, path] of STORED) {
    for (const { key, valueStart, end } of body.members) {
      if (key !== field || isListed(config, path)) continue;
      const text = body.scan.text({ start: valueStart, end });
      // The prompt of a completion is text or tokens. A stored prompt is an object.
      if (text === 'null' || text === 'false' || (field === 'prompt' && !text.startsWith('{'))) continue;
      const detail = `The engine keeps this for all tenants together, under ${path}.`;
      throw new WarmpathError('WARMPATH_PATH_CLOSED', { path: field, detail });
    }
  }
  checkItems(config, body);
}

/** Lists of a Responses request whose elements may name an item or a container on the engine. */
const ITEMS = [
  ['input', '/v1/responses/', isItemReference],
  ['tools', '/v1/containers/', namesContainer],
] as const;

function checkItems(config: GatewayConfig, body: BodyView): void {
  for (const [field, path, refers] of ITEMS) {
    const span = body.value(field);
    if (span === undefined || !body.scan.isArray(span) || isListed(config, path)) continue;
    for (const [place, element] of body.scan.elements(span.start).entries()) {
      if (!body.scan.isObject(element) || !refers(body, body.scan.members(element.start))) continue;
      const detail = `The engine keeps this for all tenants together, under ${path}.`;
      throw new WarmpathError('WARMPATH_PATH_CLOSED', { path: `${field}[${place}]`, detail });
    }
  }
}

/** The type may be left out: an item with content of its own has a role, a content or another type. */
function isItemReference({ scan }: BodyView, members: readonly JsonMember[]): boolean {
  let isOwn = false;
  for (const { key, valueStart, end } of members) {
    const type = key === 'type' ? scan.string({ start: valueStart, end }) : undefined;
    if (type === 'item_reference') return true;
    if (type !== undefined || key === 'role' || key === 'content') isOwn = true;
  }
  return !isOwn && members.some(({ key }) => key === 'id');
}

function namesContainer({ scan }: BodyView, members: readonly JsonMember[]): boolean {
  return members.some(({ key, valueStart, end }) => key === 'container' && scan.isString({ start: valueStart, end }));
}

function isListed({ passthrough }: GatewayConfig, path: string): boolean {
  return passthrough.some((open) => path === open || path.startsWith(open.endsWith('/') ? open : `${open}/`));
}
