import { estimate, mean, percentile, type RagCacheDatasetName, ragCacheWorkload, type Workload } from '@warmpath/lab';
import {
  ENGINE_MODELS,
  type PaperRange,
  type ReproducedFigure,
  type ReproducedRow,
  type ReproducedTable,
  type ReproduceOptions,
} from '../reproduction.js';
import { capacity, DATASETS, HOST_GIB, ragCache, type ServedSystem, serve, sglang, vllm } from './serving.js';
import { MAX_DOCUMENT_TOKENS, type ModelName } from './testbed.js';

/** Half an hour at 0.8 requests a second. */
const REQUESTS = 1_440;
/** Host memory of §7.1. */
const HOST = 192;
const RATES = [0.4, 0.7, 1] as const;
/** What the paper gives of each figure: how RAGCache stands to vLLM and to SGLang, at its least and at its most. */
const RANGES = {
  'figure-15': [
    [1.2, 4],
    [1.1, 3.5],
  ],
  'section-7.1': [
    [1.3, 2.1],
    [1.2, 1.8],
  ],
  'figure-18': [
    [1.7, 3.1],
    [1.2, 2.5],
  ],
} as const satisfies Record<string, readonly [vllm: PaperRange, sglang: PaperRange]>;
type Ranges = (typeof RANGES)[keyof typeof RANGES] | undefined;
const CUT = `Documents are cut to ${MAX_DOCUMENT_TOKENS} tokens; speed of the device, of host copies and the skew of Natural Questions are inferred.`;

/** Fig. 15: mean TTFT of three systems by request rate. */
export function overallTable({ seeds, requests = REQUESTS }: ReproduceOptions): ReproducedTable {
  const models: readonly ModelName[] = ['mistral-7b', 'llama2-7b'];
  const rows = models.flatMap((model) =>
    DATASETS.flatMap((dataset) =>
      RATES.map((perSecond): ReproducedRow => {
        const figures = compareSystems(model, {
          ...{ dataset, k: 2, seeds, requests },
          ...{ rateOf: () => perSecond, ranges: RANGES['figure-15'] },
        });
        return { label: `${model}, ${dataset}, ${perSecond}/s`, figures };
      }),
    ),
  );
  return {
    title: 'Fig. 15: mean TTFT by request rate (top-2, 192 GiB of host memory, batches of 4)',
    model: ENGINE_MODELS.threeServers,
    rows,
    notes: [
      'The paper gives ranges: 1.2 to 4 times less than vLLM and 1.1 to 3.5 times less than SGLang, at rates that differ by model and dataset.',
      'vLLM keeps nothing from one request for another, as in the paper; SGLang keeps what fits the device.',
      CUT,
    ],
  };
}

/** §7.1: throughput of three systems. */
export function throughputTable({ seeds, requests = REQUESTS }: ReproduceOptions): ReproducedTable {
  const models: readonly ModelName[] = ['mistral-7b', 'llama2-7b'];
  const rows = models.flatMap((model) =>
    DATASETS.map((dataset): ReproducedRow => {
      const rates = seeds.map((seed) => {
        const workload = workloadOf(seed, { dataset, k: 2, requests });
        return [vllm(model), sglang(model), ragCache(model, HOST)].map((system) => capacity(system, workload));
      });
      const compare = (system: number, own: number) => own / system;
      return { label: `${model}, ${dataset}`, figures: figuresOf(rates, '/s', compare, RANGES['section-7.1']) };
    }),
  );
  return {
    title: '§7.1: requests a second that each system gets through (top-2, 192 GiB of host memory, batches of 4)',
    model: ENGINE_MODELS.threeServers,
    rows,
    notes: [
      'The paper gives ranges: 1.3 to 2.1 times vLLM, 1.2 to 1.8 times SGLang, where a rate counts that keeps TTFT under 5 times its lowest; here, all requests wait from the start.',
      CUT,
    ],
  };
}

/** Fig. 18: mean TTFT by the number of documents. */
export function topKTable({ seeds, requests = REQUESTS }: ReproduceOptions): ReproducedTable {
  const rows = [1, 2, 3, 5].map((k): ReproducedRow => {
    const rateOf = (seed: number) =>
      0.8 * capacity(vllm('mistral-7b'), workloadOf(seed, { dataset: 'mmlu', k, requests }));
    return {
      label: `top-${k}`,
      figures: compareSystems('mistral-7b', {
        ...{ dataset: 'mmlu', k, seeds, requests, rateOf },
        // The paper has no top-2.
        ranges: k === 2 ? undefined : RANGES['figure-18'],
      }),
    };
  });
  return {
    title: 'Fig. 18: mean TTFT by documents a request (Mistral-7B, MMLU, at 0.8 times the rate that vLLM gets through)',
    model: ENGINE_MODELS.threeServers,
    rows,
    notes: [
      'The paper gives ranges over top-1, 3 and 5: 1.7 to 3.1 times less than vLLM, 1.2 to 2.5 times less than SGLang.',
      'Which documents are retrieved together is inferred: each has eight neighbours. The deeper the path, the rarer it comes again.',
      CUT,
    ],
  };
}

/** Fig. 21: reordering when more comes than can be served. */
export function reorderingTable({ seeds, requests = REQUESTS }: ReproduceOptions): ReproducedTable {
  const rows = DATASETS.flatMap((dataset) =>
    HOST_GIB.slice(1).map((gib): ReproducedRow => {
      const runs = seeds.map((seed) => {
        const system = ragCache('mistral-7b', gib);
        const workload = workloadOf(seed, { dataset, k: 2, requests });
        const arrivals = { perSecond: 1.1 * capacity(system, workload), seed };
        const seconds = (reorders: boolean) =>
          serve({ ...system, reorders }, workload, arrivals).map(({ ttftMs }) => ttftMs / 1_000);
        return { fifo: seconds(false), reordered: seconds(true) };
      });
      const figures = [
        seedFigure(
          'in order s',
          runs.map(({ fifo }) => mean(fifo)),
        ),
        seedFigure(
          'reordered s',
          runs.map(({ reordered }) => mean(reordered)),
        ),
        seedFigure(
          'times less',
          runs.map(({ fifo, reordered }) => mean(fifo) / mean(reordered)),
          [1.2, 2.1],
        ),
        seedFigure(
          'p99 in order s',
          runs.map(({ fifo }) => percentile(fifo, 0.99)),
        ),
        seedFigure(
          'p99 reordered s',
          runs.map(({ reordered }) => percentile(reordered, 0.99)),
        ),
      ];
      return { label: `${dataset}, ${gib} GiB`, figures };
    }),
  );
  return {
    title:
      'Fig. 21: mean TTFT with cache-aware reordering, at 1.1 times what the system gets through (Mistral-7B, top-2, window 32)',
    model: ENGINE_MODELS.threeServers,
    rows,
    notes: ['The paper gives a range: 1.2 to 2.1 times less, at rates slightly above the throughput.', CUT],
  };
}

interface Comparison {
  readonly dataset: RagCacheDatasetName;
  readonly k: number;
  readonly requests: number;
  readonly seeds: readonly number[];
  readonly rateOf: (seed: number) => number;
  readonly ranges: Ranges;
}

/** Mean TTFT of vLLM, SGLang and RAGCache on the same arrivals, and how many times less the last is. */
function compareSystems(
  model: ModelName,
  { dataset, k, requests, seeds, rateOf, ranges }: Comparison,
): ReproducedFigure[] {
  const systems: readonly ServedSystem[] = [vllm(model), sglang(model), ragCache(model, HOST)];
  const means = seeds.map((seed) => {
    const workload = workloadOf(seed, { dataset, k, requests });
    const arrivals = { perSecond: rateOf(seed), seed };
    return systems.map((system) => mean(serve(system, workload, arrivals).map(({ ttftMs }) => ttftMs / 1_000)));
  });
  return figuresOf(means, 's', (system, own) => system / own, ranges);
}

/** Figures of vLLM, SGLang and RAGCache (in this order, by seed), and how the last stands to the others. */
function figuresOf(
  bySeed: readonly (readonly number[])[],
  unit: string,
  compare: (system: number, own: number) => number,
  ranges: Ranges,
): ReproducedFigure[] {
  const values = (place: number) => bySeed.map((figures) => figures[place]!);
  const ratio = (place: number) => bySeed.map((figures) => compare(figures[place]!, figures[2]!));
  return [
    ...['vLLM', 'SGLang', 'RAGCache'].map((name, place) => seedFigure(`${name} ${unit}`, values(place))),
    seedFigure('times vLLM', ratio(0), ranges?.[0]),
    seedFigure('times SGLang', ratio(1), ranges?.[1]),
  ];
}

function seedFigure(name: string, values: readonly number[], paper?: PaperRange): ReproducedFigure {
  const { mean: ours, se } = estimate(values);
  return { name, paper, ours, se, places: 2 };
}

function workloadOf(seed: number, options: Pick<Comparison, 'dataset' | 'k' | 'requests'>): Workload {
  return ragCacheWorkload(seed, { ...options, mostTokens: MAX_DOCUMENT_TOKENS });
}
