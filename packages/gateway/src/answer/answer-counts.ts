import type { EngineCounts } from '../observe/engine-counts.js';
import type { Exchange } from '../observe/exchange.js';
import type { RelayResult } from './relay.js';

/** Whether the engine has the prompt's KV now. A client that left after the first content left a prompt that is prefilled, and therefore cached. */
export function isPrefilled({ status, complete, sniffer }: RelayResult): boolean {
  return status !== undefined && status < 300 && (complete || sniffer.prefilled);
}

/** Writes down when the first content came and what the engine counted, and learns from the counts. */
export function noteAnswer(
  exchange: Exchange,
  counts: EngineCounts,
  { sniffer: { firstContentAt, usage } }: RelayResult,
  { dispatchedAt, estimatedTokens }: { readonly dispatchedAt: number; readonly estimatedTokens: number },
): void {
  if (firstContentAt !== undefined) exchange.ttftMs = firstContentAt - dispatchedAt;
  if (usage === undefined) return;
  counts.observe(estimatedTokens, usage);
  exchange.promptTokens = usage.promptTokens;
  exchange.cachedTokens = counts.cachedTokens(usage);
}
