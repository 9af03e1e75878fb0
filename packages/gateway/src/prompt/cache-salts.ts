import { createHmac } from 'node:crypto';
import { applyEdits, BodyView } from '../json/json-body.js';

const FIELD = 'cache_salt';

/**
 * Keeps tenants apart in the engine's cache: every body gets a `cache_salt` that only this key and the tenant give, so
 * that nobody can learn from cached tokens or from the time what another tenant has sent. A client's own salt is mixed
 * into it: it separates within the tenant and never reaches another's.
 */
export class CacheSalts {
  readonly #key: string;

  /** @param key The secret. Gateways in front of the same engine must have the same one, to share its cache. */
  constructor(key: string) {
    this.#key = key;
  }

  /**
   * A request's body with the salt, also where the key stands there twice. Cost: a scan of the body.
   *
   * @throws WarmpathError `WARMPATH_INVALID_JSON`, `WARMPATH_BODY_TOO_COMPLEX`: no body goes out without its salt.
   */
  salted(bytes: Buffer, tenant: string): Buffer {
    const body = new BodyView(bytes);
    const span = body.value(FIELD);
    const own = span === undefined || body.scan.isNull(span) ? null : body.scan.text(span);
    const digest = createHmac('sha256', this.#key)
      .update(JSON.stringify([tenant, own]))
      .digest('base64url');
    const salt = `"${digest}"`;
    if (span === undefined) return applyEdits(bytes, [body.with(FIELD, salt)]);
    const given = body.members.filter(({ key }) => key === FIELD);
    return applyEdits(
      bytes,
      given.map(({ valueStart, end }) => ({ start: valueStart, end, pieces: [salt] })),
    );
  }
}
