import { type ReplacementPolicy, replacementPolicy } from '@warmpath/core/internal';
import {
  estimate,
  mean,
  type RagCacheDatasetName,
  ragCacheWorkload,
  serveAtOnce,
  TieredTree,
  type Workload,
} from '@warmpath/lab';
import {
  ENGINE_MODELS,
  type PaperRange,
  type ReproducedFigure,
  type ReproducedRow,
  type ReproducedTable,
  type ReproduceOptions,
} from '../reproduction.js';
import { DATASETS, HOST_GIB, ragCache, serve } from './serving.js';
import { A10G, DEVICE_GIB, MAX_DOCUMENT_TOKENS, tokensOf } from './testbed.js';

/** An hour at the paper's 0.8 requests a second (§7.4). */
const REQUESTS = 2_880;
const PER_SECOND = 0.8;

/** The policies of §7.4, and two of the first with the memory that PGDSF has, to see what wins. */
const POLICIES: Readonly<Record<string, ReplacementPolicy>> = {
  PGDSF: replacementPolicy('pgdsf'),
  GDSF: replacementPolicy('gdsf'),
  LRU: replacementPolicy('lru'),
  LFU: replacementPolicy('lfu'),
  'GDSF remembering': { ...replacementPolicy('gdsf'), remembersEvicted: true },
  'LFU remembering': { ...replacementPolicy('lfu'), remembersEvicted: true },
};

/** Mean TTFT in seconds of PGDSF, GDSF, LRU and LFU by GiB of host memory (Table 2). */
const TABLE_2: Readonly<Record<RagCacheDatasetName, Readonly<Record<number, readonly number[]>>>> = {
  mmlu: {
    8: [1.38, 1.68, 1.78, 1.81],
    16: [1.32, 1.55, 1.61, 1.63],
    32: [1.23, 1.45, 1.5, 1.49],
    64: [1.06, 1.27, 1.28, 1.29],
    128: [0.83, 0.98, 1.01, 1.03],
  },
  'natural-questions': {
    8: [2.85, 3.35, 3.41, 3.36],
    16: [2.5, 2.89, 2.92, 2.98],
    32: [2, 2.09, 2.25, 2.2],
    64: [1.32, 1.47, 1.56, 1.55],
    128: [0.78, 0.92, 0.95, 0.95],
  },
};

/** How many times the hit rate of others PGDSF's is in Fig. 20, at its least and at its most. */
const FIGURE_20: Readonly<Partial<Record<string, PaperRange>>> = {
  GDSF: [1.02, 1.32],
  LRU: [1.06, 1.62],
  LFU: [1.06, 1.75],
};

/** Hit rates alone: what is cached, and no time but in what PGDSF weighs. */
const TIERED = `RAGCache's tree of whole documents over device and host, one prompt at a time; PGDSF weighs ${ENGINE_MODELS.a10g}`;

/** Fig. 20: hit rates by replacement policy, on shuffled questions. */
export function hitRateTable(options: ReproduceOptions): ReproducedTable {
  return {
    title: 'Fig. 20: hit rate of PGDSF, and how many times that of others, by host memory (Mistral-7B, top-2)',
    model: TIERED,
    rows: hitRateRows(options, 0, FIGURE_20),
    notes: [
      'The paper gives ranges: 1.02 to 1.32 times GDSF, 1.06 to 1.62 times LRU, 1.06 to 1.75 times LFU.',
      'The columns «remembering» count uses from before an eviction, as PGDSF does: against GDSF nearly all of the gain is that memory; cost a token adds a percent or two.',
      'LFU is not behind here, and ahead where it remembers: questions are shuffled, so popularity never changes, and then nothing beats counting. See drift.',
      'Documents at full length, 3,718 tokens on average; requests one after another.',
    ],
  };
}

/** The same where popular documents change. */
export function driftingHitRateTable(options: ReproduceOptions): ReproducedTable {
  return {
    title: 'Fig. 20 with drift: at every tenth request, a popular document changes places with any other',
    model: TIERED,
    rows: hitRateRows(options, 0.1, {}),
    notes: [
      'Not in the paper, whose questions are shuffled. Where popularity changes, counts that never age hold on to what is over: LFU falls behind, and the clock of PGDSF pays.',
    ],
  };
}

/** Table 2: mean TTFT by replacement policy. */
export function replacementTtftTable({ seeds, requests = REQUESTS }: ReproduceOptions): ReproducedTable {
  const rows = DATASETS.flatMap((dataset) =>
    HOST_GIB.map((gib): ReproducedRow => {
      const figures = Object.entries(POLICIES)
        .slice(0, 5)
        .map(([name, policy], place): ReproducedFigure => {
          const means = seeds.map((seed) => {
            const workload = ragCacheWorkload(seed, {
              dataset,
              k: 2,
              requests,
              mostTokens: MAX_DOCUMENT_TOKENS,
            });
            const outcomes = serve(ragCache('mistral-7b', gib, policy), workload, { perSecond: PER_SECOND, seed });
            return mean(outcomes.map(({ ttftMs }) => ttftMs / 1_000));
          });
          const { mean: ours, se } = estimate(means);
          return { name: `${name} s`, paper: TABLE_2[dataset][gib]?.[place], ours, se, places: 2 };
        });
      return { label: `${dataset}, ${gib} GiB`, figures };
    }),
  );
  return {
    title:
      'Table 2: mean TTFT by replacement policy and host memory (Mistral-7B, top-2, 0.8 requests a second, batches of 4)',
    model: ENGINE_MODELS.ragCacheServer,
    rows,
    notes: [
      `Documents are cut to ${MAX_DOCUMENT_TOKENS} tokens: at full length the paper's rate is beyond the device by its own Fig. 3.`,
      'Skew of Natural Questions, number of documents, speed of the device and of its host copies are inferred; absolute times are of the right size, no more. Retrieval time is left out.',
    ],
  };
}

function hitRateRows(
  { seeds, requests = REQUESTS }: ReproduceOptions,
  drift: number,
  published: typeof FIGURE_20,
): ReproducedRow[] {
  return DATASETS.flatMap((dataset) => {
    const workloads = seeds.map((seed) => ragCacheWorkload(seed, { dataset, k: 2, requests, drift }));
    return HOST_GIB.map((gib): ReproducedRow => {
      const rates = Object.values(POLICIES).map((policy) =>
        workloads.map((workload) => hitRate(workload, gib, policy)),
      );
      const [own, ...others] = rates;
      const { mean: ours, se } = estimate(own!);
      const ratios = others.map((other, place): ReproducedFigure => {
        // Paired: the ratio of each seed by itself.
        const ratio = estimate(own!.map((rate, seed) => rate / other[seed]!));
        const policy = Object.keys(POLICIES)[place + 1]!;
        return { name: `× ${policy}`, paper: published[policy], ours: ratio.mean, se: ratio.se, places: 2 };
      });
      const figures = [{ name: 'PGDSF', paper: undefined, ours, se, places: 3 }, ...ratios];
      return { label: `${dataset}, ${gib} GiB`, figures };
    });
  });
}

/** Documents hit over documents retrieved (§7.4), requests one after another. */
function hitRate(workload: Workload, gib: number, policy: ReplacementPolicy): number {
  const tree = new TieredTree({
    deviceTokens: tokensOf('mistral-7b', DEVICE_GIB),
    hostTokens: tokensOf('mistral-7b', gib),
    policy,
    cost: A10G,
  });
  let hits = 0;
  let retrieved = 0;
  for (const { documents, question } of workload.requests) {
    let left = serveAtOnce(tree, { spans: [workload.preamble, ...documents, question] }) - workload.preamble.tokens;
    for (const { tokens } of documents) {
      retrieved++;
      left -= tokens;
      if (left >= 0) hits++;
    }
  }
  return hits / retrieved;
}
