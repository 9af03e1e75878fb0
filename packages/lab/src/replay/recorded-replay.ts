import { WarmpathError } from '@warmpath/core';
import type { LoggedRequest } from '../data/request-log.js';
import type { LabPolicyName } from '../ordering/lab-policies.js';
import { recordedClients } from '../server/clients.js';
import { serverFigures } from '../server/outcome.js';
import { simulateServer } from '../server/simulate-server.js';
import { checkQueue } from '../simulate.js';
import { PAPER_LENGTHS, type WorkloadRequest } from '../workloads/workload.js';
import { assembleReport, type ReplayReport, type ReplayResult } from './replay-report.js';
import type { ReplaySettings } from './replay-settings.js';
import { isTooLong, ReuseSums } from './reuse-sums.js';
import { Traffic } from './traffic.js';

/** Requests that are held for the server; some 600 bytes each for ten documents. */
const MAX_REQUESTS = 1_000_000;

export interface RecordedReplaySettings extends ReplaySettings {
  /** Engines that take the requests in turn, each with a cache of its own. Default 1. */
  readonly replicas?: number;
}

interface Run {
  readonly policy: LabPolicyName;
  readonly cache: ReplaySettings['caches'][number];
  /** Whether it is there for the bound alone. */
  readonly isBound: boolean;
}

/**
 * Replays a log at its own times on a simulated server: TTFT counts the wait, and policies know of the requests that
 * really wait. The log is read whole first (at most a million requests); then each pair of policy and cache is one
 * step.
 *
 * Errors: `WARMPATH_INVALID_REQUEST` for a look-ahead out of range, a longer log, and for one without timestamps.
 */
export class RecordedReplay {
  readonly #settings: RecordedReplaySettings;
  readonly #traffic: Traffic;
  readonly #requests: WorkloadRequest[] = [];
  readonly #runs: readonly Run[];
  readonly #results = new Map<Run, ReplayResult>();
  #utilisation: number | undefined;

  constructor(settings: RecordedReplaySettings) {
    checkQueue(settings.queue);
    this.#settings = settings;
    this.#traffic = new Traffic(settings);
    this.#runs = settings.caches.flatMap((cache) => {
      const runs = settings.policies.map((policy): Run => ({ policy, cache, isBound: false }));
      return settings.policies.includes('exact') ? runs : [...runs, { policy: 'exact', cache, isBound: true } as const];
    });
  }

  /** Requests read so far. */
  get requests(): number {
    return this.#requests.length;
  }

  /** Pairs of policy and cache in all. */
  get steps(): number {
    return this.#runs.length;
  }

  /** Takes the next line of the log. */
  next(logged: LoggedRequest): void {
    const path = `line ${logged.line}`;
    if (this.requests === MAX_REQUESTS) {
      throw invalid(
        path,
        `At most ${MAX_REQUESTS} requests are held to replay their times; a sequential replay has no limit.`,
      );
    }
    const request = this.#traffic.next(logged);
    if (!this.#traffic.isTimed) throw invalid(path, 'The first request has no timestamp.');
    this.#requests.push(request);
  }

  /** Serves the whole log with the next policy on the next cache; false when all are done. */
  step(): boolean {
    const run = this.#runs[this.#results.size];
    if (run === undefined) return false;
    this.#results.set(run, this.#serve(run));
    return true;
  }

  /** What the steps done so far amount to. */
  report(): ReplayReport {
    const { replicas } = this.#settings;
    const done = [...this.#results];
    const offline = this.#traffic.offline();
    return assembleReport(this.#settings, {
      arrivals: 'recorded',
      traffic: this.#traffic.report(),
      results: done.filter(([{ isBound }]) => !isBound).map(([, result]) => result),
      bounds: done
        .filter(([{ policy }]) => policy === 'exact')
        .map(([{ cache }, { cachedTokenShare }]) => ({ cache: cache.name, oracle: cachedTokenShare })),
      ...(this.#utilisation !== undefined && { utilisation: this.#utilisation }),
      ...(offline !== undefined && { offline }),
      ...(replicas !== undefined && { replicas }),
    });
  }

  #serve({ policy, cache }: Run): ReplayResult {
    const { warmUp = 0, preambleTokens = PAPER_LENGTHS.preamble, queue = 0, latency, clock, replicas } = this.#settings;
    const model = cache.create();
    const sums = new ReuseSums();
    const fitting = this.#requests.filter((request, number) => {
      const fits = !isTooLong(request, preambleTokens, model);
      if (!fits && number >= warmUp) sums.addTooLong();
      return fits;
    });
    const workload = { name: 'log', preamble: { key: 'preamble', tokens: preambleTokens }, requests: fitting };
    const run = simulateServer(workload, policy, recordedClients(), {
      createCache: cache.create,
      queue,
      latency: latency.model,
      clock,
      ...(replicas !== undefined && { replicas }),
    });
    const counted = new Set(this.#requests.slice(warmUp));
    for (const outcome of run.outcomes) if (counted.has(fitting[outcome.number]!)) sums.add(outcome);
    if (policy === 'retrieval') this.#utilisation ??= serverFigures(run).utilisation;
    return sums.result({ policy, name: cache.name, cache: model });
  }
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
