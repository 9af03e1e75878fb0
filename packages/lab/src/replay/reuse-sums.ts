import type { PrefixCacheModel } from '../cache/prefix-cache.js';
import type { LabPolicyName } from '../ordering/lab-policies.js';
import type { ServedOutcome } from '../simulated-engine.js';
import { WARM_UP_CALLS } from '../statistics.js';
import type { WorkloadRequest } from '../workloads/workload.js';
import type { ReplayResult } from './replay-report.js';

/** Ratio of neighbouring bounds: a percentile is off by half of it at most. */
const STEP = 1.01;
const LOG_STEP = Math.log(STEP);

/**
 * Mean and percentiles of any number of values of 0 or more in constant memory: the mean exact, percentiles within half
 * a percent, from counts in steps of one percent. 0 and values below 0.001 count as 0.
 */
export class Distribution {
  /** By step; the first stands for 0. */
  readonly #counts = new Map<number, number>();
  #count = 0;
  #sum = 0;

  get count(): number {
    return this.#count;
  }

  get sum(): number {
    return this.#sum;
  }

  /** 0 for no values. */
  get mean(): number {
    return this.#count === 0 ? 0 : this.#sum / this.#count;
  }

  /** O(1). */
  add(value: number): void {
    const step = value < 0.001 ? -1 : Math.round(Math.log(value / 0.001) / LOG_STEP);
    this.#counts.set(step, (this.#counts.get(step) ?? 0) + 1);
    this.#count++;
    this.#sum += value;
  }

  /** The value at `floor(n × share)` of the sorted list, within half a percent; 0 for none. O(steps log steps). */
  percentile(share: number): number {
    const place = Math.min(this.#count - 1, Math.floor(this.#count * share));
    let before = 0;
    for (const step of [...this.#counts.keys()].sort((a, b) => a - b)) {
      before += this.#counts.get(step)!;
      if (before > place) return step < 0 ? 0 : 0.001 * STEP ** step;
    }
    return 0;
  }
}

const ENGINES: Readonly<Record<string, string>> = {
  'vllm-blocks': 'vLLM',
  'sglang-radix': 'SGLang',
  'llama-slots': 'llama-server',
  off: 'no cache',
};

/** Whose sums they are. */
export interface SummedRun {
  readonly policy: LabPolicyName;
  /** The cache as the report calls it. */
  readonly name: string;
  readonly cache: PrefixCacheModel;
}

/** What one policy got from one cache, summed up in constant memory. */
export class ReuseSums {
  readonly #uncached = new Distribution();
  readonly #ttft = new Distribution();
  #arrange = new Distribution();
  #tooLong = 0;
  #cachedTokens = 0;
  #documentShares = 0;
  #withDocuments = 0;

  add(outcome: ServedOutcome): void {
    this.#uncached.add(outcome.promptTokens - outcome.cachedTokens);
    this.#ttft.add(outcome.ttftMs);
    // The first calls compile; a log shorter than that shows them all the same.
    if (this.#uncached.count === WARM_UP_CALLS) this.#arrange = new Distribution();
    this.#arrange.add(1_000 * outcome.arrangeMs);
    this.#cachedTokens += outcome.cachedTokens;
    if (outcome.documents === 0) return;
    this.#withDocuments++;
    this.#documentShares += outcome.cachedDocuments / outcome.documents;
  }

  /** A request that the engine's memory cannot hold. */
  addTooLong(): void {
    this.#tooLong++;
  }

  result({ policy, name, cache }: SummedRun): ReplayResult {
    const promptTokens = this.#uncached.sum + this.#cachedTokens;
    const ttft = this.#ttft;
    return {
      policy,
      cache: name,
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
      ttftMs: { p50: ttft.percentile(0.5), p95: ttft.percentile(0.95), p99: ttft.percentile(0.99), mean: ttft.mean },
      arrangeUs: { p50: this.#arrange.percentile(0.5), p99: this.#arrange.percentile(0.99) },
    };
  }
}

/** Whether a prompt has more tokens than the engine's memory, which would refuse it. O(k). */
export function isTooLong(
  { documents, question }: WorkloadRequest,
  preambleTokens: number,
  { capacityTokens }: PrefixCacheModel,
): boolean {
  // Without a cache, nothing is held and nothing is too long.
  if (capacityTokens === 0) return false;
  return documents.reduce((sum, { tokens }) => sum + tokens, preambleTokens + question.tokens) > capacityTokens;
}
