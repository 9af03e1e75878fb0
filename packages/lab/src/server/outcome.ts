import type { ServedOutcome } from '../simulated-engine.js';
import { mean, percentile, weightedPercentile } from '../statistics.js';

/** What one request got from a server. Times in milliseconds of virtual time; `ttftMs` counts from `arrivedMs`. */
export interface ServerOutcome extends ServedOutcome {
  /** Place in the workload. */
  readonly number: number;
  readonly arrivedMs: number;
  /** When its prefill began. */
  readonly startedMs: number;
  /** When its last token came. */
  readonly doneMs: number;
  /** Tokens generated. */
  readonly answerTokens: number;
}

/** So many sequences waited this long from one token to the next. */
export interface TokenGap {
  readonly ms: number;
  readonly tokens: number;
}

/** What one replica did. */
export interface ReplicaRun {
  readonly requests: number;
  readonly steps: number;
  /** Milliseconds spent in steps. */
  readonly busyMs: number;
  /** Sequences in all steps together. */
  readonly sequences: number;
  readonly largestBatch: number;
  readonly gaps: readonly TokenGap[];
}

/** One run of a server. */
export interface ServerRun {
  /** In the order of the workload. */
  readonly outcomes: readonly ServerOutcome[];
  readonly replicas: readonly ReplicaRun[];
}

/** A run in figures. */
export interface ServerFigures {
  /** Time between tokens, over all tokens but first ones; 0 where answers have one token. */
  readonly tbtMs: { readonly p50: number; readonly p99: number };
  /** From arrival to the last token. */
  readonly endToEndMs: { readonly p50: number; readonly p99: number; readonly mean: number };
  /** From arrival to the start of prefill. */
  readonly waitMs: { readonly mean: number };
  readonly throughput: { readonly requestsPerSecond: number; readonly tokensPerSecond: number };
  /** Sequences in a step. */
  readonly batch: { readonly mean: number; readonly max: number };
  /** Requests of the busiest replica over the mean: 1 if all had as many. */
  readonly imbalance: number;
  /** Share of the time in which replicas worked, 0 to 1. */
  readonly utilisation: number;
}

/**
 * Sums a run up. Counts outcomes from place `warmUp` on; steps, throughput and balance are those of the whole run. O(n
 * log n).
 */
export function serverFigures({ outcomes, replicas }: ServerRun, warmUp = 0): ServerFigures {
  const counted = outcomes.slice(warmUp);
  const endToEnd = counted.map(({ arrivedMs, doneMs }) => doneMs - arrivedMs);
  const gaps = replicas.flatMap((replica) => replica.gaps);
  const values = gaps.map(({ ms }) => ms);
  const weights = gaps.map(({ tokens }) => tokens);
  const [begin, end] = spanOf(outcomes);
  const seconds = (end - begin) / 1_000;
  const sum = (of: (replica: ReplicaRun) => number) => replicas.reduce((total, replica) => total + of(replica), 0);
  const tokens = outcomes.reduce((total, { answerTokens }) => total + answerTokens, 0);
  const steps = sum((replica) => replica.steps);
  return {
    tbtMs: { p50: weightedPercentile(values, weights, 0.5), p99: weightedPercentile(values, weights, 0.99) },
    endToEndMs: { p50: percentile(endToEnd, 0.5), p99: percentile(endToEnd, 0.99), mean: mean(endToEnd) },
    waitMs: { mean: mean(counted.map(({ arrivedMs, startedMs }) => startedMs - arrivedMs)) },
    throughput: { requestsPerSecond: ratio(outcomes.length, seconds), tokensPerSecond: ratio(tokens, seconds) },
    batch: {
      mean: ratio(
        sum((replica) => replica.sequences),
        steps,
      ),
      max: replicas.reduce((most, { largestBatch }) => Math.max(most, largestBatch), 0),
    },
    imbalance: ratio(
      replicas.reduce((most, { requests }) => Math.max(most, requests), 0),
      outcomes.length / replicas.length,
    ),
    utilisation: ratio(sum((replica) => replica.busyMs) / 1_000, seconds * replicas.length),
  };
}

/** From the first arrival to the last token. */
function spanOf(outcomes: readonly ServerOutcome[]): readonly [number, number] {
  let [begin, end] = [Number.POSITIVE_INFINITY, 0];
  for (const { arrivedMs, doneMs } of outcomes) {
    begin = Math.min(begin, arrivedMs);
    end = Math.max(end, doneMs);
  }
  return outcomes.length === 0 ? [0, 0] : [begin, end];
}

function ratio(value: number, of: number): number {
  return of === 0 ? 0 : value / of;
}
