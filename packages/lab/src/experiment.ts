import type { PolicyName } from '@warmpath/core';
import { seenBeforeShare } from './bounds.js';
import type { PrefixCacheModel } from './cache/prefix-cache.js';
import { type SimulateOptions, simulate, simulateArrivals } from './simulate.js';
import type { ServedOutcome } from './simulated-engine.js';
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
  /**
   * Poisson arrivals at this multiple of the rate that retrieval order can just serve; policies then know of the requests
   * that are really waiting, at most `queue`, and TTFT counts the wait. Default: each request comes when the one before is done.
   */
  readonly load?: number;
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
  /** Present where arrivals were simulated. */
  readonly load?: number;
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

/** Keeps the arrivals' draws apart from those of the workload of the same seed. */
const ARRIVALS_SEED = 2 ** 32;

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
    const perSecond = this.#arrivalRate(workload);
    const outcomes = new Map(
      policies.map((policy) => {
        if (perSecond === undefined) return [policy, simulate(workload, policy, this.#simulation(queue))];
        return [
          policy,
          simulateArrivals(workload, policy, { perSecond, seed: ARRIVALS_SEED + seed }, this.#simulation(queue)),
        ];
      }),
    );
    // `exact` finds what trying every permutation finds, for more documents too.
    const oracle = simulate(workload, 'exact', this.#simulation(0));
    this.#done.push({
      seed,
      requests: workload.requests.length,
      jaccard: meanAdjacentJaccard(workload.requests),
      seenBefore: seenBeforeShare(workload, warmUp),
      oracle: documentShare(oracle.slice(warmUp)),
      outcomes: new Map([...outcomes].map(([policy, served]) => [policy, served.slice(warmUp)])),
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

  /** Requests a second for the load asked for; undefined for none. */
  #arrivalRate(workload: Workload): number | undefined {
    const { load } = this.#settings;
    if (load === undefined) return undefined;
    const service = mean(simulate(workload, 'retrieval', this.#simulation(0)).map(({ ttftMs }) => ttftMs));
    return (load * 1_000) / service;
  }

  #simulation(queue: number): SimulateOptions {
    return { cache: this.#settings.cache.create(), queue, clock: this.#settings.clock };
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
      ...(this.#settings.load !== undefined && { load: this.#settings.load }),
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
