import { type Document, estimateTokens, WarmpathError } from '@warmpath/core';
import { PAPER_LENGTHS, type PromptSpan, type Workload, type WorkloadRequest } from '../workloads/workload.js';
import { invalid, type JsonFields } from './json-fields.js';

/** What counts as a right answer to one question. */
export interface GoldAnswers {
  /** Any of them is right; none for a question that the documents do not answer. */
  readonly answers: readonly string[];
}

/**
 * The right answers in a query's `metadata`, in one of three layouts: `answer: "text"`, `answers: ["text", …]`, or
 * `ground_truth: {answers: ["text", …]}`. Beside a list, `is_impossible: true` says that there is none, whatever the
 * list holds; so does an empty list. `undefined` where the metadata speak of no answer. Error:
 * `WARMPATH_INVALID_REQUEST` with the path.
 */
export function readGoldAnswers(metadata: JsonFields): GoldAnswers | undefined {
  if (metadata.has('ground_truth')) return readList(metadata.object('ground_truth'));
  if (metadata.has('answers')) return readList(metadata);
  return metadata.has('answer') ? { answers: [metadata.text('answer')] } : undefined;
}

function readList(fields: JsonFields): GoldAnswers {
  const isImpossible = fields.has('is_impossible') ? fields.raw('is_impossible') : false;
  if (typeof isImpossible !== 'boolean') throw invalid(fields.pathOf('is_impossible'), 'true or false was expected');
  const answers = fields.texts('answers').filter((answer) => answer !== '');
  return { answers: isImpossible ? [] : [...new Set(answers)] };
}

/** Requests of a data set are held together. */
const MAX_REQUESTS = 1_000_000;

/** A stretch of text as a span: equal keys must stand for equal texts. O(length). */
export function textSpan(key: string, text: string): PromptSpan {
  return { key, tokens: estimateTokens(text) };
}

/** The key of a question by its id. */
export function questionKey(id: string): string {
  return `question ${id}`;
}

/** A question that stands alone, with what was retrieved for it. */
export function singleRequest(id: string, text: string, documents: readonly Document[]): WorkloadRequest {
  return { documents, question: textSpan(questionKey(id), text) };
}

/**
 * The requests of a source as a workload behind the papers' preamble. Error: `WARMPATH_INVALID_REQUEST` above a
 * million.
 */
export async function collectWorkload(
  name: string,
  source: AsyncIterable<WorkloadRequest> | Iterable<WorkloadRequest>,
  preambleTokens: number = PAPER_LENGTHS.preamble,
): Promise<Workload> {
  const requests: WorkloadRequest[] = [];
  for await (const request of source) {
    if (requests.length === MAX_REQUESTS) {
      const detail = `At most ${MAX_REQUESTS} requests are held; \`warmpath lab replay\` streams a longer log.`;
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: name, detail });
    }
    requests.push(request);
  }
  return { name, preamble: { key: 'preamble', tokens: preambleTokens }, requests };
}
