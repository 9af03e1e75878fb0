import {
  type Arrival,
  type LabPolicyName,
  type ServedOutcome,
  SimulatedEngine,
  type SimulateOptions,
  type Workload,
} from '../src/index.js';

/**
 * The server that prefills one prompt at a time, first come first served, written as the loop that it then is: what the
 * event-driven one must come to with a batch of one.
 */
export function serveInTurn(
  workload: Workload,
  policy: LabPolicyName,
  arrivals: readonly Arrival[],
  options: SimulateOptions = {},
): ServedOutcome[] {
  const engine = new SimulatedEngine(workload.preamble, policy, options);
  const { requests } = workload;
  let free = 0;
  let arrived = 0;
  return requests.map((request, number) => {
    const start = Math.max(free, arrivals[number]!.at);
    while (arrived < requests.length && arrivals[arrived]!.at <= start) arrived++;
    const last = Math.min(arrived, number + 1 + (options.queue ?? 0));
    const coming = requests.slice(number + 1, last);
    const outcome = engine.serve(request, { number, coming, now: start });
    free = start + outcome.ttftMs;
    const ttftMs = free - arrivals[number]!.at;
    return { ...outcome, ttftMs };
  });
}
