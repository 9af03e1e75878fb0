import type { ErrorCode } from '@warmpath/core';
import type { Exchange } from './exchange.js';

/** What became of one request of a client: counts and times, nothing that it says. */
export interface ServedRequest {
  /** The path as the gateway knows it, for instance `/v1/chat/completions`; never the client's own. */
  readonly route: string;
  readonly status: number;
  readonly durationMs: number;
  readonly documents: number | undefined;
  /** Documents that stand elsewhere than the client wrote them. */
  readonly documentsMoved: number | undefined;
  /** As the engine counted them; `undefined` where it does not say. */
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  /** Milliseconds until the first content of the answer. */
  readonly ttftMs: number | undefined;
  readonly errorCode: ErrorCode | undefined;
}

export function servedRequest(
  exchange: Exchange,
  { route, status, durationMs }: Pick<ServedRequest, 'route' | 'status' | 'durationMs'>,
): ServedRequest {
  const { documents, documentsMoved, promptTokens, cachedTokens, ttftMs, errorCode } = exchange;
  return { route, status, durationMs, documents, documentsMoved, promptTokens, cachedTokens, ttftMs, errorCode };
}
