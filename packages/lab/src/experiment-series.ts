import type { SeedFigures } from './experiment.js';
import type { LabPolicyName } from './ordering/lab-policies.js';
import { tokenShare } from './served-share.js';
import type { ServedOutcome } from './simulated-engine.js';
import { mean } from './statistics.js';

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
