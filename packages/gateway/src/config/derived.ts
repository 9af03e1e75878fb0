/** Bounds of one exchange with an engine, in milliseconds. */
export interface Timeouts {
  /** Until the response headers. */
  readonly headersMs: number;
  /** Between two chunks of a response body, and until a client takes something of an answer that waits for it. */
  readonly idleMs: number;
  readonly totalMs: number;
}

/** All timeouts follow from one key, so that a slower engine needs one change. */
export function timeoutsOf({ timeoutMs }: { readonly timeoutMs: number }): Timeouts {
  return { headersMs: timeoutMs, idleMs: Math.ceil(0.4 * timeoutMs), totalMs: 6 * timeoutMs };
}

/** Bounds on the documents of one request. */
export interface DocumentLimits {
  readonly documents: number;
  /** UTF-16 units of one document's text. */
  readonly documentLength: number;
}

const MAX_DOCUMENTS = 1_000;
const MAX_DOCUMENT_LENGTH = 1_000_000;
export const DEFAULT_BODY_LIMIT_BYTES = 33_554_432;

/** A larger body limit than the default allows more and longer documents, in proportion. */
export function documentLimits({ bodyLimitBytes }: { readonly bodyLimitBytes: number }): DocumentLimits {
  const factor = Math.max(1, bodyLimitBytes / DEFAULT_BODY_LIMIT_BYTES);
  return {
    documents: Math.floor(factor * MAX_DOCUMENTS),
    documentLength: Math.floor(factor * MAX_DOCUMENT_LENGTH),
  };
}
