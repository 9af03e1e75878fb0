import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import type { Document } from '../src/index.js';
import { bestPath, UnusedDocuments } from '../src/tree/best-path.js';
import { KnowledgeTree } from '../src/tree/knowledge-tree.js';
import type { ResidencyMark, TreeNode } from '../src/tree/view.js';
import { order } from './arbitraries.js';
import { NaiveTree } from './naive-tree.js';
import { documentsOf, tokensOf } from './served.js';

const path = (keys: readonly string[]) => ({ keys, tokens: keys.map(tokensOf) });

/** The tree's most recent nodes by their paths, each behind its parent. */
function recentPaths(tree: KnowledgeTree, limit: number): Map<string, { key: string; hits: number; children: number }> {
  const pathOf = new Map<TreeNode, string>();
  const recent = new Map<string, { key: string; hits: number; children: number }>();
  for (const node of tree.recentNodes(limit)) {
    const { key, hits, children } = node;
    const name = node.parent === tree.root ? key : `${pathOf.get(node.parent!)!}/${key}`;
    pathOf.set(node, name);
    recent.set(name, { key, hits, children: children.size });
  }
  return recent;
}

/** Walks the model's paths through the tree; equal node counts then mean that the tree has nothing else. */
function expectEqual(tree: KnowledgeTree, model: NaiveTree): void {
  expect(tree.nodes).toBe(model.nodes.size);
  expect(tree.tokens).toBe(model.tokens);
  for (const [name, expected] of model.nodes) {
    const keys = name.split('/');
    expect(tree.find(keys), name).toMatchObject({
      key: expected.key,
      hits: expected.hits,
      lastAccess: expected.access,
      lastUsedAt: expected.time,
      residency: expected.mark,
      tokens: expected.tokens,
    });
  }
}

function documentsWithKeys(keys: readonly string[]): readonly Document[] {
  return documentsOf(keys).map((document, rank) => ({ ...document, key: keys[rank]! }));
}

/** Over all paths of the model: the one inside the set with most tokens, then the first by ranks. */
function bestPathInside(keys: readonly string[], model: NaiveTree): number[] {
  const weight = (ranks: readonly number[]) => ranks.reduce((sum, rank) => sum + tokensOf(keys[rank]!), 0);
  const inside = [...model.nodes.keys()]
    .map((name) => name.split('/').map((key) => keys.indexOf(key)))
    .filter((ranks) => ranks.every((rank) => rank >= 0));
  const best = inside.toSorted((a, b) => weight(b) - weight(a) || (a.join() < b.join() ? -1 : 1))[0];
  return best ?? [];
}

type Step =
  | { readonly kind: 'insert'; readonly keys: string[]; readonly mark: ResidencyMark }
  | { readonly kind: 'withdraw'; readonly which: number }
  | { readonly kind: 'find'; readonly keys: string[] }
  | { readonly kind: 'pruneUpTo' | 'pruneUsedBefore' | 'pruneToTokens'; readonly share: number }
  | { readonly kind: 'clear' };

const POOL = [...'abcde'];
const keys = order(4, 0, POOL.length);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 30,
    arbitrary: fc.record({
      kind: fc.constant('insert' as const),
      keys,
      mark: fc.constantFrom('expected' as const, 'confirmed' as const),
    }),
  },
  { weight: 10, arbitrary: fc.record({ kind: fc.constant('withdraw' as const), which: fc.nat() }) },
  { weight: 20, arbitrary: fc.record({ kind: fc.constant('find' as const), keys }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom('pruneUpTo' as const, 'pruneUsedBefore' as const, 'pruneToTokens' as const),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('clear' as const) }) },
);

test('behaves like a naive map of paths, evictions, prunings and withdrawals included', () => {
  fc.assert(
    fc.property(
      fc.array(step, { minLength: 30, maxLength: 80 }),
      fc.integer({ min: 1, max: 25 }),
      (steps, maxNodes) => {
        const tree = new KnowledgeTree({ maxNodes });
        const model = new NaiveTree(maxNodes);
        const inserted: { keys: string[]; access: number }[] = [];
        let now = 0;
        for (const action of steps) {
          now += 10;
          switch (action.kind) {
            case 'insert': {
              const insertion = tree.insert(path(action.keys), action.mark, now);
              expect(insertion).toEqual(model.insert(action.keys, action.keys.map(tokensOf), action.mark, now));
              inserted.push({ keys: action.keys, access: insertion.access });
              break;
            }
            case 'withdraw': {
              const chosen = inserted[action.which % Math.max(1, inserted.length)];
              if (chosen === undefined) break;
              expect(tree.withdraw(chosen.keys, chosen.access)).toBe(model.withdraw(chosen.keys, chosen.access));
              break;
            }
            case 'find':
              expect(tree.longestPrefix(action.keys)).toBe(model.longestPrefix(action.keys));
              break;
            case 'pruneUpTo': {
              const access = Math.floor(inserted.length * action.share);
              expect(tree.pruneUpTo(access)).toBe(model.prune((node) => node.access <= access));
              break;
            }
            case 'pruneUsedBefore': {
              const time = now * action.share;
              expect(tree.pruneUsedBefore(time)).toBe(model.prune((node) => node.time < time));
              break;
            }
            case 'pruneToTokens': {
              const tokens = model.tokens * action.share;
              expect(tree.pruneToTokens(tokens)).toBe(model.pruneToTokens(tokens));
              break;
            }
            case 'clear':
              tree.clear();
              model.nodes.clear();
          }
          expectEqual(tree, model);
          const recent = recentPaths(tree, 5);
          expect(recent.size).toBe(Math.min(5, model.nodes.size));
          const oldest = Math.min(...[...recent.keys()].map((name) => model.nodes.get(name)!.access));
          for (const [name, { access }] of model.nodes) if (access > oldest) expect(recent.has(name)).toBe(true);
          const below = new Map<string, number>();
          for (const name of model.nodes.keys()) {
            const above = name.slice(0, Math.max(0, name.lastIndexOf('/')));
            below.set(above, (below.get(above) ?? 0) + 1);
          }
          const expected = [...model.nodes].map(([name, { key, hits }]) => [
            name,
            { key, hits, children: below.get(name) ?? 0 },
          ]);
          expect(recentPaths(tree, Number.POSITIVE_INFINITY)).toEqual(new Map(expected as never));
          for (const set of [POOL, POOL.slice(1, 4)]) {
            const best = bestPath(tree, documentsWithKeys(set), { preamble: undefined, rule: undefined });
            expect(best.order).toEqual(bestPathInside(set, model));
          }
          expect(tree.nodes).toBeLessThanOrEqual(maxNodes);
        }
      },
    ),
    { numRuns: runs(150) },
  );
});

describe('bounds', () => {
  test('never more bytes than allowed, whatever the keys; the latest order stays', () => {
    const maxBytes = 64 * 1024;
    const key = fc.oneof(fc.string({ minLength: 1, maxLength: 8 }), fc.string({ minLength: 100, maxLength: 400 }));
    const wordy = fc.oneof(
      fc.array(key, { minLength: 1, maxLength: 12 }),
      fc.array(fc.string({ minLength: 1, maxLength: 3 }), { minLength: 30, maxLength: 60 }),
    );
    fc.assert(
      fc.property(fc.array(wordy, { minLength: 30, maxLength: 80 }), (orders) => {
        const tree = new KnowledgeTree({ maxBytes });
        for (const served of orders) {
          tree.insert(path(served), 'expected', 0);
          expect(tree.bytes).toBeLessThanOrEqual(maxBytes);
          expect(tree.longestPrefix(served)).toBe(served.length);
        }
      }),
      { numRuns: runs(30) },
    );
  });

  test('an order longer than the whole tree is kept as far as it fits', () => {
    const tree = new KnowledgeTree({ maxNodes: 3 });
    tree.insert(path(['x', 'y']), 'expected', 0);
    expect(tree.insert(path(['a', 'b', 'c', 'd', 'e']), 'expected', 1)).toMatchObject({ depth: 3 });
    expect(tree.longestPrefix(['a', 'b', 'c', 'd', 'e'])).toBe(3);
    expect(tree.nodes).toBe(3);
  });

  test('100,000 distinct orders pass through a small tree', () => {
    const tree = new KnowledgeTree({ maxNodes: 1_000 });
    for (let i = 0; i < 100_000; i++) tree.insert(path(['p', `d${i}`, `e${i}`]), 'confirmed', i);
    expect(tree.nodes).toBe(1_000);
    expect(tree.bytes).toBeLessThan(400_000);
    expect(tree.longestPrefix(['p', 'd99999', 'e99999'])).toBe(3);
    expect(tree.longestPrefix(['p', 'd90000', 'e90000'])).toBe(1);
  });

  test('an order that is used again outlives others of its age', () => {
    const tree = new KnowledgeTree({ maxNodes: 6 });
    for (const served of ['ab', 'cd', 'ef']) tree.insert(path([...served]), 'expected', 0);
    tree.insert(path(['a', 'b']), 'expected', 1);
    tree.insert(path(['g', 'h']), 'expected', 2);
    expect(tree.longestPrefix(['a', 'b'])).toBe(2);
    expect(tree.longestPrefix(['c', 'd'])).toBe(0);
  });
});

test('children among unused documents are those that a look-up each finds, by rank, whether a node has few or many', () => {
  const keys = Array.from({ length: 24 }, (_, number) => `d${number}`);
  const documents = documentsWithKeys(keys);
  const places = fc.uniqueArray(fc.nat({ max: 23 }), { maxLength: 24 });
  fc.assert(
    fc.property(places, places, (held, used) => {
      const tree = new KnowledgeTree();
      for (const child of held) tree.insert(path([keys[child]!]), 'confirmed', 0);
      const unused = new UnusedDocuments(documents);
      for (const rank of used) unused.use(rank);
      const expected = held.filter((rank) => !used.includes(rank)).sort((a, b) => a - b);
      expect(unused.childrenOf(tree.root).map(({ rank, child }) => [rank, child.key])).toEqual(
        expected.map((rank) => [rank, keys[rank]]),
      );
      expect(unused.lookUps(tree.root)).toBe(Math.min(held.length, 24 - used.length));
      for (const rank of used) unused.release(rank);
      expect(unused.count).toBe(24);
    }),
    { numRuns: runs(100) },
  );
});
