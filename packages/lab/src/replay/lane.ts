import type { CostModel, Document, PolicyName } from '@warmpath/core';
import type { PrefixCacheModel } from '../cache/prefix-cache.js';
import { type ServedOutcome, SimulatedEngine } from '../simulated-engine.js';
import type { PromptSpan, WorkloadRequest } from '../workloads/workload.js';
import { Distribution } from './distribution.js';
import type { ReplayResult } from './replay-report.js';

/** One policy on one cache. */
export interface LaneSettings {
  readonly policy: PolicyName;
  /** The cache as the report calls it. */
  readonly name: string;
  readonly cache: PrefixCacheModel;
  readonly preamble: PromptSpan;
  /** Coming requests that the policy may know of. */
  readonly queue: number;
  readonly latency: CostModel;
  readonly clock: () => number;
}

/** Where a request stands in a replay. */
export interface LaneDispatch {
  readonly number: number;
  readonly waiting: readonly (readonly Document[])[];
  /** Whether it goes into the figures. */
  readonly isCounted: boolean;
}

const ENGINES: Readonly<Record<string, string>> = {
  'vllm-blocks': 'vLLM',
  'sglang-radix': 'SGLang',
  'llama-slots': 'llama-server',
  off: 'no cache',
};

/** Serves every request of a replay with one policy on one cache, and sums up in constant memory. */
export class Lane {
  readonly name: string;
  readonly policy: PolicyName;
  readonly #settings: LaneSettings;
  readonly #engine: SimulatedEngine;
  readonly #uncached = new Distribution();
  readonly #ttft = new Distribution();
  readonly #arrange = new Distribution();
  #tooLong = 0;
  #cachedTokens = 0;
  #documentShares = 0;
  #withDocuments = 0;

  constructor(settings: LaneSettings) {
    this.#settings = settings;
    this.name = settings.name;
    this.policy = settings.policy;
    const { preamble, policy, cache, latency, clock } = settings;
    this.#engine = new SimulatedEngine(preamble, policy, { cache, latency, clock });
  }

  /** Serves a request; one that the engine's memory cannot hold is left out, as the engine would refuse it. */
  serve(request: WorkloadRequest, { number, waiting, isCounted }: LaneDispatch): void {
    if (this.#isTooLong(request)) {
      if (isCounted) this.#tooLong++;
      return;
    }
    const known = waiting.slice(0, this.#settings.queue);
    const outcome = this.#engine.serve(request, { number, waiting: known, now: number });
    if (isCounted) this.#count(outcome);
  }

  result(): ReplayResult {
    const { cache } = this.#settings;
    const promptTokens = this.#uncached.sum + this.#cachedTokens;
    return {
      policy: this.policy,
      cache: this.name,
      engine: ENGINES[cache.name] ?? cache.name,
      capacityTokens: Number.isFinite(cache.capacityTokens) ? cache.capacityTokens : null,
      requests: this.#uncached.count,
      tooLong: this.#tooLong,
      cachedDocumentShare: this.#withDocuments === 0 ? 0 : this.#documentShares / this.#withDocuments,
      cachedTokenShare: promptTokens === 0 ? 0 : this.#cachedTokens / promptTokens,
      uncachedTokens: {
        total: this.#uncached.sum,
        mean: this.#uncached.mean,
        p50: Math.round(this.#uncached.percentile(0.5)),
      },
      ttftMs: {
        p50: this.#ttft.percentile(0.5),
        p95: this.#ttft.percentile(0.95),
        p99: this.#ttft.percentile(0.99),
        mean: this.#ttft.mean,
      },
      arrangeUs: { p50: this.#arrange.percentile(0.5), p99: this.#arrange.percentile(0.99) },
    };
  }

  #isTooLong({ documents, question }: WorkloadRequest): boolean {
    const { cache, preamble } = this.#settings;
    if (cache.capacityTokens === 0) return false;
    const tokens = documents.reduce((sum, document) => sum + document.tokens, preamble.tokens + question.tokens);
    return tokens > cache.capacityTokens;
  }

  #count(outcome: ServedOutcome): void {
    this.#uncached.add(outcome.promptTokens - outcome.cachedTokens);
    this.#ttft.add(outcome.ttftMs);
    this.#arrange.add(1_000 * outcome.arrangeMs);
    this.#cachedTokens += outcome.cachedTokens;
    if (outcome.documents === 0) return;
    this.#withDocuments++;
    this.#documentShares += outcome.cachedDocuments / outcome.documents;
  }
}
