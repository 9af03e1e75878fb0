import { ContextIndex, type Document } from '@warmpath/core';
import type { Workload } from '@warmpath/lab';

/**
 * A workload with the documents of each request in the order that RAGBoost's context index gives them, online: each
 * request is put behind what the index holds of those before it. Simulate it with the policy `retrieval` to compare the
 * method with ordering policies, which the index is none of: it changes whenever it is asked.
 *
 * `capacity`: tokens of documents that the index holds, least recently used ones evicted, for an engine whose cache is
 * limited. Default: no limit. Cost: that of an insertion into the index for each request.
 */
export function orderByContextIndex(workload: Workload, capacity: number = Number.POSITIVE_INFINITY): Workload {
  const numbers = new Map<string, number>();
  const documents: Document[] = [];
  const index = new ContextIndex({ capacity, tokens: (number) => documents[number]!.tokens });
  const numberOf = (document: Document): number => {
    const known = numbers.get(document.key);
    if (known !== undefined) return known;
    const number = documents.push(document) - 1;
    numbers.set(document.key, number);
    return number;
  };
  return {
    ...workload,
    requests: workload.requests.map((request) => {
      const ordered = index.insert(request.documents.map(numberOf)).documents;
      return { ...request, documents: ordered.map((number) => documents[number]!) };
    }),
  };
}
