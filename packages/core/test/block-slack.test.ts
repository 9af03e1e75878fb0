import fc from 'fast-check';
import './seed.js';
import { expect, test } from 'vitest';
import { arrange, observe, ServedHistory } from '../src/index.js';
import { servedOrders } from './arbitraries.js';
import { documentsOf, tokensOf } from './served.js';

const QUESTION_TOKENS = 40;
const tokensIn = (ids: readonly string[]) => ids.reduce((sum, id) => sum + tokensOf(id), 0);

/** Leading documents that two orders share. */
function shared(one: readonly string[], other: readonly string[]): readonly string[] {
  const end = one.findIndex((id, place) => id !== other[place]);
  return end < 0 ? one : one.slice(0, end);
}

test.each([1, 16, 128, 528, 2_048])(
  'nothing is forgotten of an engine that keeps all, in blocks of %i tokens',
  (blockTokens) => {
    fc.assert(
      fc.property(servedOrders(6, 12), (orders) => {
        const history = new ServedHistory();
        for (const [now, ids] of orders.entries()) {
          const arrangement = arrange({ documents: documentsOf(ids), policy: 'retrieval' }, history, now);
          observe({ kind: 'dispatched', arrangement, now }, history);
          const { nodes } = history.tree;
          const longest = Math.max(0, ...orders.slice(0, now).map((earlier) => tokensIn(shared(ids, earlier))));
          const cachedTokens = longest - (longest % blockTokens);
          const promptTokens = tokensIn(ids) + QUESTION_TOKENS;
          observe({ kind: 'completed', arrangement, now, cachedTokens, promptTokens, blockTokens }, history);
          expect(history.tree.nodes).toBe(nodes);
          expect(history.state).toBe('history');
        }
      }),
    );
  },
);

test('more than a block that is missing is a miss', () => {
  const history = new ServedHistory();
  const ids = [...'abcdef'];
  expect(tokensIn(ids)).toBeGreaterThan(3 * 128);
  for (let now = 0; now < 6; now++) {
    const arrangement = arrange({ documents: documentsOf(ids), policy: 'retrieval' }, history, now);
    observe({ kind: 'dispatched', arrangement, now }, history);
    observe({ kind: 'completed', arrangement, now, cachedTokens: 0, blockTokens: 128 }, history);
  }
  expect(history.state).toBe('degraded');
});
