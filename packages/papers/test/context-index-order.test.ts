import { createWorkload, mean, simulate, VllmBlockCache, type Workload } from '@warmpath/lab';
import { describe, expect, it } from 'vitest';
import { orderByContextIndex } from '../src/context-index-order.js';

const ids = ({ requests }: Workload) => requests.map(({ documents }) => documents.map(({ id }) => id));

function share(workload: Workload, policy: 'retrieval' | 'exact', blocks?: number): number {
  const cache = blocks === undefined ? new VllmBlockCache() : new VllmBlockCache({ blocks });
  const outcomes = simulate(workload, policy, { cache });
  return mean(outcomes.map(({ cachedTokens, promptTokens }) => cachedTokens / promptTokens));
}

describe('orderByContextIndex', () => {
  const workload = createWorkload('sessions', { seed: 5 });

  it('permutes the documents of each request, by what came before it alone', () => {
    const ordered = orderByContextIndex(workload);
    expect(ids(ordered).map((each) => each.toSorted())).toEqual(ids(workload).map((each) => each.toSorted()));
    const start = { ...workload, requests: workload.requests.slice(0, 300) };
    expect(ids(orderByContextIndex(start))).toEqual(ids(ordered).slice(0, 300));
  });

  it('finds more than retrieval order and less than the best order of each request', () => {
    const found = share(orderByContextIndex(workload), 'retrieval');
    expect(found).toBeGreaterThan(share(workload, 'retrieval') + 0.1);
    expect(found).toBeLessThan(share(workload, 'exact'));
  });

  it('finds more in a small cache when its index is as small', () => {
    const bounded = share(orderByContextIndex(workload, 330 * 16), 'retrieval', 330);
    expect(bounded).toBeGreaterThan(share(orderByContextIndex(workload), 'retrieval', 330) + 0.03);
  });
});
