import type { CostModel } from '@warmpath/core/internal';
import {
  createNoCache,
  type LabPolicyName,
  mean,
  percentile,
  RTX_4090,
  type ServedOutcome,
  simulate,
  type Workload,
} from '@warmpath/lab';
import type { ReproducedRow } from './reproduction.js';

/** The seed of the published traces. */
export const SEED = 42;
/** Requests that RAGCache++ and CacheWeaver serve first and do not count. */
export const WARM_UP = 5;
/** Their threshold of a fast request. */
const FAST = 0.6;

/** The strategies of RAGCache++ and CacheWeaver, and our names of them; `none` is an engine without a cache. */
export const STRATEGIES = {
  'No Cache': 'none',
  'APC+Retrieval': 'retrieval',
  'APC+Sorted': 'sorted',
  'APC+Recency': 'recency',
  'APC+Optimized': 'greedy',
  'APC+Oracle': 'exact',
} as const satisfies Record<string, LabPolicyName | 'none'>;

export type Strategy = keyof typeof STRATEGIES;

/** A strategy's published p50, p95, mean and Fast%. */
export type HeadlineRow = readonly [strategy: Strategy, p50: number, p95: number, mean: number, fast: number];

/** What every request of a run got, the warm-up too. */
export function serveWith(workload: Workload, strategy: Strategy, latency: CostModel = RTX_4090): ServedOutcome[] {
  const policy = STRATEGIES[strategy];
  return policy === 'none'
    ? simulate(workload, 'retrieval', { cache: createNoCache(), latency })
    : simulate(workload, policy, { latency });
}

/** TTFT of every counted request of a run. */
export function countedTtft(workload: Workload, strategy: Strategy, latency: CostModel = RTX_4090): number[] {
  return serveWith(workload, strategy, latency)
    .slice(WARM_UP)
    .map(({ ttftMs }) => ttftMs);
}

type Published = number | undefined;

/** Published milliseconds of a strategy beside ours; a table without p95 has no such member. */
export function ttftFigures(
  ttft: readonly number[],
  paper: { readonly p50: Published; readonly p95?: Published; readonly average: Published },
): ReproducedRow['figures'] {
  return [
    { name: 'p50 ms', paper: paper.p50, ours: percentile(ttft, 0.5) },
    ...('p95' in paper ? [{ name: 'p95 ms', paper: paper.p95, ours: percentile(ttft, 0.95) }] : []),
    { name: 'mean ms', paper: paper.average, ours: mean(ttft) },
  ];
}

/** Percent by which a figure fell. */
export function gain(before: number, after: number): number {
  return 100 * (1 - after / before);
}

/** The headline table of both papers, and what Fast% is by the definition in their text. */
export function headlineRows(
  workload: Workload,
  published: readonly HeadlineRow[],
  latency: CostModel = RTX_4090,
): { readonly rows: readonly ReproducedRow[]; readonly fastByDefinition: string } {
  const cold = mean(serveWith(workload, 'No Cache', latency).map(({ ttftMs }) => ttftMs));
  const byDefinition: string[] = [];
  const rows = published.map(([strategy, p50, p95, average, fast]): ReproducedRow => {
    const ttft = serveWith(workload, strategy, latency).map(({ ttftMs }) => ttftMs);
    const counted = ttft.slice(WARM_UP);
    const own = percentile(ttft.slice(0, WARM_UP), 0.5);
    byDefinition.push(`${strategy} ${fastShare(counted, cold).toFixed(1)}`);
    return {
      label: strategy,
      figures: [
        ...ttftFigures(counted, { p50, p95, average }),
        { name: 'Fast%', paper: fast, ours: fastShare(counted, own) },
      ],
    };
  });
  return { rows, fastByDefinition: byDefinition.join(', ') };
}

/** Percent below the fast threshold. */
function fastShare(ttft: readonly number[], baseline: number): number {
  return 100 * mean(ttft.map((value) => (value < FAST * baseline ? 1 : 0)));
}
