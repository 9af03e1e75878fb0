import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import { type Arrangement, observe, type ServedHistory } from '../src/index.js';
import { type PrewarmPath, planPrewarm, type ServedRequest } from '../src/internal.js';
import { servedOrders } from './arbitraries.js';
import { expectationsFrom } from './naive-foresight.js';
import { documentsOf, historyOf, serve } from './served.js';

const PREAMBLE = { key: 'preamble#known', tokens: 33 };
const EVERYTHING = { maxTokens: 1e9, maxPaths: 1e9, leastReturn: 0 };

function requestsOf(orders: readonly (readonly string[])[], preamble?: typeof PREAMBLE): readonly ServedRequest[] {
  return orders.map((ids) => ({ documents: documentsOf(ids), preamble }));
}

function keysOf({ preamble, documents }: PrewarmPath | ServedRequest): readonly string[] {
  return [...(preamble === undefined ? [] : [preamble.key]), ...documents.map(({ key }) => key)];
}

function prewarm(history: ServedHistory, paths: readonly PrewarmPath[]): void {
  for (const path of paths) observe({ kind: 'prewarmed', path, now: 0 }, history);
}

const situation = fc.record({
  served: servedOrders(6, 30, 9),
  preamble: fc.constantFrom(undefined, PREAMBLE),
  maxTokens: fc.integer({ min: 0, max: 2_000 }),
  maxPaths: fc.nat({ max: 8 }),
  leastReturn: fc.double({ min: 0, max: 0.5, noNaN: true }),
});

describe('planPrewarm', () => {
  test('extends resident beginnings of the last path by one document that is not there yet, within its limits', () => {
    fc.assert(
      fc.property(situation, ({ served, preamble, ...limits }) => {
        const history = historyOf(served, preamble);
        const paths = planPrewarm(requestsOf(served, preamble), history, limits);
        const own = served.at(-1)?.map((id) => documentsOf([id])[0]!.key) ?? [];
        const known = new Set(served.flat().map((id) => documentsOf([id])[0]!.key));
        const above = preamble === undefined ? 0 : 1;
        for (const path of paths) {
          const keys = keysOf(path);
          expect(history.tree.longestPrefix(keys)).toBe(keys.length - 1);
          expect(keys.slice(above, -1)).toEqual(own.slice(0, keys.length - above - 1));
          expect(own).not.toContain(keys.at(-1));
          expect(known).toContain(keys.at(-1));
          expect(path.newTokens).toBe(path.documents.at(-1)!.tokens);
        }
        const returns = paths.map(({ expectedSaved, newTokens }) => expectedSaved / newTokens);
        expect(returns).toEqual(returns.toSorted((a, b) => b - a));
        expect(Math.min(...returns, 1)).toBeGreaterThanOrEqual(limits.leastReturn);
        expect(new Set(paths.map((path) => keysOf(path).join())).size).toBe(paths.length);
        expect(paths.length).toBeLessThanOrEqual(limits.maxPaths);
        expect(paths.reduce((sum, { newTokens }) => sum + newTokens, 0)).toBeLessThanOrEqual(limits.maxTokens);
        expect(planPrewarm(requestsOf(served, preamble), history, limits)).toEqual(paths);
      }),
      { numRuns: runs(200) },
    );
  });

  test('expects what its definition says, and leaves out no path of any worth', () => {
    fc.assert(
      fc.property(servedOrders(6, 30, 9), (served) => {
        const history = historyOf(served);
        const paths = planPrewarm(requestsOf(served), history, EVERYTHING);
        const found = new Map(paths.map((path) => [keysOf(path).join(), path.expectedSaved]));
        const naive = naivePaths(served, history);
        expect([...found.keys()].toSorted()).toEqual([...naive.keys()].toSorted());
        for (const [path, saved] of naive) expect(found.get(path)).toBeCloseTo(saved, 6);
      }),
      { numRuns: runs(100) },
    );
  });

  test('what was prewarmed is resident, counts as no request, and is not planned again', () => {
    fc.assert(
      fc.property(situation, ({ served, preamble }) => {
        const history = historyOf(served, preamble);
        const requests = requestsOf(served, preamble);
        const paths = planPrewarm(requests, history, EVERYTHING);
        const learned = () => [history.requests, history.recent.recurrence, history.hotness.frequency('a')];
        const before = learned();
        prewarm(history, paths);
        expect(learned()).toEqual(before);
        for (const path of paths) expect(history.tree.longestPrefix(keysOf(path))).toBe(keysOf(path).length);
        expect(planPrewarm(requests, history, EVERYTHING)).toEqual([]);
      }),
      { numRuns: runs(100) },
    );
  });

  test('plans behind what survives, what came along with it but never stood there', () => {
    const served = ['abpq', 'abqr', 'abrs', 'abtp'].map((ids) => [...ids]);
    const plan = planPrewarm(requestsOf(served), historyOf(served), { maxTokens: 1e9, maxPaths: 1 });
    expect(plan.map(({ documents }) => documents.map(({ id }) => id))).toEqual([['a', 'b', 's']]);
  });

  test('goes by the retrieval ranks of an arrangement, whatever its order', () => {
    const orders = [
      ['x', 'y', 'p'],
      ['x', 'y', 'q'],
      ['x', 'y', 'r'],
    ];
    const history = historyOf(orders);
    const arranged: Arrangement[] = orders.slice(0, -1).map((ids) => serve(history, ids));
    const documents = documentsOf(['x', 'r', 'y']);
    const turned: ServedRequest = { documents, order: [0, 2, 1], preamble: undefined };
    history.dispatched(turned, 0);
    const inPlace: ServedRequest = { documents, preamble: undefined };
    const saved = (last: ServedRequest) =>
      planPrewarm([...arranged, last], history, EVERYTHING).map(({ expectedSaved }) => expectedSaved);
    expect(saved(turned)).not.toEqual(saved(inPlace));
  });

  test('knows only companions behind the same preamble, and of the last hundred requests', () => {
    const old = ['z', 'a', 'b', 'old'];
    const strangers = Array.from({ length: 98 }, (_, number) => [`stranger-${number}`]);
    const planned = (orders: readonly (readonly string[])[], last: ServedRequest) => {
      const history = historyOf([...orders, ['a', 'b', 'c']]);
      return planPrewarm([...requestsOf(orders), last], history, EVERYTHING).length > 0;
    };
    const [last] = requestsOf([['a', 'b', 'c']]);
    expect(planned([old, ['a', 'b', 'd']], last!)).toBe(true);
    expect(planned([old, ['a', 'b', 'd']], { ...last!, preamble: PREAMBLE })).toBe(false);
    expect(planned([old, ['a', 'b', 'c'], ...strangers.slice(1)], last!)).toBe(true);
    expect(planned([old, ['a', 'b', 'c'], ...strangers], last!)).toBe(false);
  });

  test('has no answer where it knows nothing, and none for thirty documents', () => {
    const ids = Array.from({ length: 30 }, (_, i) => `document-${i}`);
    const orders = [ids.slice(0, 29), [...ids.slice(0, 28), 'other'], ids.slice(0, 29)];
    expect(planPrewarm([], historyOf([]), EVERYTHING)).toEqual([]);
    expect(planPrewarm(requestsOf([['a', 'b']]), historyOf([['a', 'b']]), EVERYTHING)).toEqual([]);
    expect(planPrewarm(requestsOf([...orders, ids]), historyOf([...orders, ids]), EVERYTHING)).toEqual([]);
    expect(planPrewarm(requestsOf([[], []]), historyOf([[], []]), EVERYTHING)).toEqual([]);
  });
});

/** Every extension of the last order with what it is worth, if that is more than nothing, without masks or tables. */
function naivePaths(served: readonly (readonly string[])[], history: ServedHistory): Map<string, number> {
  const paths = new Map<string, number>();
  const documents = documentsOf(served.at(-1) ?? []);
  const own = new Set(documents.map(({ key }) => key));
  const earlier = served.slice(-100, -1).map(documentsOf);
  const sharedBy = (request: (typeof earlier)[number]) => request.filter(({ key }) => own.has(key)).length / own.size;
  const total = 1 + earlier.reduce((sum, request) => sum + sharedBy(request), 0);
  const keysServed = served.map((ids) => documentsOf(ids).map(({ key }) => key));
  for (const document of documentsOf([...new Set(served.flat())]).filter(({ key }) => !own.has(key))) {
    const holding = earlier.filter((request) => request.some(({ key }) => key === document.key));
    const likelihood = holding.reduce((sum, request) => sum + sharedBy(request), 0) / total;
    for (let depth = 0; depth <= documents.length; depth++) {
      const path = [...documents.slice(0, depth), document];
      const keys = path.map(({ key }) => key);
      if (history.tree.longestPrefix(keys) === keys.length) continue;
      let saved = 0;
      for (const { keep, weight } of expectationsFrom(keysServed)) {
        const kept = documents.filter(({ key }, rank) => keep(key, rank));
        if (kept.length === 0 || kept.length === documents.length) continue;
        if (!path.slice(0, -1).every((needed) => kept.includes(needed))) continue;
        const { tokens } = history.bestPath([...kept, document], undefined, undefined);
        const reached = path.reduce((sum, each) => sum + each.tokens, 0);
        saved += weight * Math.max(0, reached - tokens);
      }
      if (saved * likelihood > 0) paths.set(keys.join(), saved * likelihood);
    }
  }
  return paths;
}
