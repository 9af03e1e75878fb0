/** The tenant of clients that send no key, where keys are not checked. */
export const ANONYMOUS_TENANT = 'anonymous';

const ANONYMOUS_PREFIX = `${ANONYMOUS_TENANT}:`;

/** The tenant of clients that send this key, where keys are not checked. `digest` stands for the key. */
export function anonymousTenant(digest: string): string {
  return ANONYMOUS_PREFIX + digest;
}

/**
 * Whether a tenant was not authenticated: anyone may make up as many of these as they like. The names of authenticated
 * tenants must not look like this.
 */
export function isAnonymousTenant(tenant: string): boolean {
  return tenant === ANONYMOUS_TENANT || tenant.startsWith(ANONYMOUS_PREFIX);
}
