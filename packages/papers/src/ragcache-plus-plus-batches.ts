import {
  createNoCache,
  createWorkload,
  estimate,
  type LabPolicyName,
  mean,
  percentile,
  recordedClients,
  type ServerOptions,
  type ServerRun,
  simulateServer,
  type Workload,
} from '@warmpath/lab';
import {
  ENGINE_MODELS,
  type PaperTable,
  type ReproducedFigure,
  type ReproducedTable,
  type ReproduceOptions,
} from './reproduction.js';
import { gain, SEED } from './strategies.js';

/** Batches at the start that the paper does not count. */
const WARM_UP_BATCHES = 2;
/** Longer than any batch takes: the next one comes when the last is done. */
const BATCH_EVERY_MS = 600_000;

/** Batch; average «per-request TTFT» without a cache, in retrieval order, optimized. */
const TABLE_8 = [
  [1, 114.7, 54.7, 50.7],
  [2, 110.5, 48, 44.3],
  [4, 103.4, 41.6, 37.5],
  [8, 100.9, 38.3, 35.7],
] as const;

/** Retrieval in ms, batch; median in retrieval order, optimized. */
const RETRIEVAL_LATENCY = [
  [10, 1, 69.6, 51.8],
  [10, 4, 51.8, 46.9],
  [10, 8, 48.9, 45.9],
  [30, 1, 89.7, 72.4],
  [30, 4, 71.8, 67.8],
  [30, 8, 68.8, 66.8],
  [50, 1, 109.3, 92.2],
  [50, 4, 91.8, 87.4],
  [50, 8, 88.7, 86.3],
] as const;

/** Tables of RAGCache++ whose requests come in batches, and what batches do to each strategy. */
export const BATCH_TABLES: readonly PaperTable[] = [
  { name: 'table-8', reproduce: () => concurrencyTable() },
  { name: 'batches', reproduce: batchesTable },
];

/** What serves the batches of one strategy. */
interface BatchStrategy extends ServerOptions {
  readonly policy: LabPolicyName;
  readonly batch: number;
}

/** Requests that come `batch` at a time, and are served in one step if nothing holds them back. */
function runBatches(workload: Workload, { policy, batch, ...options }: BatchStrategy): ServerRun {
  const requests = workload.requests.map((request, number) => ({
    ...request,
    arrivalMs: Math.floor(number / batch) * BATCH_EVERY_MS,
  }));
  return simulateServer({ ...workload, requests }, policy, recordedClients(), { maxBatch: batch, ...options });
}

/** The paper's measure of each request: the time of its batch over the batch, retrieval once a batch beside it. */
function perRequest({ outcomes }: ServerRun, batch: number, retrievalMs = 0): number[] {
  const counted = outcomes.slice(WARM_UP_BATCHES * batch);
  return counted.map(({ ttftMs }) => retrievalMs + (ttftMs - retrievalMs) / batch);
}

/** The paper's trie learns of a batch when it is done. */
const PAPERS_GREEDY = { policy: 'greedy', learnsAt: 'completion' } as const;

/**
 * The table of concurrent load, which both papers print with the same figures: Table 8 of RAGCache++, Table 11 of
 * CacheWeaver.
 */
export function concurrencyTable(name = 'Table 8'): ReproducedTable {
  const workload = createWorkload('headline', { seed: SEED });
  return {
    title: `${name}, RTX 4090: concurrent load, headline`,
    model: ENGINE_MODELS.vllmInBatches,
    rows: TABLE_8.map(([batch, none, retrieval, optimized]) => {
      const average = (strategy: Omit<BatchStrategy, 'batch'>) =>
        mean(perRequest(runBatches(workload, { ...strategy, batch }), batch));
      const ours = {
        none: average({ policy: 'retrieval', createCache: createNoCache }),
        retrieval: average({ policy: 'retrieval' }),
        optimized: average(PAPERS_GREEDY),
      };
      return {
        label: `batch ${batch}`,
        figures: [
          { name: 'no cache ms', paper: none, ours: ours.none },
          { name: 'retrieval ms', paper: retrieval, ours: ours.retrieval },
          { name: 'optimized ms', paper: optimized, ours: ours.optimized },
          { name: 'gain %', paper: gain(retrieval, optimized), ours: gain(ours.retrieval, ours.optimized) },
          { name: 'seen first, gain %', paper: undefined, ours: seenFirstGain(workload, batch, ours.retrieval) },
        ],
      };
    }),
    notes: [
      '«Per-request TTFT» is the time of a batch divided by its requests: throughput turned round. A request of a batch sees its first token when the batch is done, so its TTFT is the figure times the batch, and grows with it where the table shrinks.',
      'The paper arranges a whole batch before its trie learns of any of it. «Seen first» tells the history of each request as it is sent, so that those of one batch follow each other.',
      'Without a cache only the cost of a step is shared: 20 ms divided by the batch plus 0.092 ms a token. That the cached figures fall as fast means that vLLM shares blocks inside a batch.',
    ],
  };
}

function seenFirstGain(workload: Workload, batch: number, retrieval: number): number {
  return gain(retrieval, mean(perRequest(runBatches(workload, { policy: 'greedy', batch }), batch)));
}

/** Retrieval before the batches; RAGCache++ runs the same code, and only CacheWeaver prints the figures. */
export function retrievalLatencyTable(): ReproducedTable {
  const workload = createWorkload('headline', { seed: SEED });
  return {
    title: 'Table 12, RTX 4090: retrieval latency 10 to 50 ms, headline',
    model: ENGINE_MODELS.vllmInBatches,
    rows: RETRIEVAL_LATENCY.map(([retrievalMs, batch, retrieval, optimized]) => {
      const runs = {
        retrieval: runBatches(workload, { policy: 'retrieval', batch, retrievalMs }),
        optimized: runBatches(workload, { ...PAPERS_GREEDY, batch, retrievalMs }),
      };
      const median = (run: ServerRun) => percentile(perRequest(run, batch, retrievalMs), 0.5);
      const ours = { retrieval: median(runs.retrieval), optimized: median(runs.optimized) };
      const seen = (run: ServerRun) => percentile(perRequest(run, 1, retrievalMs), 0.5);
      return {
        label: `${retrievalMs} ms, batch ${batch}`,
        figures: [
          { name: 'retrieval p50 ms', paper: retrieval, ours: ours.retrieval },
          { name: 'optimized p50 ms', paper: optimized, ours: ours.optimized },
          { name: 'gain %', paper: gain(retrieval, optimized), ours: gain(ours.retrieval, ours.optimized) },
          { name: "a client's gain %", paper: undefined, ours: gain(seen(runs.retrieval), seen(runs.optimized)) },
        ],
      };
    }),
    notes: [
      'Retrieval is one sleep for a whole batch, the batch is divided by its requests as in Table 11, and both are added: the gain shrinks with the batch because the sleep is not divided. What a client waits for is the sleep and the whole batch.',
    ],
  };
}

/** Rows of the last table: how each strategy orders, and when its history learns. */
const STRATEGIES = [
  { label: 'retrieval order', policy: 'retrieval', knowsMates: false },
  { label: 'greedy, history of the batch before', policy: 'greedy', learnsAt: 'completion', knowsMates: false },
  { label: 'exact, told at once', policy: 'exact', knowsMates: false },
  { label: 'foresight, told at once, batch mates known', policy: 'foresight', knowsMates: true },
] as const;

/** Its columns: what the engine shares inside a batch. */
const SHARING = [
  { name: 'shared', sharesInStep: true, leaderFirst: false },
  { name: 'not shared', sharesInStep: false, leaderFirst: false },
  { name: 'leader first', sharesInStep: false, leaderFirst: true },
] as const;

function batchesTable({ seeds }: ReproduceOptions): ReproducedTable {
  const settings = [
    { workload: 'headline', batch: 8 },
    { workload: 'geospatial', batch: 16 },
  ].flatMap((each) => SHARING.map((sharing) => ({ ...each, sharing })));
  return {
    title: 'Batches: percent of documents that are reused',
    model: ENGINE_MODELS.vllmInBatches,
    rows: STRATEGIES.map(({ label, knowsMates, ...strategy }) => ({
      label,
      figures: settings.map(({ workload, batch, sharing: { name, ...sharing } }): ReproducedFigure => {
        const bySeed = seeds.map((seed) => {
          const options = { ...strategy, ...sharing, batch, queue: knowsMates ? batch - 1 : 0 };
          const { outcomes } = runBatches(createWorkload(workload, { seed }), options);
          return 100 * mean(outcomes.map(({ cachedDocuments, documents }) => cachedDocuments / documents));
        });
        const { mean: ours, se } = estimate(bySeed);
        return { name: `${workload} B=${batch}, ${name}`, paper: undefined, ours, se };
      }),
    })),
    notes: [
      'No paper has these figures. Batches of 8 and 16 requests, one step each where nothing is held back.',
      'An engine that does not share inside a batch makes the batch compute its common start as often as it has requests, and an order that counts on its mates then loses what it hoped for. «Leader first» starts one request of each new prefix, and the others a step later.',
    ],
  };
}
