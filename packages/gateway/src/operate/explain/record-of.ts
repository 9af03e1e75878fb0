import type { Exchange } from '../../observe/exchange.js';
import type { RequestRecord } from './request-log.js';

/** What is kept of a request when it is over. */
export function recordOf(exchange: Exchange, route: string, status: number): RequestRecord {
  return {
    object: 'request',
    id: exchange.requestId,
    route,
    status,
    overheadMs: exchange.overheadMs ?? null,
    queuedMs: exchange.queuedMs ?? null,
    ttftMs: exchange.ttftMs ?? null,
    promptTokens: exchange.promptTokens ?? null,
    cachedTokens: exchange.cachedTokens ?? null,
    predictedCachedTokens: exchange.predictedCachedTokens ?? null,
    blocks: exchange.blocks,
    references: exchange.references,
    shortened: exchange.shortened,
    deduplicatedTokens: exchange.deduplicatedTokens,
    failedOpen: exchange.failedOpen,
    prefix: exchange.prefix ?? null,
  };
}
