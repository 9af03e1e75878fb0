import { hash } from 'node:crypto';

/** The tenant of requests without credentials. */
export const ANONYMOUS = 'anonymous';

/**
 * The isolation boundary a request belongs to: a digest of its `Authorization` header. Trees and hotness are never
 * shared across tenants, because an order tells what others asked for. The digest is never logged or sent anywhere.
 */
export function tenantOf(authorization: string | undefined): string {
  return authorization === undefined ? ANONYMOUS : hash('sha256', authorization);
}
