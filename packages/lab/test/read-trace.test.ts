import { describe, expect, it } from 'vitest';
import { createWorkload, readTrace, simulate, WORKLOAD_CATALOGUE } from '../src/index.js';

describe('readTrace', () => {
  it('reads what the generators write', () => {
    const trace = WORKLOAD_CATALOGUE.find(({ name }) => name === 'mixed')!.trace(42);
    const read = readTrace('mixed', { jaccard: 0, requests: trace.map(({ documents }) => documents) });
    const served = (workload: typeof read) => simulate(workload, 'exact').map(({ cachedDocuments }) => cachedDocuments);
    expect(served(read)).toEqual(served(createWorkload('mixed', { seed: 42 })));
  });

  it('takes texts as ids', () => {
    const { requests } = readTrace('texts', { requests: [['b', 'a'], []] });
    expect(requests.map(({ documents }) => documents.map(({ id }) => id))).toEqual([['b', 'a'], []]);
  });

  it.each([
    [[], 'requests'],
    [{ requests: {} }, 'requests'],
    [{ requests: [3] }, 'requests[0]'],
    [{ requests: [[1], [2, -1]] }, 'requests[1][1]'],
    [{ requests: [['']] }, 'requests[0][0]'],
    [{ requests: [[1, 2, 1]] }, 'requests[0]'],
    [{ requests: [Array.from({ length: 1_001 }, (_, id) => id)] }, 'requests[0]'],
  ])('refuses %j at %s', (input, path) => {
    expect(() => readTrace('bad', input)).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path }));
  });
});
