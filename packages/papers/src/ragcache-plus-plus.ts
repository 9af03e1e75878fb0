import { createWorkload, mean, meanAdjacentJaccard, percentile, RTX_4060_TI } from '@warmpath/lab';
import { ENGINE_MODELS, type PaperTable, type ReproducedTable } from './reproduction.js';
import { countedTtft, gain, type HeadlineRow, headlineRows, SEED, type Strategy, ttftFigures } from './strategies.js';

type PaperRow = readonly [strategy: Strategy, ...figures: number[]];

const TABLE_1: readonly HeadlineRow[] = [
  ['No Cache', 121.3, 123.7, 121.4, 0],
  ['APC+Retrieval', 59.6, 117.4, 55.9, 12.3],
  ['APC+Sorted', 81.2, 118.7, 76.3, 25.6],
  ['APC+Optimized', 40.1, 117.4, 51.4, 19],
];

const TABLE_9: readonly PaperRow[] = [
  ['No Cache', 116.9, 116.8],
  ['APC+Sorted', 77.9, 74],
  ['APC+Recency', 55.3, 52.8],
  ['APC+Retrieval', 56.8, 54.1],
  ['APC+Optimized', 41, 51.2],
  ['APC+Oracle', 40, 50],
];

const TABLE_10: readonly PaperRow[] = [
  ['No Cache', 110.3, 113.1, 109.5],
  ['APC+Retrieval', 96.5, 103.1, 96.1],
  ['APC+Optimized', 92.2, 103, 85.7],
];

const TABLE_12 = [
  ['0.0', 0.386, 126.8, 111.7],
  ['0.2', 0.386, 128.9, 114.2],
  ['0.4', 0.417, 111.1, 77.8],
  ['0.6', 0.526, 75.5, 60.5],
  ['0.8', 0.661, 50.4, 50.8],
] as const;

/** RAGCache++'s tables that rest on its published generators. Takes about a second. */
export const RAGCACHE_PLUS_PLUS_TABLES: readonly PaperTable[] = [
  { name: 'table-1', reproduce: headlineTable },
  { name: 'table-9', reproduce: baselineTable },
  { name: 'table-10', reproduce: geospatialTable },
  { name: 'table-12', reproduce: overlapTable },
  { name: 'section-4.4', reproduce: trueZeroTable },
];

function headlineTable(): ReproducedTable {
  const { rows, fastByDefinition } = headlineRows(createWorkload('headline', { seed: SEED }), TABLE_1);
  return {
    title: 'Table 1, RTX 4090: headline, 200 requests, k = 5',
    model: ENGINE_MODELS.vllmOnRtx4090,
    rows,
    notes: [
      "Fast% follows the published code: a request is fast below 0.6 of the median of the same strategy's first five requests, which are warm already. " +
        `By the definition in the text (0.6 of the cold baseline) it is: ${fastByDefinition}. That sorting «hits more often but shallower» is an artefact of the code's rule.`,
      'The 200 requests visit 20 of the 50 regions once: 100 and 500 documents give the same kind of trace, and nothing is reused between bursts.',
      'The published code follows an arbitrary child where several match (a Python set); ours follows retrieval rank, as Algorithm 1 says. On this trace it makes no difference.',
    ],
  };
}

function baselineTable(): ReproducedTable {
  const workload = createWorkload('headline', { seed: SEED });
  return {
    title: 'Table 9, RTX 4090: ordering baselines on the headline trace',
    model: ENGINE_MODELS.vllmOnRtx4090,
    rows: TABLE_9.map(([strategy, p50, average]) => ({
      label: strategy,
      figures: ttftFigures(countedTtft(workload, strategy), { p50, average }),
    })),
    notes: [
      '«Greedy reaches 97.5 % of the oracle» holds for the median. By mean cached documents over 30 seeds greedy gets about 90 % of the gain of the oracle over retrieval order here, and 79 % on the geospatial trace.',
      'Recency reaches the median of greedy here (0.776 of the tokens cached); the paper measured 55.3 ms.',
    ],
  };
}

function geospatialTable(): ReproducedTable {
  const workload = createWorkload('geospatial', { seed: SEED });
  return {
    title: 'Table 10, RTX 4090: geospatial, 200 requests',
    model: ENGINE_MODELS.vllmOnRtx4090,
    rows: TABLE_10.map(([strategy, p50, p95, average]) => ({
      label: strategy,
      figures: ttftFigures(countedTtft(workload, strategy), { p50, p95, average }),
    })),
    notes: [
      'Ranks are random in this generator, and only the first 15 documents of the cities within reach are ever asked for.',
    ],
  };
}

function overlapTable(): ReproducedTable {
  return {
    title: 'Table 12, RTX 4060 Ti: sweep over the overlap',
    model: ENGINE_MODELS.vllmOnRtx4060Ti,
    rows: TABLE_12.map(([overlap, jaccard, retrieval, optimized]) => {
      const workload = createWorkload(`overlap-${overlap}`, { seed: SEED });
      const p50 = (strategy: Strategy) => percentile(countedTtft(workload, strategy, RTX_4060_TI), 0.5);
      const ours = { retrieval: p50('APC+Retrieval'), optimized: p50('APC+Optimized') };
      return {
        label: `overlap ${overlap}`,
        figures: [
          { name: 'Jaccard', paper: jaccard, ours: meanAdjacentJaccard(workload.requests), places: 3 },
          { name: 'retrieval p50 ms', paper: retrieval, ours: ours.retrieval },
          { name: 'optimized p50 ms', paper: optimized, ours: ours.optimized },
          { name: 'gain %', paper: gain(retrieval, optimized), ours: gain(ours.retrieval, ours.optimized) },
        ],
      };
    }),
    notes: [
      'The published overlaps come out with 60 requests, not with the 100 or 200 of the set-up; the 0.36 of the text is that of 200.',
      'An overlap of 0.0 still keeps one document (at least one is always shared), so 0.0 and 0.2 are the same trace.',
      'The two latency parameters of this GPU are fitted to these very medians; single ones are up to 13 ms off.',
    ],
  };
}

function trueZeroTable(): ReproducedTable {
  const workload = createWorkload('true-zero', { seed: SEED });
  const average = (strategy: Strategy) => mean(countedTtft(workload, strategy));
  const p50 = (strategy: Strategy) => percentile(countedTtft(workload, strategy), 0.5);
  const gains = {
    p50: gain(p50('APC+Retrieval'), p50('APC+Optimized')),
    mean: gain(average('APC+Retrieval'), average('APC+Optimized')),
  };
  return {
    title: '§4.4, RTX 4090: true zero overlap between adjacent requests',
    model: ENGINE_MODELS.vllmOnRtx4090,
    rows: [
      {
        label: 'greedy over retrieval order',
        figures: [
          { name: 'p50 gain %', paper: 2.2, ours: gains.p50 },
          { name: 'mean gain %', paper: undefined, ours: gains.mean },
        ],
      },
    ],
    notes: [
      'Adjacent requests share nothing, but every region comes back four times: the median hides what the mean shows, and «true zero» is not zero reuse.',
    ],
  };
}
