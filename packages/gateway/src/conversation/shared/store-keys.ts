import { hash } from 'node:crypto';
import type { ConversationName, SessionFilter } from '@warmpath/core';

/** Digits of a tenant's digest, of a conversation's, and what a key of the store is made of. */
const TENANT_DIGITS = 16;
const SCOPE_DIGITS = 32;
const AFTER_PREFIX = /^[0-9a-f]{16}\{([0-9a-f]{32})\}(.+)$/s;

/**
 * What a tenant's conversation is called outside of this process: a digest, so that no name of a client, no digest of a key and no
 * sign that means something to the server ever stands in a key.
 */
export function scopeOf({ tenant, user, session }: ConversationName): string {
  return hash('sha256', JSON.stringify([tenant, user ?? null, session])).slice(0, SCOPE_DIGITS);
}

/**
 * The keys of a store: a prefix, the tenant's digest, by which all that a tenant has is found, the conversation's in braces, and the
 * link. In a cluster, what stands in braces decides where a key is: one conversation's keys are together.
 */
export class StoreKeys {
  readonly prefix: string;

  constructor(prefix: string) {
    this.prefix = prefix;
  }

  /** What every key of a conversation begins with. */
  startOf(name: ConversationName): string {
    return `${this.prefix}${tenantDigest(name.tenant)}{${scopeOf(name)}}`;
  }

  /** Which conversations were forgotten lately. */
  get forgotten(): string {
    return `${this.prefix}forgotten`;
  }

  get probe(): string {
    return `${this.prefix}probe`;
  }

  /** The servers' pattern for the keys of these conversations; other keys may fit it, too. */
  patternFor({ tenant, user, session }: SessionFilter): string {
    const start = this.prefix.replace(/[\\*?[\]]/g, '\\$&');
    if (tenant === undefined) return `${start}*{*}*`;
    const scope = session === undefined ? '*' : scopeOf({ tenant, user: user ?? undefined, session });
    return `${start}${tenantDigest(tenant)}{${scope}}*`;
  }

  /** The scope and the link of a key; `undefined` for any other. */
  read(key: string): { readonly scope: string; readonly link: string } | undefined {
    const [, scope, link] = AFTER_PREFIX.exec(key.slice(this.prefix.length)) ?? [];
    return scope === undefined || link === undefined ? undefined : { scope, link };
  }
}

function tenantDigest(tenant: string): string {
  return hash('sha256', tenant).slice(0, TENANT_DIGITS);
}
