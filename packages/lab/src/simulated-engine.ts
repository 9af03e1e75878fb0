import {
  arrange,
  type CostModel,
  type Document,
  type OrderingPolicy,
  observe,
  type PolicyName,
  type Preamble,
  ServedHistory,
  WarmpathError,
} from '@warmpath/core';
import { type PrefixCacheModel, promptTokens } from './cache/prefix-cache.js';
import { VllmBlockCache } from './cache/vllm-blocks.js';
import { RTX_4090 } from './latency.js';
import type { WorkloadRequest } from './workloads/workload.js';

export interface SimulatedEngineOptions {
  /** The engine's cache; it is cleared first. Default: vLLM's blocks, unlimited. */
  readonly cache?: PrefixCacheModel;
  /** Whether the engine reports cached tokens, which correct the history. Default true. */
  readonly reportsCachedTokens?: boolean;
  /** Time to the first token. Default: the fit to the papers' RTX 4090. */
  readonly latency?: CostModel;
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
  /** From the request's arrival to its first token: prefill, and the wait before it where arrivals are simulated. */
  readonly ttftMs: number;
  /** Time that `arrange` took. */
  readonly arrangeMs: number;
}

/** Where and when a request is served. */
export interface Dispatch {
  /** Place in the workload, for errors. */
  readonly number: number;
  /** Documents of the requests known to come next. */
  readonly waiting: readonly (readonly Document[])[];
  /** Milliseconds of virtual time. */
  readonly now: number;
}

/** One engine with its history: the real `arrange` and `observe` of the core around a simulated cache. */
export class SimulatedEngine {
  readonly #preamble: Preamble;
  readonly #policy: PolicyName | OrderingPolicy;
  readonly #cache: PrefixCacheModel;
  readonly #history: ServedHistory;
  readonly #latency: CostModel;
  readonly #clock: () => number;
  readonly #reportsCachedTokens: boolean;

  constructor(preamble: Preamble, policy: PolicyName | OrderingPolicy, options: SimulatedEngineOptions = {}) {
    this.#preamble = preamble;
    this.#policy = policy;
    this.#cache = options.cache ?? new VllmBlockCache();
    this.#cache.clear();
    this.#history = new ServedHistory({ evictsLeastRecent: this.#cache.evictsLeastRecent });
    this.#latency = options.latency ?? RTX_4090;
    this.#clock = options.clock ?? (() => 0);
    this.#reportsCachedTokens = options.reportsCachedTokens ?? true;
  }

  /**
   * Arranges and prefills one request. Errors: whatever made the policy fall back to retrieval order (a comparison must
   * not hide that), and those of the cache. Cost: that of the policy and O(tokens / granularity).
   */
  serve(request: WorkloadRequest, { number, waiting, now }: Dispatch): ServedOutcome {
    const preamble = this.#preamble;
    const question = { documents: request.documents, preamble, policy: this.#policy, hints: false, waiting };
    const started = this.#clock();
    const arrangement = arrange(question, this.#history, now);
    const arrangeMs = this.#clock() - started;
    const { fellBack } = arrangement.trace;
    if (fellBack !== undefined) throw new WarmpathError(fellBack, { path: `requests[${number}]` });
    const prompt = { spans: [preamble, ...arrangement.documents, request.question] };
    const tokens = promptTokens(prompt);
    observe({ kind: 'dispatched', arrangement, now }, this.#history);
    const cachedTokens = this.#cache.serve(prompt);
    const report = this.#reportsCachedTokens ? { cachedTokens, promptTokens: tokens } : {};
    observe({ kind: 'completed', arrangement, now, ...report }, this.#history);
    const reuse = { cachedTokens, granularity: this.#cache.granularity };
    return {
      documents: request.documents.length,
      cachedDocuments: countCached(preamble.tokens, arrangement.documents, reuse),
      promptTokens: tokens,
      cachedTokens,
      ttftMs: this.#latency.prefillMs(cachedTokens, tokens - cachedTokens),
      arrangeMs,
    };
  }
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
