import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { WorkloadRequest } from '../workloads/workload.js';
import { invalid, JsonFields } from './json-fields.js';
import { readLines } from './lines.js';
import { type Passage, Retriever, readCorpus } from './passages.js';
import { type GoldAnswers, questionKey, readGoldAnswers, singleRequest } from './requests.js';

/** The passages that a query brings along, and where that is written. */
export interface QueryContext {
  readonly ids: readonly string[];
  readonly path: string;
}

/** A query of a BEIR folder. */
export interface BeirQuery {
  readonly id: string;
  readonly text: string;
  /** Where the data say which passages stand in the prompt (`metadata.context`). */
  readonly context: QueryContext | undefined;
  /** The right answers that the data state. */
  readonly gold: GoldAnswers | undefined;
}

/**
 * Reads `queries.jsonl`: `{_id, text, metadata?: {context?: [id, …], …}}` a line; `readGoldAnswers` says where answers
 * stand. Errors with line and path.
 */
export async function* readQueries(folder: string): AsyncGenerator<BeirQuery> {
  for await (const line of readLines(join(folder, 'queries.jsonl'))) {
    const fields = JsonFields.ofLine(line, 'queries.jsonl');
    const metadata = fields.has('metadata') ? fields.object('metadata') : undefined;
    const context = metadata?.has('context')
      ? { ids: metadata.texts('context'), path: metadata.pathOf('context') }
      : undefined;
    const gold = metadata === undefined ? undefined : readGoldAnswers(metadata);
    yield { id: fields.text('_id'), text: fields.text('text'), context, gold };
  }
}

/** Every query with the `topK` passages that BM25 finds for it; fewer where fewer share a word with it. */
export async function* beirRequests(folder: string, topK: number): AsyncGenerator<WorkloadRequest> {
  const retriever = new Retriever(await readCorpus(folder));
  for await (const { id, text } of readQueries(folder)) {
    const found = retriever.search(text, topK);
    yield singleRequest(
      id,
      text,
      found.map(({ document }) => document),
    );
  }
}

/**
 * Every query with the passages that its own `metadata.context` lists, in that order, at most `topK`. Error:
 * `WARMPATH_INVALID_REQUEST` for a query without one, and for an id that the corpus does not have or that stands twice.
 */
export async function* beirContextRequests(
  folder: string,
  topK: number = Number.POSITIVE_INFINITY,
): AsyncGenerator<WorkloadRequest> {
  const passages = new Map((await readCorpus(folder)).map((passage) => [passage.id, passage]));
  for await (const { id, text, context } of readQueries(folder)) {
    if (context === undefined) throw invalid(`queries.jsonl: ${id}`, '`metadata.context` was expected');
    const own = passagesOf({ ...context, ids: context.ids.slice(0, topK) }, passages);
    yield singleRequest(
      id,
      text,
      own.map(({ document }) => document),
    );
  }
}

/**
 * The passages of a query's own context, in its order. Error: `WARMPATH_INVALID_REQUEST` for an id that the corpus does
 * not have or that stands twice.
 */
export function passagesOf<Found extends Passage>(
  { ids, path }: QueryContext,
  corpus: ReadonlyMap<string, Found>,
): readonly Found[] {
  return ids.map((id, rank) => {
    const passage = corpus.get(id);
    if (passage === undefined) throw invalid(`${path}[${rank}]`, `the corpus has no passage ${JSON.stringify(id)}`);
    if (ids.indexOf(id) < rank) throw invalid(`${path}[${rank}]`, `the passage ${JSON.stringify(id)} stands twice`);
    return passage;
  });
}

/**
 * Share of the judged passages that stand in the requests, over all queries: what tells whether retrieval works at all.
 * `undefined` if the folder has no judgements. Errors: those of `readJudgements`.
 */
export async function readRecall(folder: string, requests: readonly WorkloadRequest[]): Promise<number | undefined> {
  const judgements = await readJudgements(folder);
  const retrieved = new Map(requests.map(({ question, documents }) => [question.key, documents]));
  let judged = 0;
  let found = 0;
  for (const [query, passages] of judgements) {
    const documents = retrieved.get(questionKey(query));
    judged += passages.size;
    found += documents?.filter(({ id }) => passages.has(id)).length ?? 0;
  }
  return judged === 0 ? undefined : found / judged;
}

/**
 * The passages that `qrels/test.tsv` judges right (a score above 0), by query; empty if the folder has no judgements.
 * Error: `WARMPATH_INVALID_REQUEST` with the line.
 */
export async function readJudgements(folder: string): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const judgements = new Map<string, Set<string>>();
  const file = join(folder, 'qrels', 'test.tsv');
  if (!existsSync(file)) return judgements;
  for await (const { number, text } of readLines(file)) {
    const [query, passage, score] = text.trimEnd().split('\t');
    // The first line names the columns.
    if (number === 1 && Number.isNaN(Number(score))) continue;
    if (score === undefined) throw invalid(`qrels/test.tsv line ${number}`, 'query, passage and score were expected');
    if (!(Number(score) > 0)) continue;
    const passages = judgements.get(query!);
    if (passages === undefined) judgements.set(query!, new Set([passage!]));
    else passages.add(passage!);
  }
  return judgements;
}
