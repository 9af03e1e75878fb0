import { type ReplacementPolicy, RequestScheduler, replacementPolicy } from '@warmpath/core/internal';
import {
  type CreateClients,
  type CreateScheduler,
  closedLoopClients,
  createNoCache,
  type PrefixCacheModel,
  poissonClients,
  type RagCacheDatasetName,
  SCHEDULERS,
  type ServerOutcome,
  SglangRadixCache,
  simulateServer,
  TieredTree,
  type Workload,
} from '@warmpath/lab';
import { A10G, A10G_DECODE, DEVICE_GIB, hostCopyOf, type ModelName, tokensOf } from './testbed.js';

export const DATASETS: readonly RagCacheDatasetName[] = ['mmlu', 'natural-questions'];

/** GiB of host memory in the ablations (§7.4). */
export const HOST_GIB = [8, 16, 32, 64, 128] as const;

/** Keeps the arrivals' draws apart from those of the workload of the same seed. */
const ARRIVALS_SEED = 2 ** 36;

/** The paper's reordering, with its window of 32 (§7.4). */
const REORDERING: CreateScheduler = (context) => new RequestScheduler({ ...context, window: 32 });

/** A system under test: how it caches, and in which order it serves. */
export interface ServedSystem {
  readonly model: ModelName;
  readonly createCache: () => PrefixCacheModel;
  readonly reorders?: boolean;
}

/** RAGCache with so much host memory; PGDSF by default. */
export function ragCache(model: ModelName, hostGib: number, policy: ReplacementPolicy = replacementPolicy('pgdsf')) {
  const sizes = { deviceTokens: tokensOf(model, DEVICE_GIB), hostTokens: tokensOf(model, hostGib) };
  return { model, createCache: () => new TieredTree({ ...sizes, policy, cost: A10G }) };
}

/** vLLM as the paper compares it: nothing is kept from one request for another. */
export function vllm(model: ModelName): ServedSystem {
  return { model, createCache: createNoCache };
}

/** SGLang: prefixes kept in device memory, least recently used first. */
export function sglang(model: ModelName): ServedSystem {
  return { model, createCache: () => new SglangRadixCache({ tokens: tokensOf(model, DEVICE_GIB) }) };
}

/** Serves a workload that arrives at random at a rate, in batches of at most 4 (§7.1), in retrieval order. */
export function serve(
  system: ServedSystem,
  workload: Workload,
  { perSecond, seed }: { readonly perSecond: number; readonly seed: number },
): readonly ServerOutcome[] {
  return run(system, workload, poissonClients({ perSecond, seed: ARRIVALS_SEED + seed }));
}

/** Requests a second that a system gets through when all of them wait from the start, first come first served. */
export function capacity(system: ServedSystem, workload: Workload): number {
  const all = closedLoopClients({ clients: workload.requests.length, thinkMs: 0, seed: 0 });
  const outcomes = run({ ...system, reorders: false }, workload, all);
  return (outcomes.length * 1_000) / outcomes.reduce((last, { doneMs }) => Math.max(last, doneMs), 0);
}

function run(system: ServedSystem, workload: Workload, clients: CreateClients): readonly ServerOutcome[] {
  return simulateServer(workload, 'retrieval', clients, {
    createCache: system.createCache,
    scheduler: system.reorders === true ? REORDERING : SCHEDULERS.fifo,
    maxBatch: 4,
    latency: A10G,
    decode: A10G_DECODE,
    hostCopy: hostCopyOf(system.model),
  }).outcomes;
}
