import type { PolicyName } from '@warmpath/core';
import { seenBeforeShare } from './bounds.js';
import type { PrefixCacheModel } from './cache/prefix-cache.js';
import { type ServedOutcome, simulate } from './simulate.js';
import { type Estimate, estimate, mean, percentile } from './statistics.js';
import { meanAdjacentJaccard } from './workloads/trace.js';
import type { Workload } from './workloads/workload.js';

/** What to compare, on what. */
export interface ExperimentSettings {
  /** Name of the workload in the report. */
  readonly workload: string;
  /** The workload for a seed. */
  readonly create: (seed: number) => Workload;
  readonly policies: readonly PolicyName[];
  readonly seeds: readonly number[];
  /** Coming requests that policies may know of. */
  readonly queue: number;
  /** The engine's cache as the report calls it, and as it is made. */
  readonly cache: { readonly name: string; readonly create: () => PrefixCacheModel };
  /** Requests at the start of each run that are served but not counted. Default 0. */
  readonly warmUp?: number;
  /** Milliseconds of a monotonic clock, to time `arrange`. */
  readonly clock: () => number;
}

/** One policy's figures over all seeds. */
export interface PolicyResult {
  readonly policy: PolicyName;
  readonly queue: number;
  readonly cache: string;
  /** Seeds that are in the figures. */
  readonly seeds: readonly number[];
  /** Mean over requests of the share of documents reused, then over seeds. */
  readonly cachedDocumentShare: Estimate;
  /** Reused tokens over all prompt tokens, by seed. */
  readonly cachedTokenShare: Estimate;
  /** Prompt tokens of a request that had to be computed, over the requests of all seeds. */
  readonly uncachedTokens: { readonly mean: number; readonly p50: number };
  readonly ttftMs: { readonly p50: number; readonly p95: number; readonly p99: number; readonly mean: number };
  readonly arrangeUs: { readonly p50: number; readonly p99: number };
}

/** The report of an experiment. */
export interface ExperimentReport {
  readonly workload: string;
  /** Requests of one seed. */
  readonly requests: number;
  /** Mean adjacent Jaccard similarity, over seeds. */
  readonly jaccard: number;
  readonly results: readonly PolicyResult[];
  /** Shares of documents, over seeds. */
  readonly bounds: {
    /** Reuse at any position: no order of prefixes passes it. */
    readonly seenBefore: number;
    /** The best order of each request by itself, on the same cache, with nothing known of coming requests. */
    readonly oracle: number;
  };
}

interface SeedFigures {
  readonly seed: number;
  readonly requests: number;
  readonly jaccard: number;
  readonly seenBefore: number;
  readonly oracle: number;
  readonly outcomes: ReadonlyMap<PolicyName, readonly ServedOutcome[]>;
}

/**
 * Compares policies on a workload, seed by seed: `step` does one seed, `report` sums up the seeds that are done, so a long
 * experiment can show progress and can be stopped without losing what it has. Deterministic but for `arrangeUs`.
 */
export class Experiment {
  readonly #settings: ExperimentSettings;
  readonly #done: SeedFigures[] = [];

  constructor(settings: ExperimentSettings) {
    this.#settings = settings;
  }

  /** Seeds that are done. */
  get done(): number {
    return this.#done.length;
  }

  /** Does the next seed; false when all are done. Errors: those of `simulate`. */
  step(): boolean {
    const seed = this.#settings.seeds[this.#done.length];
    if (seed === undefined) return false;
    const { create, policies, queue, warmUp = 0 } = this.#settings;
    const workload = create(seed);
    const outcomes = new Map(policies.map((policy) => [policy, this.#serve(workload, policy, queue)]));
    // `exact` finds what trying every permutation finds, for more documents too.
    const oracle = (queue === 0 ? outcomes.get('exact') : undefined) ?? this.#serve(workload, 'exact', 0);
    this.#done.push({
      seed,
      requests: workload.requests.length,
      jaccard: meanAdjacentJaccard(workload.requests),
      seenBefore: seenBeforeShare(workload, warmUp),
      oracle: documentShare(oracle),
      outcomes,
    });
    return true;
  }

  /** What the seeds done so far amount to; zeros before the first. */
  report(): ExperimentReport {
    const done = this.#done;
    return {
      workload: this.#settings.workload,
      requests: done[0]?.requests ?? 0,
      jaccard: mean(done.map(({ jaccard }) => jaccard)),
      results: this.#settings.policies.map((policy) => this.#resultOf(policy)),
      bounds: {
        seenBefore: mean(done.map(({ seenBefore }) => seenBefore)),
        oracle: mean(done.map(({ oracle }) => oracle)),
      },
    };
  }

  #serve(workload: Workload, policy: PolicyName, queue: number): readonly ServedOutcome[] {
    const { cache, clock, warmUp = 0 } = this.#settings;
    return simulate(workload, policy, { cache: cache.create(), queue, clock }).slice(warmUp);
  }

  #resultOf(policy: PolicyName): PolicyResult {
    const bySeed = this.#done.map(({ outcomes }) => outcomes.get(policy)!);
    const all = bySeed.flat();
    const uncached = all.map(({ promptTokens, cachedTokens }) => promptTokens - cachedTokens);
    const ttft = all.map(({ ttftMs }) => ttftMs);
    const arrangeUs = all.map(({ arrangeMs }) => 1_000 * arrangeMs);
    return {
      policy,
      queue: this.#settings.queue,
      cache: this.#settings.cache.name,
      seeds: this.#done.map(({ seed }) => seed),
      cachedDocumentShare: estimate(bySeed.map(documentShare)),
      cachedTokenShare: estimate(bySeed.map(tokenShare)),
      uncachedTokens: { mean: mean(uncached), p50: percentile(uncached, 0.5) },
      ttftMs: {
        p50: percentile(ttft, 0.5),
        p95: percentile(ttft, 0.95),
        p99: percentile(ttft, 0.99),
        mean: mean(ttft),
      },
      arrangeUs: { p50: percentile(arrangeUs, 0.5), p99: percentile(arrangeUs, 0.99) },
    };
  }
}

function documentShare(outcomes: readonly ServedOutcome[]): number {
  const counted = outcomes.filter(({ documents }) => documents > 0);
  return mean(counted.map(({ cachedDocuments, documents }) => cachedDocuments / documents));
}

function tokenShare(outcomes: readonly ServedOutcome[]): number {
  const total = outcomes.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  return total === 0 ? 0 : outcomes.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0) / total;
}
