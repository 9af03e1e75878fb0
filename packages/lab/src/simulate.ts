import { type OrderingPolicy, type PolicyName, type PrewarmOptions, WarmpathError } from '@warmpath/core';
import { type ServedOutcome, SimulatedEngine, type SimulatedEngineOptions } from './simulated-engine.js';
import { MersenneTwister } from './workloads/mersenne-twister.js';
import type { Workload } from './workloads/workload.js';

/** Longest look-ahead; the depth to which a server's queue is worth reading. */
export const MAX_QUEUE = 64;

export interface SimulateOptions extends SimulatedEngineOptions {
  /** Coming requests that the policy may know of, 0 to 64. Default 0. */
  readonly queue?: number;
  /**
   * What the engine may prefill ahead whenever it is idle: between any two requests of `simulate`, between the end of one and
   * the arrival of the next of `simulateArrivals`, where the next waits for the path that is under way. Default nothing.
   */
  readonly prewarm?: PrewarmOptions;
}

/** Requests that come at random times, whether or not the engine is free. */
export interface Arrivals {
  /** Mean requests a second. */
  readonly perSecond: number;
  readonly seed: number;
}

/**
 * Serves a workload one request after another with one ordering policy, through the real `arrange`, `observe` and
 * `ServedHistory` of the core and a simulated engine cache. Each request comes when the one before is done, and the
 * policy knows of the next `queue` ones. Deterministic but for `arrangeMs`.
 *
 * Errors: `WARMPATH_INVALID_REQUEST` for a queue out of range; those of `SimulatedEngine`, which states the cost.
 */
export function simulate(
  workload: Workload,
  policy: PolicyName | OrderingPolicy,
  options: SimulateOptions = {},
): ServedOutcome[] {
  const queue = checkQueue(options.queue);
  const engine = new SimulatedEngine(workload.preamble, policy, options);
  const { requests } = workload;
  return requests.map((request, number) => {
    const waiting = requests.slice(number + 1, number + 1 + queue).map(({ documents }) => documents);
    const outcome = engine.serve(request, { number, waiting, now: number });
    if (options.prewarm === undefined) return outcome;
    const { tokens } = engine.prewarm(options.prewarm, { now: number, until: Number.POSITIVE_INFINITY });
    return { ...outcome, prewarmedTokens: tokens };
  });
}

/**
 * Serves a workload whose requests arrive at random (a Poisson process), first come first served, by an engine that
 * prefills one prompt at a time. A policy knows of the requests that are really waiting, at most `queue` of them; TTFT counts
 * the wait. In virtual time: as fast as `simulate`, and as deterministic.
 *
 * Errors: those of `simulate`; `WARMPATH_INVALID_REQUEST` for a rate that is not above 0.
 */
export function simulateArrivals(
  workload: Workload,
  policy: PolicyName | OrderingPolicy,
  arrivals: Arrivals,
  options: SimulateOptions = {},
): ServedOutcome[] {
  const queue = checkQueue(options.queue);
  const arrivedAt = arrivalTimes(workload.requests.length, arrivals);
  const engine = new SimulatedEngine(workload.preamble, policy, options);
  const { requests } = workload;
  let free = 0;
  let arrived = 0;
  return requests.map((request, number) => {
    const start = Math.max(free, arrivedAt[number]!);
    while (arrived < requests.length && arrivedAt[arrived]! <= start) arrived++;
    const last = Math.min(arrived, number + 1 + queue);
    const waiting = requests.slice(number + 1, last).map(({ documents }) => documents);
    const outcome = engine.serve(request, { number, waiting, now: start });
    free = start + outcome.ttftMs;
    const ttftMs = free - arrivedAt[number]!;
    if (options.prewarm === undefined) return { ...outcome, ttftMs };
    const prewarmed = engine.prewarm(options.prewarm, { now: free, until: arrivedAt[number + 1] ?? free });
    free = prewarmed.free;
    return { ...outcome, ttftMs, prewarmedTokens: prewarmed.tokens };
  });
}

/** Milliseconds at which each request arrives; gaps are exponential. */
function arrivalTimes(count: number, { perSecond, seed }: Arrivals): number[] {
  if (!(perSecond > 0 && Number.isFinite(perSecond))) {
    const detail = 'A number of requests a second above 0 was expected.';
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'perSecond', detail });
  }
  const random = new MersenneTwister(seed);
  let now = 0;
  return Array.from({ length: count }, () => {
    now -= (1_000 / perSecond) * Math.log(1 - random.random());
    return now;
  });
}

/** Checks a look-ahead. Error: `WARMPATH_INVALID_REQUEST` at `queue`. */
export function checkQueue(queue = 0): number {
  if (Number.isSafeInteger(queue) && queue >= 0 && queue <= MAX_QUEUE) return queue;
  const detail = `A whole number from 0 to ${MAX_QUEUE} was expected.`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'queue', detail });
}
