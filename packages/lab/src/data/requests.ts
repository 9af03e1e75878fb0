import { type Document, estimateTokens, WarmpathError } from '@warmpath/core';
import { PAPER_LENGTHS, type PromptSpan, type Workload, type WorkloadRequest } from '../workloads/workload.js';

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
