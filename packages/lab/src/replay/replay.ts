import type { LoggedRequest } from '../data/request-log.js';
import type { LabPolicyName } from '../ordering/lab-policies.js';
import { checkQueue } from '../simulate.js';
import { PAPER_LENGTHS, type PromptSpan, type WorkloadRequest } from '../workloads/workload.js';
import { Lane } from './lane.js';
import { assembleReport, type ReplayReport } from './replay-report.js';
import type { ReplaySettings } from './replay-settings.js';
import { Traffic } from './traffic.js';

/**
 * Replays a user's own log, request by request, on every cache with every policy at once: what would I save? Requests
 * are served one after another. Memory does not grow with the log: what the caches hold, 2^20 documents, and sums.
 *
 * Errors: `WARMPATH_INVALID_REQUEST` for a look-ahead out of range. Cost: that of `SimulatedEngine.serve` for each pair
 * of policy and cache.
 */
export class Replay {
  readonly #settings: ReplaySettings;
  readonly #queue: number;
  readonly #traffic: Traffic;
  readonly #lanes: readonly Lane[];
  /** The best order of each request by itself, cache by cache. */
  readonly #oracles: readonly Lane[];
  /** Requests that were read and wait to be served. */
  readonly #coming: WorkloadRequest[] = [];
  #served = 0;

  constructor(settings: ReplaySettings) {
    this.#settings = settings;
    this.#queue = checkQueue(settings.queue);
    const preamble: PromptSpan = { key: 'preamble', tokens: settings.preambleTokens ?? PAPER_LENGTHS.preamble };
    this.#traffic = new Traffic(settings);
    const lane = (policy: LabPolicyName, { name, create }: ReplaySettings['caches'][number], queue: number) =>
      new Lane({
        policy,
        name,
        cache: create(),
        preamble,
        queue,
        latency: settings.latency.model,
        clock: settings.clock,
      });
    this.#lanes = settings.caches.flatMap((cache) =>
      settings.policies.map((policy) => lane(policy, cache, this.#queue)),
    );
    this.#oracles = settings.caches.map(
      (cache) =>
        // `exact` takes no notice of what is coming, so a lane of it is the oracle already.
        this.#lanes.find(({ name, policy }) => name === cache.name && policy === 'exact') ?? lane('exact', cache, 0),
    );
  }

  /** Requests read so far. */
  get requests(): number {
    return this.#traffic.requests;
  }

  /** Takes the next line of the log. */
  next(logged: LoggedRequest): void {
    this.#coming.push(this.#traffic.next(logged));
    if (this.#coming.length > this.#queue) this.#serve();
  }

  /** Serves what was read and still waits; to be called at the end of the log, or of what is wanted of it. */
  finish(): void {
    while (this.#coming.length > 0) this.#serve();
  }

  /** What the requests served so far amount to. */
  report(): ReplayReport {
    const offline = this.#traffic.offline();
    return assembleReport(this.#settings, {
      ...(offline !== undefined && { offline }),
      arrivals: 'sequential',
      traffic: this.#traffic.report(),
      results: this.#lanes.map((lane) => lane.result()),
      bounds: this.#oracles.map((lane) => ({ cache: lane.name, oracle: lane.result().cachedTokenShare })),
    });
  }

  #serve(): void {
    const request = this.#coming.shift()!;
    const number = this.#served++;
    const isCounted = number >= (this.#settings.warmUp ?? 0);
    const coming = [...this.#coming];
    for (const lane of new Set([...this.#lanes, ...this.#oracles])) lane.serve(request, { number, coming, isCounted });
  }
}
