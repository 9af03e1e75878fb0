import { RequestScheduler, SpeculativePipeline } from '@warmpath/core/internal';
import {
  estimate,
  promptTokens,
  ragCacheWorkload,
  TieredTree,
  type Workload,
  type WorkloadRequest,
} from '@warmpath/lab';
import { ENGINE_MODELS, type ReproducedTable, type ReproduceOptions } from '../reproduction.js';
import { A10G, DEVICE_GIB, MAX_DOCUMENT_TOKENS, tokensOf } from './testbed.js';

const REQUESTS = 1_440;
/** Requests that wait while one is chosen: the window of reordering. */
const WAITING = 32;
/** Stages of each search. */
const STAGES = 16;

/**
 * §7.5: time that the decisions take: reordering, the tree's look-up and update, speculation. On this machine, in
 * wall-clock time.
 */
export function schedulingTimeTable({ seeds, requests = REQUESTS }: ReproduceOptions): ReproducedTable {
  const times = seeds.map((seed) => {
    const options = { dataset: 'mmlu', k: 2, requests, mostTokens: MAX_DOCUMENT_TOKENS } as const;
    return decisionMs(ragCacheWorkload(seed, options));
  });
  const { mean: ours, se } = estimate(times);
  return {
    title: '§7.5: milliseconds of scheduling a request (MMLU, Mistral-7B, 192 GiB of host memory)',
    model: ENGINE_MODELS.none,
    rows: [{ label: 'mean', figures: [{ name: 'ms', paper: 0.89, ours, se, places: 4 }] }],
    notes: [
      `Measured on this machine: choosing among ${WAITING} waiting requests, each looked up in the tree, the tree's eviction, insertion and update, and ${STAGES} stages of speculation.`,
      'The paper: 0.872 to 0.906 ms on an EPYC 7R32, C++ and Python.',
    ],
  };
}

/** Mean milliseconds a request of everything that is decided about it. */
function decisionMs({ preamble, requests }: Workload): number {
  const tree = new TieredTree({
    deviceTokens: tokensOf('mistral-7b', DEVICE_GIB),
    hostTokens: tokensOf('mistral-7b', 192),
    cost: A10G,
  });
  const promptOf = ({ documents, question }: WorkloadRequest) => ({ spans: [preamble, ...documents, question] });
  const scheduler = new RequestScheduler<WorkloadRequest>({
    lookup: (request) => {
      const prompt = promptOf(request);
      const reuse = tree.reuse(prompt);
      return { ...reuse, computeTokens: promptTokens(prompt) - reuse.cachedTokens };
    },
  });
  const started = performance.now();
  for (const arriving of requests) {
    speculate(arriving);
    scheduler.push(arriving);
    if (scheduler.size <= WAITING) continue;
    const prompt = promptOf(scheduler.next(0)!);
    const admission = tree.admit(prompt)!;
    admission.enter(promptTokens(prompt));
    admission.release();
  }
  return (performance.now() - started) / requests.length;
}

function speculate({ documents }: WorkloadRequest): void {
  const pipeline = new SpeculativePipeline({ maxPending: 4 });
  const ids = documents.map(({ id }) => id);
  for (let stage = 1; stage <= STAGES; stage++) pipeline.stage({ documents: ids, isFinal: stage === STAGES }, 0);
}
