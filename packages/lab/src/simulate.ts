import {
  type Arrangement,
  arrange,
  type Document,
  type OrderingPolicy,
  observe,
  type PolicyName,
  type Preamble,
  ServedHistory,
  WarmpathError,
} from '@warmpath/core';
import { type CachedPrompt, type PrefixCacheModel, promptTokens } from './cache/prefix-cache.js';
import { VllmBlockCache } from './cache/vllm-blocks.js';
import { type LatencyModel, RTX_4090 } from './latency.js';
import type { Workload, WorkloadRequest } from './workloads/workload.js';

/** Longest look-ahead; the depth to which a server's queue is worth reading. */
export const MAX_QUEUE = 64;

export interface SimulateOptions {
  /** The engine's cache; it is cleared first. Default: vLLM's blocks, unlimited. */
  readonly cache?: PrefixCacheModel;
  /** Coming requests that the policy may know of, 0 to 64. Default 0. */
  readonly queue?: number;
  /** Whether the engine reports cached tokens, which correct the history. Default true. */
  readonly reportsCachedTokens?: boolean;
  /** Default: the fit to the papers' RTX 4090. */
  readonly latency?: LatencyModel;
  /** Milliseconds of a monotonic clock, to time `arrange`. Default: none, and `arrangeMs` is 0. */
  readonly clock?: () => number;
}

/** What one request got from the cache. */
export interface ServedOutcome {
  readonly documents: number;
  /** Leading documents that were reused whole, up to the cache's granularity. */
  readonly cachedDocuments: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly ttftMs: number;
  /** Time that `arrange` took. */
  readonly arrangeMs: number;
}

/**
 * Serves a workload one request after another with one ordering policy, through the real `arrange`, `observe` and
 * `ServedHistory` of the core and a simulated engine cache. Deterministic but for `arrangeMs`.
 *
 * Error: `WARMPATH_INVALID_REQUEST` for a queue out of range; whatever made a policy fall back to retrieval order (a
 * comparison must not hide that); those of the cache. Cost: that of the policy and O(tokens / granularity) a request.
 */
export function simulate(
  workload: Workload,
  policy: PolicyName | OrderingPolicy,
  options: SimulateOptions = {},
): ServedOutcome[] {
  const queue = options.queue ?? 0;
  if (!Number.isSafeInteger(queue) || queue < 0 || queue > MAX_QUEUE) {
    const detail = `A whole number from 0 to ${MAX_QUEUE} was expected.`;
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'queue', detail });
  }
  const cache = options.cache ?? new VllmBlockCache();
  cache.clear();
  const history = new ServedHistory({ evictsLeastRecent: cache.evictsLeastRecent });
  const latency = options.latency ?? RTX_4090;
  const clock = options.clock ?? (() => 0);
  const preamble: Preamble = workload.preamble;
  const { requests } = workload;
  return requests.map((request, number) => {
    const waiting = requests.slice(number + 1, number + 1 + queue).map(({ documents }) => documents);
    const started = clock();
    const arrangement = arrange(
      { documents: request.documents, preamble, policy, hints: false, waiting },
      history,
      number,
    );
    const arrangeMs = clock() - started;
    const { fellBack } = arrangement.trace;
    if (fellBack !== undefined) throw new WarmpathError(fellBack, { path: `requests[${number}]` });
    const prompt = promptOf(workload, request, arrangement);
    const tokens = promptTokens(prompt);
    observe({ kind: 'dispatched', arrangement, now: number }, history);
    const cachedTokens = cache.serve(prompt);
    const report = options.reportsCachedTokens === false ? {} : { cachedTokens, promptTokens: tokens };
    observe({ kind: 'completed', arrangement, now: number, ...report }, history);
    return {
      documents: request.documents.length,
      cachedDocuments: countCached(preamble.tokens, arrangement.documents, {
        cachedTokens,
        granularity: cache.granularity,
      }),
      promptTokens: tokens,
      cachedTokens,
      ttftMs: latency(cachedTokens, tokens - cachedTokens),
      arrangeMs,
    };
  });
}

function promptOf(workload: Workload, request: WorkloadRequest, arrangement: Arrangement): CachedPrompt {
  return { spans: [workload.preamble, ...arrangement.documents, request.question] };
}

/** Documents whose end the cached tokens reach, but for the part of a last block that a cache of blocks cannot hold. */
function countCached(
  preambleTokens: number,
  documents: readonly Document[],
  reuse: { readonly cachedTokens: number; readonly granularity: number },
): number {
  let end = preambleTokens;
  let count = 0;
  for (const { tokens } of documents) {
    const start = end;
    end += tokens;
    if (reuse.cachedTokens <= start || end - reuse.cachedTokens >= reuse.granularity) break;
    count++;
  }
  return count;
}
