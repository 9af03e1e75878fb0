import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { type ResponseHead, UntouchedBody } from '../answer/response-body.js';
import type { ErrorShape } from '../intake/apis/error-shape.js';
import { BodyView } from '../intake/body-view.js';
import { applyEdits } from '../intake/json-scanner.js';
import { KeySign } from '../intake/parse-request.js';

const FIELD = 'speculation';
const SIGN = new KeySign(FIELD);
/** 128 bits: nobody finds two tenants with the same digest. */
const DIGEST_LENGTH = 22;
/** What follows `\u` in every escape of a letter. */
const IN_ESCAPED_LETTERS = ['006', '007'].map((digits) => [Buffer.from(digits), Buffer.from(`\\u${digits}`)] as const);

/** Stands before a tenant's ids. Of one length for all, so that no id of one tenant is an id of another. */
function prefixOf(tenant: string): string {
  return `${hash('sha256', tenant, 'base64url').slice(0, DIGEST_LENGTH)}.`;
}

/** The path at the engine under which a tenant's speculation is confirmed or cancelled. */
export function speculationPath(tenant: string, id: string, action: string): string {
  return `/v1/speculations/${encodeURIComponent(prefixOf(tenant) + id)}/${encodeURIComponent(action)}`;
}

/**
 * A request's body in which the id of its `speculation` is the tenant's own: one tenant can neither supersede nor end
 * what another has begun. The same buffer where there is none. Cost: three native searches of the body, and a scan of
 * one that may have the field.
 *
 * @throws WarmpathError for a body that may have the field and cannot be read: `WARMPATH_INVALID_JSON`,
 * `WARMPATH_BODY_TOO_COMPLEX`.
 */
export function withOwnSpeculation(bytes: Buffer, tenant: string): Buffer {
  if (!SIGN.isIn(bytes) && !mayHideKey(bytes)) return bytes;
  const body = new BodyView(bytes);
  const field = body.value(FIELD);
  const span = field && body.scan.member(field.start, 'id');
  const id = span && body.scan.string(span);
  if (id === undefined) return bytes;
  return applyEdits(bytes, [{ ...span!, pieces: [JSON.stringify(prefixOf(tenant) + id)] }]);
}

/**
 * Whether letters are written as escapes, in which a key may hide. Texts have few such digits, but many backslashes.
 */
function mayHideKey(bytes: Buffer): boolean {
  return IN_ESCAPED_LETTERS.some(([digits, escaped]) => bytes.includes(digits) && bytes.includes(escaped));
}

/** The engine's answer about a speculation, with the id as its client wrote it. */
export class SpeculationReply extends UntouchedBody {
  readonly #prefix: string;

  constructor(tenant: string, errors: ErrorShape) {
    super(errors);
    this.#prefix = prefixOf(tenant);
  }

  override head({ status, headers }: ResponseHead): ResponseHead {
    const { 'content-length': _, ...rest }: IncomingHttpHeaders = headers;
    return { status, headers: rest };
  }

  override data(chunk: Buffer): Buffer {
    return Buffer.from(chunk.toString('latin1').replaceAll(this.#prefix, ''), 'latin1');
  }
}
