import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Passage } from './chunk.js';

/** Path of a file in this package's `data` folder, from `src` and from `dist` alike. */
function dataFile(name: string): string {
  return fileURLToPath(new URL(`../../data/${name}`, import.meta.url));
}

/** Consecutive questions on one topic, as one person asks them while at work on it. */
export interface Burst {
  readonly topic: string;
  readonly questions: readonly string[];
}

export const WORKLOAD_NAMES = ['focused', 'broad'] as const;
/**
 * How much the questions of a burst have in common: `focused`, follow-up questions on one narrow subject; `broad`,
 * different sides of a whole task, which share few passages.
 */
export type WorkloadName = (typeof WORKLOAD_NAMES)[number];

/** The demo's questions about the corpus, twelve bursts of five, in the order in which they are asked. */
export async function readQuestions(workload: WorkloadName): Promise<readonly Burst[]> {
  const file = JSON.parse(await readFile(dataFile('questions.json'), 'utf8')) as Record<WorkloadName, readonly Burst[]>;
  return file[workload];
}

/** One question of the almanac and the one right answer. */
export interface AlmanacQuestion {
  readonly id: string;
  readonly text: string;
  readonly answer: string;
  /** Id of the entry that holds the answer. */
  readonly entry: string;
}

/** A small book of invented facts: a right answer can only come from the prompt. In BEIR's layout. */
export interface Almanac {
  readonly entries: readonly Passage[];
  /** In bursts that share entries. */
  readonly questions: readonly AlmanacQuestion[];
}

interface CorpusLine {
  readonly _id: string;
  readonly title: string;
  readonly text: string;
}

interface QueryLine {
  readonly _id: string;
  readonly text: string;
  readonly metadata: { readonly answer: string };
}

/** Reads the almanac that ships with this package: 96 entries, 256 questions. */
export async function readAlmanac(): Promise<Almanac> {
  const corpus = await readLines<CorpusLine>('almanac/corpus.jsonl');
  const queries = await readLines<QueryLine>('almanac/queries.jsonl');
  const relevant = await readRelevance();
  return {
    entries: corpus.map((line) => ({ id: line._id, title: line.title, content: line.text })),
    questions: queries.map((line) => ({
      id: line._id,
      text: line.text,
      answer: line.metadata.answer,
      entry: relevant.get(line._id)!,
    })),
  };
}

/**
 * Whether an answer is right, word for word: white space at the ends and a full stop are forgiven, nothing else.
 */
export function isExactAnswer(answer: string, expected: string): boolean {
  return answer.trim().replace(/\.$/, '') === expected;
}

async function readLines<Line>(name: string): Promise<readonly Line[]> {
  const text = await readFile(dataFile(name), 'utf8');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}

/** `query-id → corpus-id`, of a file with a header and tab-separated columns. */
async function readRelevance(): Promise<ReadonlyMap<string, string>> {
  const text = await readFile(dataFile('almanac/qrels/test.tsv'), 'utf8');
  const rows = text.trim().split('\n').slice(1);
  return new Map(rows.map((row) => row.split('\t') as [string, string]));
}
