import type { Workload } from '../workloads/workload.js';

/**
 * Share of documents that some earlier request held too: what reuse at any position could reach, and no order of
 * prefixes can pass. Leaves the first `warmUp` requests out of the count, not out of memory. O(total documents).
 */
export function seenBeforeShare(workload: Workload, warmUp = 0): number {
  const seen = new Set<string>();
  let documents = 0;
  let repeated = 0;
  for (const [number, request] of workload.requests.entries()) {
    for (const { key } of request.documents) {
      if (number >= warmUp) {
        documents++;
        if (seen.has(key)) repeated++;
      }
      seen.add(key);
    }
  }
  return documents === 0 ? 0 : repeated / documents;
}
