import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** The tenant of requests without credentials. */
export const ANONYMOUS = 'anonymous';

/**
 * The isolation boundary a request belongs to: a digest of its credentials (`Authorization`, or `x-api-key`). Trees and hotness are never
 * shared across tenants, because an order tells what others asked for. The digest is never logged or sent anywhere.
 */
export function tenantOf({ authorization, 'x-api-key': key }: IncomingHttpHeaders): string {
  const credentials = authorization ?? (typeof key === 'string' ? `x-api-key ${key}` : undefined);
  return credentials === undefined ? ANONYMOUS : hash('sha256', credentials);
}
