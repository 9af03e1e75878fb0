import type { SchedulerName } from '@warmpath/core/internal';
import type { LabPolicyName } from '../ordering/lab-policies.js';
import { mean } from '../statistics.js';
import type { Workload } from '../workloads/workload.js';
import { type CreateClients, closedLoopClients, poissonClients, recordedClients, sessionClients } from './clients.js';
import type { ServerFigures, ServerRun } from './outcome.js';
import { ROUTERS, type RouterName } from './router.js';
import { SCHEDULERS } from './schedulers.js';
import { type ServerOptions, simulateServer } from './simulate-server.js';

/**
 * Who sends the requests of an experiment. A `load` is a multiple of what the server can just serve in retrieval order,
 * first come first served.
 */
export type ClientSettings =
  | { readonly kind: 'poisson'; readonly load: number }
  | { readonly kind: 'closed'; readonly clients: number; readonly thinkMs: number }
  /** Without a load, all sessions begin at once. */
  | { readonly kind: 'sessions'; readonly load?: number; readonly thinkMs: number }
  | { readonly kind: 'recorded' };

/** The server of an experiment, in plain data; what each field means stands at `ServerOptions`. */
export interface ServerSettings {
  readonly clients: ClientSettings;
  readonly replicas?: number;
  readonly router?: RouterName;
  readonly scheduler?: SchedulerName;
  readonly maxBatch?: number;
  /** Tokens that a step computes at most; prompts are then computed in chunks. Default unlimited. */
  readonly chunkTokens?: number;
  readonly sharesInStep?: boolean;
  readonly leaderFirst?: boolean;
  /** Tokens of every answer. Default: those of the workload, else 1. */
  readonly answerTokens?: number;
  readonly retrievalMs?: number;
}

/** What an experiment's runs have beside the server's settings. */
export type RunOptions = Pick<ServerOptions, 'createCache' | 'queue' | 'latency' | 'clock' | 'conversations'>;

/** Keeps the arrivals' draws apart from those of the workload of the same seed. */
const ARRIVALS_SEED = 2 ** 32;

/** A server ready to serve one workload with one policy after another: arrivals are the same for all of them. */
export interface PreparedServer {
  run(policy: LabPolicyName, options: RunOptions): ServerRun;
}

/**
 * Prepares the server for a workload; a load is turned into a rate by serving all requests at once in retrieval order.
 * Errors: those of `simulateServer`. Cost: that of one run where there is a load.
 */
export function prepareServer(
  workload: Workload,
  settings: ServerSettings,
  seed: number,
  options: RunOptions,
): PreparedServer {
  const serverOptions = optionsOf(settings);
  const serviceMs = () => {
    const all = closedLoopClients({ clients: Math.max(1, workload.requests.length), thinkMs: 0, seed: 0 });
    const run = simulateServer(workload, 'retrieval', all, {
      ...options,
      ...serverOptions,
      queue: 0,
      scheduler: SCHEDULERS.fifo,
      retrievalMs: 0,
    });
    const lastMs = run.outcomes.reduce((last, { doneMs }) => Math.max(last, doneMs), 0);
    return lastMs / run.outcomes.length;
  };
  const clients = createClients(workload, settings.clients, ARRIVALS_SEED + seed, serviceMs);
  return {
    run: (policy, runOptions) => simulateServer(workload, policy, clients, { ...runOptions, ...serverOptions }),
  };
}

/** Means over runs of each figure; of the largest batch, the largest. */
export function meanFigures(runs: readonly ServerFigures[]): ServerFigures {
  const over = (of: (figures: ServerFigures) => number) => mean(runs.map(of));
  return {
    tbtMs: { p50: over(({ tbtMs }) => tbtMs.p50), p99: over(({ tbtMs }) => tbtMs.p99) },
    endToEndMs: {
      p50: over(({ endToEndMs }) => endToEndMs.p50),
      p99: over(({ endToEndMs }) => endToEndMs.p99),
      mean: over(({ endToEndMs }) => endToEndMs.mean),
    },
    waitMs: { mean: over(({ waitMs }) => waitMs.mean) },
    throughput: {
      requestsPerSecond: over(({ throughput }) => throughput.requestsPerSecond),
      tokensPerSecond: over(({ throughput }) => throughput.tokensPerSecond),
    },
    batch: {
      mean: over(({ batch }) => batch.mean),
      max: runs.reduce((most, { batch }) => Math.max(most, batch.max), 0),
    },
    imbalance: over(({ imbalance }) => imbalance),
    utilisation: over(({ utilisation }) => utilisation),
  };
}

function optionsOf(settings: ServerSettings): ServerOptions {
  const { clients: _, router, scheduler, chunkTokens, answerTokens, ...others } = settings;
  return {
    ...others,
    ...(router !== undefined && { router: ROUTERS[router] }),
    ...(scheduler !== undefined && { scheduler: SCHEDULERS[scheduler] }),
    ...(chunkTokens !== undefined && { stepTokens: chunkTokens, chunked: true }),
    ...(answerTokens !== undefined && { answerTokens: () => answerTokens }),
  };
}

function createClients(
  workload: Workload,
  settings: ClientSettings,
  seed: number,
  serviceMs: () => number,
): CreateClients {
  switch (settings.kind) {
    case 'poisson':
      return poissonClients({ perSecond: (settings.load * 1_000) / serviceMs(), seed });
    case 'closed':
      return closedLoopClients({ clients: settings.clients, thinkMs: settings.thinkMs, seed });
    case 'sessions': {
      const { load, thinkMs } = settings;
      if (load === undefined) return sessionClients({ thinkMs, seed });
      const sessions = new Set(workload.requests.map(({ session }, number) => session ?? number)).size;
      const startsPerSecond = (load * 1_000 * sessions) / (serviceMs() * workload.requests.length);
      return sessionClients({ thinkMs, seed, startsPerSecond });
    }
    case 'recorded':
      return recordedClients();
  }
}
