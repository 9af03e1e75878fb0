import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Document } from '@warmpath/core';
import type { WorkloadRequest } from '../workloads/workload.js';
import { invalid, JsonFields } from './json-fields.js';
import { readLines } from './lines.js';
import { Retriever, readCorpus } from './passages.js';
import { type GoldAnswers, questionKey, readGoldAnswers, singleRequest } from './requests.js';

/** A query of a BEIR folder. */
export interface BeirQuery {
  readonly id: string;
  readonly text: string;
  /** Where the data say which passages stand in the prompt (`metadata.context`), and where that is written. */
  readonly context: { readonly ids: readonly string[]; readonly path: string } | undefined;
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
  const passages = new Map((await readCorpus(folder)).map(({ id, document }) => [id, document]));
  for await (const { id, text, context } of readQueries(folder)) {
    if (context === undefined) throw invalid(`queries.jsonl: ${id}`, '`metadata.context` was expected');
    const documents = new Set<Document>();
    for (const [rank, passage] of context.ids.slice(0, topK).entries()) {
      const path = `${context.path}[${rank}]`;
      const document = passages.get(passage);
      if (document === undefined) throw invalid(path, `the corpus has no passage ${JSON.stringify(passage)}`);
      if (documents.has(document)) throw invalid(path, `the passage ${JSON.stringify(passage)} stands twice`);
      documents.add(document);
    }
    yield singleRequest(id, text, [...documents]);
  }
}

/**
 * Share of the judged passages of `qrels/test.tsv` (a score above 0) that stand in the requests, over all queries: what
 * tells whether retrieval works at all. `undefined` if the folder has no judgements. Error: `WARMPATH_INVALID_REQUEST`
 * with the line.
 */
export async function readRecall(folder: string, requests: readonly WorkloadRequest[]): Promise<number | undefined> {
  const file = join(folder, 'qrels', 'test.tsv');
  if (!existsSync(file)) return undefined;
  const retrieved = new Map(requests.map(({ question, documents }) => [question.key, documents]));
  let judged = 0;
  let found = 0;
  for await (const { number, text } of readLines(file)) {
    const [query, passage, score] = text.trimEnd().split('\t');
    // The first line names the columns.
    if (number === 1 && Number.isNaN(Number(score))) continue;
    if (score === undefined) throw invalid(`qrels/test.tsv line ${number}`, 'query, passage and score were expected');
    if (!(Number(score) > 0)) continue;
    judged++;
    if (retrieved.get(questionKey(query!))?.some(({ id }) => id === passage) === true) found++;
  }
  return judged === 0 ? undefined : found / judged;
}
