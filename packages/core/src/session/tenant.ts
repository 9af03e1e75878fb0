/** Tenant of clients without a key, if keys are not checked. */
export const ANONYMOUS_TENANT = 'anonymous';

const ANONYMOUS_PREFIX = `${ANONYMOUS_TENANT}:`;

/** Tenant of clients with this key, if keys are not checked. `digest` identifies the key. */
export function anonymousTenant(digest: string): string {
  return ANONYMOUS_PREFIX + digest;
}

/**
 * Whether a tenant was not authenticated. Clients can invent any number of these. Names of authenticated tenants must
 * not look like this.
 */
export function isAnonymousTenant(tenant: string): boolean {
  return tenant === ANONYMOUS_TENANT || tenant.startsWith(ANONYMOUS_PREFIX);
}
