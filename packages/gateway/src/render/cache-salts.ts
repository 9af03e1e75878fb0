import { createHmac } from 'node:crypto';
import { objectMembers, rewriteObject } from '../intake/json-members.js';

const FIELD = 'cache_salt';

/**
 * Keeps tenants apart in the engine's cache: every body gets a `cache_salt` that only this key and the tenant give, so that
 * nobody can learn from cached tokens or from the time what another tenant has sent. A client's own salt is mixed into it: it
 * separates within the tenant and never reaches another's.
 */
export class CacheSalts {
  readonly #key: string;

  /** @param key The secret. Gateways in front of the same engine must have the same one, to share its cache. */
  constructor(key: string) {
    this.#key = key;
  }

  /**
   * A request's body with the salt. What is no JSON object, or compressed, stays as it is: it can share nothing with what is
   * salted. Cost: O(body).
   */
  salted<Body extends Buffer | string>(body: Body, tenant: string): Body | string {
    const text = body.toString();
    const given = readObject(text);
    if (given === undefined) return body;
    const hmac = createHmac('sha256', this.#key).update(tenant);
    const own = given[FIELD];
    if (own !== undefined && own !== null) hmac.update('\n').update(JSON.stringify(own));
    const salt = JSON.stringify(hmac.digest('base64url'));
    return rewriteObject(text, objectMembers(text), new Map([[FIELD, salt]]));
  }
}

function readObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Readonly<Record<string, unknown>>)
      : undefined;
  } catch {
    return undefined;
  }
}
