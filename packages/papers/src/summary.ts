import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { WarmpathError } from '@warmpath/core';
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
    ['Table 6, NQ-Open', 'only with `--data`: the data set is not in this repository'],
  ],
  'cp-tree': [['BERTScore, F1, t-test', NEEDS_MODEL]],
  ragboost: [
    ['F1 and accuracy, of hint positions and agents too', NEEDS_MODEL],
    ['LMCache, CacheBlend, HiCache', 'other mechanisms; docs/research/non-prefix-reuse.md simulates the second'],
    ['Figures 9, 10', 'attention maps of models'],
  ],
};

/** Tables that come out because they went in: what they were made from, or fitted to. */
export const NO_EVIDENCE: Readonly<Record<string, string>> = {
  'ragcache figures-3-7': 'speed of the device and of its copies are fitted to it',
  'ragcache figures-4-5': 'the workloads are drawn so',
  'ragcache++ table-5': 'sums of three times that the paper measured; by our model nothing is saved',
  'cp-tree observations': 'the traces are shaped to the three shares',
};

/** Why tables deviate that do; their notes say it at length. */
export const DEVIATES: Readonly<Record<string, string>> = {
  'ragcache figure-20':
    'LFU is level or ahead here: popularity does not change in these requests, and then nothing beats counting',
  'ragcache table-2':
    'the skew of the Natural Questions is not published (ours is flatter); GDSF, LRU and LFU are faster here',
  'ragcache table-3': 'up to 17 % less search is left without overlap: one prompt is prefilled at a time here',
  'ragcache section-7.5': "another machine's clock",
  'ragcache++ table-3': "another machine's clock; what is left to compute agrees",
  'ragcache++ table-10': 'its p95 lies below its own cold median, which no prompt without reuse can here',
  'ragcache++ table-12': 'medians move in steps of a document here (22 ms on this GPU), and gains with them',
  'ragcache++ section-4.4': 'the median request reuses as much in either order: 0 here, 2.2 % there',
  'ragcache++ table-6': 'a prompt that is held whole takes 28.8 ms there and 21 here; the note says what is measured',
  'cacheweaver table-3a': 'two latency parameters of this GPU, fitted to another campaign',
  'cacheweaver table-5': 'medians move in steps of a document; a whole hit takes 32 ms there and 20 here',
  'cacheweaver table-6': 'without locality 0 here, -0.2 and -1.0 % there; NQ-Open gains 18 % in place of 14',
  'cacheweaver table-8': "another machine's clock; what is left to compute agrees",
  'cacheweaver table-10': 'passages all have one length here, and equal scores another order',
  'ragboost section-3.2': "skew and depth are the paper's, topics ours: MultihopRAG comes out lower, QASPER higher",
  'ragboost table-1': 'throughput beside tokens: the hits of its own Figure 7 allow 1.39 to 1.57 in tokens',
  'ragboost table-2a': 'leaving out 40 % of the documents saves 1.67 at most; a gain of 2 has further sources',
  'ragboost table-2b': 'time with waiting and batching in the paper, tokens here',
  'ragboost figure-7': 'retrieval order reuses less of our traces, and vLLM as much as SGLang',
  'ragboost figure-8': 'as Table 1: throughput beside tokens',
  'ragboost section-7.2': 'as Figure 7; with a schedule, memory makes no difference here',
  'ragboost section-7.2-window': 'stretches of 64 are planned by themselves here, and lose 11 points in place of 5',
  'ragboost chain-of-agents': 'traces of agents are not published; a gain in tokens, of all prompts',
  'ragboost table-2c': "another machine's clock: below the GPU's up to 512 contexts, above at 4,096",
};

/** Lines of the summary in a file, table by table, so that a run that was stopped goes on where it was. */
export class KeptLines {
  readonly #file: string;
  readonly #settings: string;
  readonly #lines: Record<string, string>;

  /**
   * Opens the file, or begins one. `settings` decide the figures. Error: `WARMPATH_USAGE` for a file that cannot be
   * read, is none of these, or was begun with other settings.
   */
  constructor(file: string, settings: string) {
    this.#file = file;
    this.#settings = settings;
    const kept = readKept(file);
    if (kept !== undefined && kept.settings !== settings) {
      throw new WarmpathError('WARMPATH_USAGE', {
        path: '--resume',
        detail: `${file} was begun with ${kept.settings}`,
      });
    }
    this.#lines = { ...kept?.lines };
  }

  /** The line of a table, made now if it is not there. Error: `WARMPATH_USAGE` if it cannot be written. */
  line(name: string, make: () => string): string {
    const known = this.#lines[name];
    if (known !== undefined) return known;
    const line = make();
    this.#lines[name] = line;
    try {
      const part = `${this.#file}.part`;
      writeFileSync(part, `${JSON.stringify({ settings: this.#settings, lines: this.#lines }, null, 2)}\n`);
      renameSync(part, this.#file);
    } catch (cause) {
      throw new WarmpathError('WARMPATH_USAGE', { path: '--resume', detail: `cannot write ${this.#file}`, cause });
    }
    return line;
  }
}

/** What a file keeps; `undefined` if there is none. */
function readKept(file: string): { readonly settings: string; readonly lines: Record<string, string> } | undefined {
  try {
    const { settings, lines } = JSON.parse(readFileSync(file, 'utf8'));
    if (typeof settings === 'string' && typeof lines === 'object') return { settings, lines };
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
  }
  throw new WarmpathError('WARMPATH_USAGE', { path: '--resume', detail: `${file} holds no lines of a summary` });
}

/**
 * All tables of all papers, each as soon as it is made; takes minutes. `isQuick`: two seeds of each workload. `kept`:
 * where lines are kept for a later run.
 */
export function* summaryLines(
  options: Partial<ReproduceOptions> & { readonly isQuick?: boolean } = {},
  kept?: KeptLines,
): Generator<string> {
  const { isQuick = false, ...rest } = options;
  yield '| paper | table | figures | within a tenth | verdict |';
  yield '| --- | --- | ---: | ---: | --- |';
  for (const paper of PAPERS) {
    const settings = { ...(isQuick && { seeds: seedsOf(paper).slice(0, QUICK_SEEDS) }), ...rest };
    for (const table of tablesOf(paper)) {
      const make = () => lineOf(paper, table, reproduce(paper, table, settings));
      yield kept?.line(`${paper} ${table}`, make) ?? make();
    }
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
  const name = `${paper} ${table}`;
  if (NO_EVIDENCE[name] !== undefined) return `no evidence: ${NO_EVIDENCE[name]}`;
  if (share >= REPRODUCED) return 'reproduced';
  const why = DEVIATES[name];
  return why === undefined ? 'deviates; see its notes' : `deviates: ${why}`;
}
