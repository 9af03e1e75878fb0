import { PAPERS, type PaperName, reproduce, tablesOf } from './papers.js';
import type { ReproducedTable, ReproduceOptions } from './reproduction.js';

/** Part of the paper's figures that must come within a tenth for a table to count as reproduced. */
const REPRODUCED = 0.8;

const NEEDS_MODEL = "answers of the paper's models; `warmpath lab eval` measures them on an engine of yours";
const NEEDS_GPU = 'times of kernels and memory of a GPU, which a simulation takes as given';

/** What has no counterpart here, and why. */
const NOT_RUN: Readonly<Record<PaperName, readonly (readonly [what: string, why: string])[]>> = {
  ragcache: [
    ['Figures 3 to 8', `characterisation: ${NEEDS_GPU}; ours are fitted to Figures 3, 7 and 8`],
    ['Figures 16, 17', "a company's requests, not published"],
    ['Figure 19', 'two H800s, of which no figure gives the prefill time'],
  ],
  'ragcache++': [
    ['Table 2', `answer quality: ${NEEDS_MODEL}`],
    ['Tables 3, 4', 'throughput and profile: wall-clock of vLLM and its scheduler'],
    ['Tables 5, 6', 'pipelining: sums of two measured times, T_sys and T_ret; nothing is simulated in them'],
  ],
  cacheweaver: [
    ['Table 7', `answer quality: ${NEEDS_MODEL}`],
    [
      'Table 6, NQ-Open',
      'the slice of passages is not published; docs/lab/data.md has NQ-open searched in its own records',
    ],
  ],
  'cp-tree': [['BERTScore, F1, t-test', NEEDS_MODEL]],
  ragboost: [
    ['F1 and accuracy', NEEDS_MODEL],
    ['hint position', `below 0.5 % of accuracy: ${NEEDS_MODEL}`],
    ['chain of agents', 'the traces of agents are not published'],
    ['worst case', 'a wall-clock overhead of index and hint on requests that share nothing'],
    [
      'search and update, 15 µs',
      'wall-clock of another machine; `npm run papers -- ragboost table-2c` times the construction',
    ],
  ],
};

/** Why tables deviate that do; their notes say it at length. */
const DEVIATES: Readonly<Record<string, string>> = {
  'ragcache figure-15': "a paper's range of ratios beside single ratios of ours",
  'ragcache figure-20': 'skew of the Natural Questions and documents retrieved together are inferred',
  'ragcache++ table-9': 'recency reaches greedy in our caches, and did not in the measurement',
  'ragcache++ table-12': 'latency of the second GPU is fitted to these very medians',
  'cp-tree evaluation': 'a range over unnamed workloads',
  'ragboost table-2b': 'time with waiting and batching in the paper, tokens here',
};

/** One line of the summary. */
interface SummaryRow {
  readonly paper: PaperName;
  readonly table: string;
  /** Figures that the paper gives, and those of ours within a tenth of them. */
  readonly compared: number;
  readonly near: number;
}

/** One paper's table against ours. O(figures). */
function summarise(paper: PaperName, table: string, reproduced: readonly ReproducedTable[]): SummaryRow {
  const figures = reproduced.flatMap(({ rows }) => rows.flatMap((row) => row.figures));
  const compared = figures.filter(({ paper: theirs }) => theirs !== undefined);
  const near = compared.filter(({ paper: theirs, ours }) => Math.abs(ours - theirs!) <= Math.abs(theirs!) / 10);
  return { paper, table, compared: compared.length, near: near.length };
}

/** All tables of all papers, each as soon as it is made; takes minutes. */
export function* summaryLines(options: Partial<ReproduceOptions> = {}): Generator<string> {
  yield '| paper | table | figures | within a tenth | |';
  yield '| --- | --- | ---: | ---: | --- |';
  for (const paper of PAPERS) {
    for (const table of tablesOf(paper)) yield lineOf(summarise(paper, table, reproduce(paper, table, options)));
  }
  yield '\n## What cannot be run here\n';
  for (const paper of PAPERS) for (const [what, why] of NOT_RUN[paper]) yield `- ${paper}, ${what}: ${why}`;
}

function lineOf({ paper, table, compared, near }: SummaryRow): string {
  return `| ${paper} | ${table} | ${compared} | ${near} | ${verdict(paper, table, near / compared)} |`;
}

function verdict(paper: PaperName, table: string, share: number): string {
  if (Number.isNaN(share)) return 'ours alone; the paper gives ranges, a drawing or nothing';
  if (share >= REPRODUCED) return 'reproduced';
  const why = DEVIATES[`${paper} ${table}`];
  return why === undefined ? 'deviates; see its notes' : `deviates: ${why}`;
}
