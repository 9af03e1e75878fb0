import { WarmpathError } from '@warmpath/core';
import type { CostModel } from '@warmpath/core/internal';
import type { OfflineBound, OfflineSolver } from './bounds/offline.js';
import { seenBeforeShare } from './bounds/seen-before.js';
import type { PrefixCacheModel } from './cache/prefix-cache.js';
import type { ConversationLayout } from './conversations.js';
import type { LabPolicyName } from './ordering/lab-policies.js';
import { type ServerFigures, type ServerOutcome, serverFigures } from './server/outcome.js';
import { meanFigures, type PreparedServer, prepareServer, type ServerSettings } from './server/settings.js';
import { type SimulateOptions, simulate } from './simulate.js';
import type { ServedOutcome } from './simulated-engine.js';
import { type Estimate, estimate, mean, percentile, settledTimes } from './statistics.js';
import { meanAdjacentJaccard } from './workloads/trace.js';
import type { Workload } from './workloads/workload.js';

/** Mean over the requests with documents of the share of their documents that was reused. O(n). */
function documentShare(outcomes: readonly ServedOutcome[]): number {
  const counted = outcomes.filter(({ documents }) => documents > 0);
  return mean(counted.map(({ cachedDocuments, documents }) => cachedDocuments / documents));
}

/** Reused tokens over all prompt tokens; 0 for none. O(n). */
function tokenShare(outcomes: readonly ServedOutcome[]): number {
  const total = outcomes.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  return total === 0 ? 0 : outcomes.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0) / total;
}

/** What to compare, on what. */
export interface ExperimentSettings {
  /** Name of the workload in the report. */
  readonly workload: string;
  /** The workload for a seed. */
  readonly create: (seed: number) => Workload;
  readonly policies: readonly LabPolicyName[];
  readonly seeds: readonly number[];
  /** Coming requests that are looked at; see `SimulateOptions`. */
  readonly queue: number;
  /** The engine's cache as the report calls it, and as it is made. */
  readonly cache: { readonly name: string; readonly create: () => PrefixCacheModel };
  /**
   * A server with clients, in virtual time: policies then know of the requests that are really waiting, at most
   * `queue`, and TTFT counts the wait. Default: each request comes when the one before is done, and of the next `queue`
   * those are known that could be waiting.
   */
  readonly server?: ServerSettings;
  /** Time of prefilling. Default: the fit to the papers' RTX 4090. */
  readonly latency?: CostModel;
  /** Requests at the start of each run that are served but not counted. Default 0. */
  readonly warmUp?: number;
  /** Where the earlier turns of a conversation stand. Default `documents-first`. */
  readonly conversations?: ConversationLayout;
  /**
   * Finds the offline bound of a seed (`loadOfflineSolver`); counts every request, so there must be no warm-up.
   * Default: none.
   */
  readonly offline?: OfflineSolver;
  /** Milliseconds of a monotonic clock, to time `arrange`. */
  readonly clock: () => number;
}

/** One policy's figures over all seeds. */
export interface PolicyResult {
  readonly policy: LabPolicyName;
  readonly queue: number;
  readonly cache: string;
  /** Present where requests came at a multiple of what retrieval order can serve. */
  readonly load?: number;
  /** Seeds that are in the figures. */
  readonly seeds: readonly number[];
  /** Mean over requests of the share of documents reused, then over seeds. */
  readonly cachedDocumentShare: Estimate;
  /** Reused tokens over all prompt tokens, by seed. */
  readonly cachedTokenShare: Estimate;
  /**
   * How much larger both are than those of the first policy, seed by seed: what a comparison goes by. Not of the first.
   */
  readonly difference?: {
    readonly cachedDocumentShare: Estimate;
    readonly cachedTokenShare: Estimate;
    /** Of the mean times to the first token. */
    readonly ttftMs: Estimate;
  };
  /** Prompt tokens of a request that had to be computed, over the requests of all seeds. */
  readonly uncachedTokens: { readonly mean: number; readonly p50: number };
  readonly ttftMs: { readonly p50: number; readonly p95: number; readonly p99: number; readonly mean: number };
  /** Without the first calls, which compile (`settledTimes`). */
  readonly arrangeUs: { readonly p50: number; readonly p99: number };
  /** Present where a server was simulated: means over seeds of each run's figures. */
  readonly server?: ServerFigures;
}

/** The report of an experiment. */
export interface ExperimentReport {
  readonly workload: string;
  /** Requests of one seed. */
  readonly requests: number;
  /** Mean adjacent Jaccard similarity, over seeds. */
  readonly jaccard: number;
  /** The server that was simulated, if one was. */
  readonly server?: ServerSettings;
  readonly results: readonly PolicyResult[];
  /** Shares of documents, over seeds. */
  readonly bounds: {
    /** Reuse at any position: no order of prefixes passes it. */
    readonly seenBefore: number;
    /** The best order of each request by itself, on the same cache, with nothing known of coming requests. */
    readonly oracle: number;
    /**
     * The best orders of all requests together, on a cache that forgets nothing, as a share of the documents' tokens:
     * its value where it was proven for every seed, else what is known of it. Only where it was asked for.
     */
    readonly offline?: { readonly value: number } | OfflineBound;
  };
}

/** What one seed came to. Plain data: it can be written down as JSON, read back, and given to another `Experiment`. */
export interface SeedFigures {
  readonly seed: number;
  readonly requests: number;
  readonly jaccard: number;
  readonly seenBefore: number;
  readonly oracle: number;
  readonly offline?: OfflineBound;
  /** By policy, the outcome of every request that counts. */
  readonly outcomes: Readonly<Partial<Record<LabPolicyName, readonly ServedOutcome[]>>>;
  /** By policy, where a server was simulated. */
  readonly servers?: Readonly<Partial<Record<LabPolicyName, ServerFigures>>>;
}

/**
 * Compares policies on a workload, seed by seed: `step` does one seed, `report` sums up the seeds that are done, so a
 * long experiment can show progress, can be stopped without losing what it has, and can be gone on with later.
 * Deterministic but for `arrangeUs`.
 */
export class Experiment {
  readonly #settings: ExperimentSettings;
  readonly #done: SeedFigures[];

  /**
   * @param done seeds that another experiment of the same settings did: the first of `settings.seeds`, in their order.
   *   Error:
   *   `WARMPATH_INVALID_REQUEST` with a path if they are others, or lack a policy.
   */
  constructor(settings: ExperimentSettings, done: readonly SeedFigures[] = []) {
    for (const [i, figures] of done.entries()) requireContinuation(settings, figures, i);
    this.#settings = settings;
    this.#done = [...done];
  }

  /** Seeds that are done. */
  get done(): readonly SeedFigures[] {
    return this.#done;
  }

  /** Does the next seed and answers with its figures; `undefined` when all are done. Errors: those of `simulate`. */
  step(): SeedFigures | undefined {
    const seed = this.#settings.seeds[this.#done.length];
    if (seed === undefined) return undefined;
    const { create, policies, warmUp = 0, offline, server: settings } = this.#settings;
    const workload = create(seed);
    const server = settings && prepareServer(workload, settings, seed, this.#runOptions(0));
    const runs = policies.map((policy) => [policy, this.#run(workload, policy, server)] as const);
    // `exact` finds what trying every permutation finds, for more documents too.
    const oracle = simulate(workload, 'exact', this.#simulation(0));
    const figures: SeedFigures = {
      seed,
      requests: workload.requests.length,
      jaccard: meanAdjacentJaccard(workload.requests),
      seenBefore: seenBeforeShare(workload, warmUp),
      oracle: documentShare(oracle.slice(warmUp)),
      ...(offline !== undefined && { offline: offline(workload) }),
      outcomes: Object.fromEntries(runs.map(([policy, { outcomes }]) => [policy, outcomes])),
      ...(server && { servers: Object.fromEntries(runs.map(([policy, { figures }]) => [policy, figures])) }),
    };
    this.#done.push(figures);
    return figures;
  }

  /** What the seeds done so far amount to; zeros before the first. */
  report(): ExperimentReport {
    const done = this.#done;
    return {
      workload: this.#settings.workload,
      requests: done[0]?.requests ?? 0,
      jaccard: mean(done.map(({ jaccard }) => jaccard)),
      ...(this.#settings.server && { server: this.#settings.server }),
      results: this.#settings.policies.map((policy) => this.#resultOf(policy)),
      bounds: {
        seenBefore: mean(done.map(({ seenBefore }) => seenBefore)),
        oracle: mean(done.map(({ oracle }) => oracle)),
        ...offlineOf(done),
      },
    };
  }

  /** One policy on one workload: the outcomes that count, and the server's figures if there is one. */
  #run(workload: Workload, policy: LabPolicyName, server: PreparedServer | undefined): PolicyRun {
    const { queue, warmUp = 0 } = this.#settings;
    if (server === undefined) {
      const served = simulate(workload, policy, this.#simulation(queue));
      return { outcomes: served.slice(warmUp), figures: undefined };
    }
    const run = server.run(policy, this.#runOptions(queue));
    return { outcomes: run.outcomes.slice(warmUp).map(servedOutcome), figures: serverFigures(run, warmUp) };
  }

  #simulation(queue: number): SimulateOptions {
    const { createCache, ...options } = this.#runOptions(queue);
    return { ...options, cache: createCache() };
  }

  #runOptions(queue: number) {
    const { cache, clock, conversations, latency } = this.#settings;
    return {
      createCache: cache.create,
      queue,
      clock,
      ...(conversations !== undefined && { conversations }),
      ...(latency !== undefined && { latency }),
    };
  }

  /**
   * Both shares and the mean TTFT minus those of the first policy, by seed; what two policies have in common (the seed)
   * cancels out.
   */
  #differenceOf(policy: LabPolicyName): PolicyResult['difference'] {
    const first = this.#settings.policies[0]!;
    if (policy === first) return undefined;
    const difference = (figure: (outcomes: readonly ServedOutcome[]) => number) =>
      estimate(this.#done.map(({ outcomes }) => figure(outcomes[policy]!) - figure(outcomes[first]!)));
    return {
      cachedDocumentShare: difference(documentShare),
      cachedTokenShare: difference(tokenShare),
      ttftMs: difference((outcomes) => mean(outcomes.map(({ ttftMs }) => ttftMs))),
    };
  }

  #resultOf(policy: LabPolicyName): PolicyResult {
    const bySeed = this.#done.map(({ outcomes }) => outcomes[policy]!);
    const difference = this.#differenceOf(policy);
    const all = bySeed.flat();
    const uncached = all.map(({ promptTokens, cachedTokens }) => promptTokens - cachedTokens);
    const ttft = all.map(({ ttftMs }) => ttftMs);
    const arrangeUs = settledTimes(all.map(({ arrangeMs }) => 1_000 * arrangeMs));
    return {
      policy,
      queue: this.#settings.queue,
      cache: this.#settings.cache.name,
      ...loadOf(this.#settings.server),
      seeds: this.#done.map(({ seed }) => seed),
      cachedDocumentShare: estimate(bySeed.map(documentShare)),
      cachedTokenShare: estimate(bySeed.map(tokenShare)),
      ...(difference !== undefined && { difference }),
      uncachedTokens: { mean: mean(uncached), p50: percentile(uncached, 0.5) },
      ttftMs: {
        p50: percentile(ttft, 0.5),
        p95: percentile(ttft, 0.95),
        p99: percentile(ttft, 0.99),
        mean: mean(ttft),
      },
      arrangeUs: { p50: percentile(arrangeUs, 0.5), p99: percentile(arrangeUs, 0.99) },
      ...(this.#settings.server && { server: meanFigures(this.#done.map(({ servers }) => servers![policy]!)) }),
    };
  }
}

interface PolicyRun {
  readonly outcomes: readonly ServedOutcome[];
  readonly figures: ServerFigures | undefined;
}

function loadOf(server: ServerSettings | undefined): { readonly load?: number } {
  const load = server && 'load' in server.clients ? server.clients.load : undefined;
  return load === undefined ? {} : { load };
}

/** What reports are made from: the server's own times are in its figures. */
function servedOutcome({
  number: _,
  arrivedMs: _a,
  startedMs: _s,
  doneMs: _d,
  answerTokens: _t,
  ...served
}: ServerOutcome) {
  return served;
}

function requireContinuation({ seeds, policies }: ExperimentSettings, figures: SeedFigures, i: number): void {
  const invalid = (path: string, detail: string) => new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
  if (figures.seed !== seeds[i]) {
    const asked = seeds[i] === undefined ? 'is none' : `is ${seeds[i]}`;
    throw invalid(
      `done[${i}].seed`,
      `seed ${figures.seed} is done, but number ${i + 1} of the seeds asked for ${asked}`,
    );
  }
  const missing = policies.find((policy) => figures.outcomes[policy] === undefined);
  if (missing !== undefined) throw invalid(`done[${i}].outcomes`, `there is nothing about ${missing}`);
}

/** The offline bound over seeds; nothing if it was not asked for, or a seed that was done before lacks it. */
function offlineOf(done: readonly SeedFigures[]): Pick<ExperimentReport['bounds'], 'offline'> {
  const bounds = done.flatMap(({ offline }) => offline ?? []);
  if (bounds.length === 0 || bounds.length < done.length) return {};
  const low = mean(bounds.map((bound) => bound.low));
  const high = mean(bounds.map((bound) => bound.high));
  return { offline: bounds.every((bound) => bound.low === bound.high) ? { value: low } : { low, high } };
}

/** A policy's figures in the detail that a plot needs. */
export interface PolicySeries {
  readonly policy: LabPolicyName;
  /** Percentiles 0 to 100 of the milliseconds to the first token, over the requests of all seeds. */
  readonly ttftMs: readonly number[];
  /** By stretch of the run: reused tokens over all prompt tokens, mean over seeds. */
  readonly cachedTokenShare: readonly number[];
}

/** An experiment in the detail that plots need. */
export interface ExperimentSeries {
  /** Number of the last request of each stretch of the run, counted from 1 after the warm-up. */
  readonly stretchEnds: readonly number[];
  readonly policies: readonly PolicySeries[];
}

/** Stretches that a run is cut into, at most. */
const STRETCHES = 20;

/** The series of the seeds that are done. O(outcomes × log outcomes). */
export function experimentSeries(done: readonly SeedFigures[], policies: readonly LabPolicyName[]): ExperimentSeries {
  const requests = Math.max(0, ...done.flatMap(({ outcomes }) => policies.map((policy) => outcomes[policy]!.length)));
  const stretchEnds = endsOfStretches(requests);
  return {
    stretchEnds,
    policies: policies.map((policy) => {
      const bySeed = done.map(({ outcomes }) => outcomes[policy]!);
      return {
        policy,
        ttftMs: percentiles(bySeed.flat().map(({ ttftMs }) => ttftMs)),
        cachedTokenShare: stretchEnds.map((end, i) => {
          const start = i === 0 ? 0 : stretchEnds[i - 1]!;
          return mean(bySeed.map((outcomes: readonly ServedOutcome[]) => tokenShare(outcomes.slice(start, end))));
        }),
      };
    }),
  };
}

/** By the rule of `percentile`, with one sort for all of them. */
function percentiles(values: readonly number[]): number[] {
  const sorted = Float64Array.from(values).sort();
  return Array.from(
    { length: 101 },
    (_, i) => sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * i) / 100))] ?? 0,
  );
}

function endsOfStretches(requests: number): number[] {
  const count = Math.min(STRETCHES, requests);
  return Array.from({ length: count }, (_, i) => Math.round(((i + 1) * requests) / count));
}
