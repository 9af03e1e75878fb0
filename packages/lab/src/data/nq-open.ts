import type { WorkloadRequest } from '../workloads/workload.js';
import { JsonFields } from './json-fields.js';
import { readLines } from './lines.js';
import { indexedPassage, readCorpus } from './passages.js';
import { singleRequest } from './requests.js';
import { Retriever } from './retriever.js';

interface QuestionRecord {
  readonly question: string;
  readonly answers: readonly string[];
}

/** Reads the first records of NQ-open: `{question, answer: [text, …]}` a line. Errors with line and path. */
async function* readRecords(file: string, records: number): AsyncGenerator<QuestionRecord> {
  let read = 0;
  for await (const line of readLines(file)) {
    if (read++ === records) return;
    const fields = JsonFields.ofLine(line);
    yield { question: fields.text('question'), answers: fields.texts('answer') };
  }
}

/**
 * NQ-open has no passages, so they come from elsewhere: from the corpus of a BEIR folder or, without one, from the
 * records themselves, each question with its answers a passage (as CacheWeaver does, Table 6). BM25 finds `topK`.
 */
export async function* nqOpenRequests(
  file: string,
  topK: number,
  { corpus: corpusFolder, records = Number.POSITIVE_INFINITY }: { readonly corpus?: string; readonly records?: number },
): AsyncGenerator<WorkloadRequest> {
  const passages = corpusFolder === undefined ? await recordPassages(file, records) : await readCorpus(corpusFolder);
  const retriever = new Retriever(passages);
  let number = 0;
  for await (const { question } of readRecords(file, records)) {
    const found = retriever.search(question, topK);
    yield singleRequest(
      String(number++),
      question,
      found.map(({ document }) => document),
    );
  }
}

async function recordPassages(file: string, records: number) {
  const passages = [];
  for await (const { question, answers } of readRecords(file, records)) {
    passages.push(indexedPassage({ id: `record_${passages.length}`, title: question, content: answers.join('; ') }));
  }
  return passages;
}
