import { type OrderingPolicy, WarmpathError } from '@warmpath/core';
import type { LabPolicyName } from './ordering/lab-policies.js';
import { type ServedOutcome, SimulatedEngine, type SimulatedEngineOptions } from './simulated-engine.js';
import type { Workload } from './workloads/workload.js';

/** Longest look-ahead; the depth to which a server's queue is worth reading. */
export const MAX_QUEUE = 64;

export interface SimulateOptions extends SimulatedEngineOptions {
  /**
   * How many coming requests are looked at, 0 to 64: the policy gets those that could be waiting already, which
   * is of each other session the next one, never a later turn. Default 0.
   */
  readonly queue?: number;
}

/**
 * Serves a workload one request after another with one ordering policy, through the real `arrange`, `observe` and
 * `ServedHistory` of the core and a simulated engine cache. Each request comes when the one before is done, and the
 * policy knows of those among the next `queue` that could be waiting already. Deterministic but for `arrangeMs`.
 * `simulateServer` is the one with time in it.
 *
 * Errors: `WARMPATH_INVALID_REQUEST` for a queue out of range; those of `SimulatedEngine`, which states the cost.
 */
export function simulate(
  workload: Workload,
  policy: LabPolicyName | OrderingPolicy,
  options: SimulateOptions = {},
): ServedOutcome[] {
  const queue = checkQueue(options.queue);
  const engine = new SimulatedEngine(workload.preamble, policy, options);
  const { requests } = workload;
  return requests.map((request, number) => {
    const coming = requests.slice(number + 1, number + 1 + queue);
    return engine.serve(request, { number, coming, now: number });
  });
}

/** The look-ahead, checked; 0 if none is given. Error: `WARMPATH_INVALID_REQUEST` at `queue`. */
export function checkQueue(queue = 0): number {
  if (Number.isSafeInteger(queue) && queue >= 0 && queue <= MAX_QUEUE) return queue;
  const detail = `A whole number from 0 to ${MAX_QUEUE} was expected.`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'queue', detail });
}
