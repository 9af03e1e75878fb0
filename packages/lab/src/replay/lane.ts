import type { CostModel } from '@warmpath/core/internal';
import type { PrefixCacheModel } from '../cache/prefix-cache.js';
import type { LabPolicyName } from '../ordering/lab-policies.js';
import { SimulatedEngine } from '../simulated-engine.js';
import type { PromptSpan, WorkloadRequest } from '../workloads/workload.js';
import type { ReplayResult } from './replay-report.js';
import { isTooLong, ReuseSums } from './reuse-sums.js';

/** One policy on one cache. */
export interface LaneSettings {
  readonly policy: LabPolicyName;
  /** The cache as the report calls it. */
  readonly name: string;
  readonly cache: PrefixCacheModel;
  readonly preamble: PromptSpan;
  /** Coming requests that are looked at; see `SimulateOptions`. */
  readonly queue: number;
  readonly latency: CostModel;
  readonly clock: () => number;
}

/** Where a request stands in a replay. */
export interface LaneDispatch {
  readonly number: number;
  /** The requests that come next, as far as they were read. */
  readonly coming: readonly WorkloadRequest[];
  /** Whether it goes into the figures. */
  readonly isCounted: boolean;
}

/** Serves every request of a replay with one policy on one cache, and sums up in constant memory. */
export class Lane {
  readonly name: string;
  readonly policy: LabPolicyName;
  readonly #settings: LaneSettings;
  readonly #engine: SimulatedEngine;
  readonly #sums = new ReuseSums();

  constructor(settings: LaneSettings) {
    this.#settings = settings;
    this.name = settings.name;
    this.policy = settings.policy;
    const { preamble, policy, cache, latency, clock } = settings;
    this.#engine = new SimulatedEngine(preamble, policy, { cache, latency, clock });
  }

  /** Serves a request; one that the engine's memory cannot hold is left out, as the engine would refuse it. */
  serve(request: WorkloadRequest, { number, coming, isCounted }: LaneDispatch): void {
    const { cache, preamble } = this.#settings;
    if (isTooLong(request, preamble.tokens, cache)) {
      if (isCounted) this.#sums.addTooLong();
      return;
    }
    const next = coming.slice(0, this.#settings.queue);
    const outcome = this.#engine.serve(request, { number, coming: next, now: number });
    if (isCounted) this.#sums.add(outcome);
  }

  result(): ReplayResult {
    return this.#sums.result(this.#settings);
  }
}
