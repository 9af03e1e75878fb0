import { PAPERS, type PaperName, reproduce, seedsOf, tablesOf } from './papers.js';
import { comparedFigures, isNear, type ReproducedTable, type ReproduceOptions } from './reproduction.js';

/** Part of the paper's figures that must come within a tenth for a table to count as reproduced. */
const REPRODUCED = 0.8;

/** Seeds of each drawn workload where a summary is to be quick. */
const QUICK_SEEDS = 2;

const NEEDS_MODEL = "answers of the paper's models; `warmpath lab eval` measures them on an engine of yours";

/** What has no counterpart here, and why. */
const NOT_RUN: Readonly<Record<PaperName, readonly (readonly [what: string, why: string])[]>> = {
  ragcache: [
    ['Figure 6', 'other embeddings and indexes, drawn without a number; the text says that they change nothing'],
    ['Figure 8', 'when a search finds its final documents: taken from it as an input of Table 3'],
    ['Figures 16, 17', "a company's requests, not published"],
    ['Figure 19', 'two H800s, of which no figure gives the prefill time'],
  ],
  'ragcache++': [
    ['Table 2', `answer quality: ${NEEDS_MODEL}`],
    ['Table 4, batched columns', 'they send prompts a second time that the engine holds whole'],
    ['GPU memory (§4.6)', 'a pool that vLLM sets aside, whatever the order'],
  ],
  cacheweaver: [
    ['Table 7', `answer quality: ${NEEDS_MODEL}`],
    ['Table 6, NQ-Open', 'without `--data`: the data set is not in this repository'],
  ],
  'cp-tree': [['BERTScore, F1, t-test', NEEDS_MODEL]],
  ragboost: [
    ['F1 and accuracy, of hint positions and agents too', NEEDS_MODEL],
    ['LMCache, CacheBlend, HiCache', 'other mechanisms; docs/research/non-prefix-reuse.md simulates the second'],
    ['Figures 9, 10', 'attention maps of models'],
  ],
};

/** Why tables deviate that do; their notes say it at length. */
const DEVIATES: Readonly<Record<string, string>> = {};

/** All tables of all papers, each as soon as it is made; takes minutes. `isQuick`: two seeds of each workload. */
export function* summaryLines(
  options: Partial<ReproduceOptions> & { readonly isQuick?: boolean } = {},
): Generator<string> {
  const { isQuick = false, ...rest } = options;
  yield '| paper | table | figures | within a tenth | verdict |';
  yield '| --- | --- | ---: | ---: | --- |';
  for (const paper of PAPERS) {
    const settings = { ...(isQuick && { seeds: seedsOf(paper).slice(0, QUICK_SEEDS) }), ...rest };
    for (const table of tablesOf(paper)) yield lineOf(paper, table, reproduce(paper, table, settings));
  }
  yield '\n## What cannot be run here\n';
  for (const paper of PAPERS) for (const [what, why] of NOT_RUN[paper]) yield `- ${paper}, ${what}: ${why}`;
}

/** One table of a paper against ours. O(figures). */
function lineOf(paper: PaperName, table: string, reproduced: readonly ReproducedTable[]): string {
  const compared = comparedFigures(reproduced);
  const near = compared.filter(isNear).length;
  return `| ${paper} | ${table} | ${compared.length} | ${near} | ${verdict(paper, table, near / compared.length)} |`;
}

function verdict(paper: PaperName, table: string, share: number): string {
  if (Number.isNaN(share)) return 'ours alone: the paper gives no number';
  if (share >= REPRODUCED) return 'reproduced';
  const why = DEVIATES[`${paper} ${table}`];
  return why === undefined ? 'deviates; see its notes' : `deviates: ${why}`;
}
