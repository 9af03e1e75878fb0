import { isAnonymousTenant } from '@warmpath/core';

/** Longest name of a tenant or an end user that the configuration, a proxy or a token may give. */
export const NAME_MAX_LENGTH = 256;

/**
 * Whether this can name a tenant or an end user. Names become keys and hash inputs: half of a surrogate pair has no
 * bytes of its own, and control characters separate joined texts.
 */
export function isOwnerName(value: unknown): value is string {
  if (typeof value !== 'string' || value === '' || value.length > NAME_MAX_LENGTH) return false;
  return value.isWellFormed() && !/\p{Cc}/u.test(value);
}

/** Whether this can name an authenticated tenant. */
export function isTenantName(value: unknown): value is string {
  return isOwnerName(value) && !isAnonymousTenant(value);
}
