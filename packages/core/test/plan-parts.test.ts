import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ABSENT, keyedHeap } from '../src/intrusive-collections.js';
import { agglomeration } from '../src/plan/agglomerate.js';
import { internBatch } from '../src/plan/batch.js';
import { type Group, groupRecursion, Remainders } from '../src/plan/group-recursion.js';
import { PlanTree } from '../src/plan/plan-tree.js';
import { refine } from '../src/plan/refine.js';
import './seed.js';

const contexts = fc.array(fc.array(fc.constantFrom(...'abcdefghij'), { maxLength: 7 }), { maxLength: 20 });
const LENGTHS = new Map([...'abcdefghij'].map((id, i) => [id, 1 + ((i * 7) % 11)]));
const tokens = (id: string) => LENGTHS.get(id)!;

/** Makes leaves of a group's sets as they are: a tree with much left to refine. */
function hangLeaves(tree: PlanTree, remainders: Remainders, { node, sets }: Group): void {
  for (const set of sets) {
    tree.labels[set] = remainders.rest(set);
    tree.attach(set, node);
  }
}

function build(batch: readonly (readonly string[])[], groupLimit: number): PlanTree {
  const interned = internBatch(batch, tokens);
  const tree = new PlanTree(interned);
  const remainders = new Remainders(interned);
  const finish = agglomeration(tree, remainders);
  groupRecursion(
    tree,
    remainders,
    groupLimit,
    groupLimit === 1 ? (group) => hangLeaves(tree, remainders, group) : finish,
  );
  return tree;
}

/** Every leaf's path holds its set once; inner nodes have labels and two children; links agree. */
function expectSound(tree: PlanTree): void {
  const { batch } = tree;
  for (const [leaf, context] of batch.sets.entries()) {
    const wanted = batch.items.slice(batch.starts[context], batch.starts[context + 1]).sort();
    expect(tree.path(leaf).sort((a, b) => a - b)).toEqual([...wanted]);
  }
  let reached = 0;
  const pending = [tree.root];
  for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
    const children: number[] = [];
    for (let child = tree.firstChild[node]!; child >= 0; child = tree.nextSibling[child]!) {
      expect(tree.parent[child]).toBe(node);
      children.push(child);
    }
    if (tree.isLeaf(node)) {
      reached++;
      expect(children).toEqual([]);
    } else if (node !== tree.root) {
      expect(children.length).toBeGreaterThan(1);
      expect(tree.labels[node]!.length).toBeGreaterThan(0);
    }
    pending.push(...children);
  }
  expect(reached).toBe(tree.leaves);
}

it('the tree stays sound, and refinement never raises its cost and says what it saved', () => {
  fc.assert(
    fc.property(
      contexts,
      fc.constantFrom(1, 2, 5, 100),
      fc.nat(3),
      fc.nat(400),
      (batch, groupLimit, rounds, labels) => {
        const tree = build(batch, groupLimit);
        expectSound(tree);
        const before = tree.cost();
        const saved = refine(tree, { rounds, labels });
        expectSound(tree);
        expect(saved).toBeGreaterThanOrEqual(0);
        expect(tree.cost()).toBe(before - saved);
      },
    ),
    { numRuns: 500 },
  );
});

it('refinement moves what the recursion hung in the wrong place', () => {
  // `a` leads four contexts; the fourth shares one document with them and three with the fifth, which `a` keeps it
  // from.
  const batch = ['ab', 'ac', 'ad', 'aefg', 'efgh'].map((documents) => [...documents]);
  const interned = internBatch(batch);
  const tree = new PlanTree(interned);
  const remainders = new Remainders(interned);
  groupRecursion(tree, remainders, 1, (group) => hangLeaves(tree, remainders, group));
  expect(tree.cost()).toBe(11);
  expect(refine(tree, { rounds: 10, labels: 1000 })).toBe(2);
  expect(tree.cost()).toBe(9);
});

it('agglomeration merges the pair that shares most at every step, as a search of all pairs does', () => {
  fc.assert(
    fc.property(contexts, (batch) => {
      const first = firstMergeSaving(batch);
      const tree = build(batch, 100);
      const labels = [...tree.labels.entries()].filter(([node]) => node > tree.root && tree.parent[node]! >= 0);
      const paths = labels.map(([node]) =>
        tree.path(node).reduce((sum, symbol) => sum + tree.batch.weights[symbol]!, 0),
      );
      expect(Math.max(0, ...paths)).toBe(first);
      // And it ends only when no two clusters share anything.
      const tops: number[] = [];
      for (let node = tree.firstChild[tree.root]!; node >= 0; node = tree.nextSibling[node]!) tops.push(node);
      const symbols = tops.flatMap((node) => tree.labels[node]!);
      expect(new Set(symbols).size).toBe(symbols.length);
    }),
    { numRuns: 300 },
  );
});

/** Tokens shared by the two distinct contexts that share most. */
function firstMergeSaving(batch: readonly (readonly string[])[]): number {
  const { sets, starts, items, weights } = internBatch(batch, tokens);
  const distinct = Array.from(sets, (context) => new Set(items.subarray(starts[context], starts[context + 1])));
  let most = 0;
  for (const [i, one] of distinct.entries()) {
    for (const other of distinct.slice(0, i)) {
      let shared = 0;
      for (const symbol of one) if (other.has(symbol)) shared += weights[symbol]!;
      most = Math.max(most, shared);
    }
  }
  return most;
}

it('the heap gives back largest keys first, then smallest items', () => {
  fc.assert(
    fc.property(fc.uniqueArray(fc.nat(50)), fc.array(fc.nat(5), { minLength: 51, maxLength: 51 }), (items, keys) => {
      const heap = keyedHeap();
      for (const item of items) heap.add({ number: item, key: keys[item]!, place: ABSENT });
      const out: number[] = [];
      for (let entry = heap.first; entry !== undefined; entry = heap.first) {
        expect(entry.key).toBe(keys[entry.number]);
        out.push(entry.number);
        heap.delete(entry);
      }
      expect(out).toEqual(items.toSorted((a, b) => keys[b]! - keys[a]! || a - b));
    }),
  );
});
