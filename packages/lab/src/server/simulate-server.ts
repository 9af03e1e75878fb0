import { type OrderingPolicy, WarmpathError } from '@warmpath/core';
import type { PrefixCacheModel } from '../cache/prefix-cache.js';
import { VllmBlockCache } from '../cache/vllm-blocks.js';
import { Conversations } from '../conversations.js';
import { RTX_4090 } from '../latency.js';
import type { LabPolicyName } from '../ordering/lab-policies.js';
import { checkQueue } from '../simulate.js';
import { type RouteQuestion, SimulatedEngine, type SimulatedEngineOptions } from '../simulated-engine.js';
import type { Workload, WorkloadRequest } from '../workloads/workload.js';
import type { Clients, CreateClients } from './clients.js';
import { EventQueue } from './event-queue.js';
import type { ReplicaRun, ServerOutcome, ServerRun } from './outcome.js';
import { type BatchSettings, Replica } from './replica.js';
import { type CreateRouter, type ReplicaLoad, ROUTERS, type Router } from './router.js';
import { type CreateScheduler, SCHEDULERS } from './schedulers.js';
import { type DecodeCost, type HostCopyCost, RTX_4090_DECODE, StepCost } from './step-cost.js';

/** How a server is built. The defaults are an engine that prefills one prompt at a time, first come first served. */
export interface ServerOptions extends Omit<SimulatedEngineOptions, 'cache'>, Partial<BatchSettings> {
  /** Makes each replica's cache. Default: vLLM's blocks, unlimited. */
  readonly createCache?: () => PrefixCacheModel;
  /** Engine replicas, each with a cache and a history of its own. Default 1. */
  readonly replicas?: number;
  /** Default: each in turn. */
  readonly router?: CreateRouter;
  /** Default: first come, first served. */
  readonly scheduler?: CreateScheduler;
  /** Requests that run at a time on a replica. Default 1. */
  readonly maxBatch?: number;
  /** Tokens that a step computes at most; at least `maxBatch`. Default unlimited. */
  readonly stepTokens?: number;
  /**
   * Whether a prompt may be computed over several steps. Default false: one longer than `stepTokens` gets a step of its
   * own.
   */
  readonly chunked?: boolean;
  /** Whether prompts of one step share what they compute, as in vLLM V1; else from the next step on. Default true. */
  readonly sharesInStep?: boolean;
  /** Whether a request waits while one under way computes 32 or more tokens that it could reuse. Default false. */
  readonly leaderFirst?: boolean;
  /** Waiting requests that a policy may know of, 0 to 64. Default 0. */
  readonly queue?: number;
  /** Tokens of the answer to a request, 1 or more. Default: those of its `answer`, else 1. */
  readonly answerTokens?: (request: WorkloadRequest, number: number) => number;
  /** Milliseconds from a request's arrival until its documents are found; counted in TTFT. Default 0. */
  readonly retrievalMs?: number;
  /** Time of decoding. Default: that of the papers' RTX 4090. */
  readonly decode?: DecodeCost;
  /** Time to copy KV from host memory before it is reused. Default: none. */
  readonly hostCopy?: HostCopyCost;
}

type ServerEvent =
  | { readonly kind: 'request'; readonly number: number; readonly arrivedMs: number }
  | { readonly kind: 'step'; readonly replica: Replica };

/** Most replicas of a server. */
const MAX_REPLICAS = 1_024;

/**
 * Serves a workload in virtual time: clients send requests, a router deals them out to replicas, each with continuous
 * batching, a queue, a cache and a history. Deterministic, but for `arrangeMs` where a clock is given.
 *
 * Whatever happens at one time happens before any replica forms a step at that time, so that a step knows of all that
 * has come. Errors: those of `SimulatedEngine` and of the parts; `WARMPATH_INVALID_REQUEST` with a path for an option
 * out of range. Cost: that of the policy and the cache for each request, O(batch) for each step, O(log n) for each
 * event.
 */
export function simulateServer(
  workload: Workload,
  policy: LabPolicyName | OrderingPolicy,
  createClients: CreateClients,
  options: ServerOptions = {},
): ServerRun {
  return new ServerSimulation(workload, createReplicas(workload, policy, options), {
    clients: createClients(workload),
    router: (options.router ?? ROUTERS['round-robin'])(),
    retrievalMs: options.retrievalMs ?? 0,
  }).run();
}

interface Surroundings {
  readonly clients: Clients;
  readonly router: Router;
  readonly retrievalMs: number;
}

/** One run. */
class ServerSimulation {
  readonly #workload: Workload;
  readonly #replicas: readonly Replica[];
  readonly #surroundings: Surroundings;
  readonly #events = new EventQueue<ServerEvent>();
  readonly #outcomes: ServerOutcome[];
  readonly #dealt: number[];

  constructor(workload: Workload, replicas: readonly Replica[], surroundings: Surroundings) {
    this.#workload = workload;
    this.#replicas = replicas;
    this.#surroundings = surroundings;
    this.#outcomes = new Array(workload.requests.length);
    this.#dealt = replicas.map(() => 0);
  }

  run(): ServerRun {
    const events = this.#events;
    for (const { number, at } of this.#surroundings.clients.first()) this.#announce(number, at);
    while (events.size > 0) {
      const now = events.nextTime;
      while (events.nextTime === now) this.#handle(events.take()!, now);
      for (const replica of this.#replicas) {
        const ms = replica.isBusy ? undefined : replica.beginStep(now);
        if (ms !== undefined) events.add(now + ms, { kind: 'step', replica });
      }
    }
    return { outcomes: this.#outcomes, replicas: this.#replicas.map((replica, place) => this.#runOf(replica, place)) };
  }

  #announce(number: number, arrivedMs: number): void {
    this.#events.add(arrivedMs + this.#surroundings.retrievalMs, { kind: 'request', number, arrivedMs });
  }

  #handle(event: ServerEvent, now: number): void {
    if (event.kind === 'request') {
      this.#route(event.number, event.arrivedMs, now);
      return;
    }
    for (const outcome of event.replica.endStep(now)) {
      this.#outcomes[outcome.number] = outcome;
      const arrival = this.#surroundings.clients.next(outcome.number, now);
      if (arrival !== undefined) this.#announce(arrival.number, arrival.at);
    }
  }

  #route(number: number, arrivedMs: number, now: number): void {
    const { router } = this.#surroundings;
    const request = this.#workload.requests[number]!;
    const question = this.#replicas[0]!.question(request, number, now);
    const { promptTokens } = question;
    const loads = this.#replicas.map((replica) => {
      return router.readsCaches ? new LoadToAsk(replica, question) : loadOf(replica, promptTokens);
    });
    const place = router.choose(loads, { number, request, promptTokens });
    this.#dealt[place]!++;
    this.#replicas[place]!.push({ number, request, arrivedMs, expectedTokens: loads[place]!.newTokens });
  }

  #runOf({ steps, busyMs, sequences, largestBatch, gaps }: Replica, place: number): ReplicaRun {
    return { requests: this.#dealt[place]!, steps, busyMs, sequences, largestBatch, gaps };
  }
}

function createReplicas(
  workload: Workload,
  policy: LabPolicyName | OrderingPolicy,
  options: ServerOptions,
): readonly Replica[] {
  const { replicas = 1, createCache = () => new VllmBlockCache(), latency = RTX_4090 } = options;
  const settings = batchSettings(options);
  checkCount(replicas, 'replicas', MAX_REPLICAS);
  // A conversation may be served by one replica now and by another then: what was said is the clients'.
  const conversations = new Conversations(options.conversations);
  return Array.from({ length: replicas }, () => {
    const engineOptions = { ...options, cache: createCache() };
    const parts = {
      engine: new SimulatedEngine(workload.preamble, policy, engineOptions, conversations),
      cost: new StepCost({
        latency,
        decode: options.decode ?? RTX_4090_DECODE,
        hostCopy: options.hostCopy ?? (() => 0),
      }),
      createScheduler: options.scheduler ?? SCHEDULERS.fifo,
      capacity: Math.max(1, workload.requests.length),
    };
    return new Replica(parts, settings);
  });
}

function batchSettings(options: ServerOptions): BatchSettings {
  const { maxBatch = 1, stepTokens = Number.POSITIVE_INFINITY, retrievalMs = 0 } = options;
  checkCount(maxBatch, 'maxBatch', Number.MAX_SAFE_INTEGER);
  if (!(stepTokens === Number.POSITIVE_INFINITY || (Number.isSafeInteger(stepTokens) && stepTokens >= maxBatch))) {
    throw invalid('stepTokens', `A whole number of ${maxBatch} (the batch) or more was expected.`);
  }
  if (!(retrievalMs >= 0 && Number.isFinite(retrievalMs))) {
    throw invalid('retrievalMs', 'A number of 0 or more was expected.');
  }
  return {
    maxBatch,
    stepTokens,
    chunked: options.chunked ?? false,
    sharesInStep: options.sharesInStep ?? true,
    leaderFirst: options.leaderFirst ?? false,
    queue: checkQueue(options.queue),
    answerTokens: options.answerTokens ?? (({ answer }) => Math.max(1, answer?.tokens ?? 1)),
  };
}

function loadOf({ requests, pendingTokens }: Replica, newTokens: number): ReplicaLoad {
  return { requests, pendingTokens, newTokens };
}

/** What a router sees of a replica; what the request would have to compute there is found out if it is looked at. */
class LoadToAsk implements ReplicaLoad {
  readonly requests: number;
  readonly pendingTokens: number;
  readonly #replica: Replica;
  readonly #question: RouteQuestion;
  #newTokens: number | undefined;

  constructor(replica: Replica, question: RouteQuestion) {
    this.requests = replica.requests;
    this.pendingTokens = replica.pendingTokens;
    this.#replica = replica;
    this.#question = question;
  }

  get newTokens(): number {
    this.#newTokens ??= this.#replica.expectedTokens(this.#question);
    return this.#newTokens;
  }
}

function checkCount(value: number, path: string, most: number): void {
  if (Number.isSafeInteger(value) && value > 0 && value <= most) return;
  throw invalid(path, 'A whole number above 0 was expected.');
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
