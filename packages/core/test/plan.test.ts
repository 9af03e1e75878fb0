import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { topicContexts, zipfContexts } from '../bench/plan-workload.js';
import { planBatch, WarmpathError } from '../src/index.js';
import './seed.js';
import { runs } from '../../../test/suite.js';

const document = fc.constantFrom(...'abcdefghijklmn');
const contexts = fc.array(fc.array(document, { maxLength: 8 }), { maxLength: 24 });

/** Nodes of the trie of these orders, and their tokens, counted the plain way. */
function naiveTrie(orders: readonly (readonly string[])[], tokens: (id: string) => number = () => 1) {
  const nodes = new Set<string>();
  let trieTokens = 0;
  for (const order of orders) {
    for (const [depth, id] of order.entries()) {
      const path = JSON.stringify(order.slice(0, depth + 1));
      if (nodes.has(path)) continue;
      nodes.add(path);
      trieTokens += tokens(id);
    }
  }
  return { trieNodes: nodes.size, trieTokens };
}

/**
 * Documents found by each order, one after the other, in a cache that evicts the least recently used leaf when it is
 * too full.
 */
function naiveCache(orders: readonly (readonly string[])[], capacity: number): number[] {
  const lastUse = new Map<string, number>();
  return orders.map((order, now) => {
    const paths = order.map((_, depth) => JSON.stringify(order.slice(0, depth + 1)));
    const missing = paths.findIndex((path) => !lastUse.has(path));
    // The deepest node of a path counts as its oldest, so that a parent never goes before its child.
    for (const [depth, path] of paths.entries()) lastUse.set(path, now + 1 / (depth + 2));
    const oldestFirst = [...lastUse].sort(([, one], [, other]) => one - other);
    for (const [path] of oldestFirst.slice(0, Math.max(0, lastUse.size - capacity))) lastUse.delete(path);
    return missing < 0 ? order.length : missing;
  });
}

describe('planBatch', () => {
  it('permutes every context and runs every context once', () => {
    fc.assert(
      fc.property(contexts, (batch) => {
        const { steps, documents } = planBatch(batch);
        expect(steps.map(({ index }) => index).sort((a, b) => a - b)).toEqual([...batch.keys()]);
        for (const step of steps) expect([...step.documents].sort()).toEqual([...batch[step.index]!].sort());
        expect(documents).toBe(batch.flat().length);
      }),
      { numRuns: runs(600) },
    );
  });

  it('is deterministic and leaves its input alone', () => {
    fc.assert(
      fc.property(contexts, (batch) => {
        const copy = structuredClone(batch);
        expect(planBatch(batch)).toEqual(planBatch(copy));
        expect(batch).toEqual(copy);
      }),
    );
  });

  it('counts nodes, tokens and reuse as a naive trie does', () => {
    const tokens = (id: string) => id.charCodeAt(0) - 96;
    fc.assert(
      fc.property(contexts, (batch) => {
        const plan = planBatch(batch, { tokens });
        const trie = naiveTrie(
          plan.steps.map((step) => step.documents),
          tokens,
        );
        expect(plan).toMatchObject(trie);
        const total = batch.flat().reduce((sum, id) => sum + tokens(id), 0);
        expect(plan.tokens).toBe(total);
        expect(plan.tokenReuse).toBeCloseTo(total === 0 ? 0 : 1 - trie.trieTokens / total, 12);
        expect(plan.reuse).toBeCloseTo(plan.documents === 0 ? 0 : 1 - trie.trieNodes / plan.documents, 12);
        const found = naiveCache(
          plan.steps.map((step) => step.documents),
          Number.POSITIVE_INFINITY,
        );
        expect(plan.steps.map((step) => step.sharedDocuments)).toEqual(found);
      }),
      { numRuns: runs(300) },
    );
  });

  it('gets from a cache with room for the longest context all that an endless one would give', () => {
    fc.assert(
      fc.property(contexts, (batch) => {
        const capacity = Math.max(1, ...batch.map((context) => context.length));
        const plan = planBatch(batch, { capacity });
        expect(plan).toEqual(planBatch(batch));
        const orders = plan.steps.map((step) => step.documents);
        expect(plan.steps.map((step) => step.sharedDocuments)).toEqual(naiveCache(orders, capacity));
      }),
      { numRuns: runs(300) },
    );
  });

  it('never promises more than a least-recently-used cache of any capacity holds', () => {
    fc.assert(
      fc.property(contexts, fc.nat(12), (batch, capacity) => {
        const plan = planBatch(batch, { capacity });
        const found = naiveCache(
          plan.steps.map((step) => step.documents),
          capacity,
        );
        for (const [i, step] of plan.steps.entries()) expect(step.sharedDocuments).toBeLessThanOrEqual(found[i]!);
      }),
      { numRuns: runs(300) },
    );
  });

  it('gives a subset, a copy and an empty context a step of their own', () => {
    const batch = [['a', 'b', 'c'], [], ['c', 'a'], ['b', 'c', 'a'], ['a', 'b', 'c'], []];
    const { steps } = planBatch(batch);
    expect(steps.map(({ index }) => index).sort()).toEqual([0, 1, 2, 3, 4, 5]);
    const { trieNodes, reuse } = planBatch([['a', 'b', 'c'], [], ['c', 'a'], ['b', 'c', 'a']]);
    expect({ trieNodes, reuse }).toEqual({ trieNodes: 3, reuse: 5 / 8 });
  });

  it('keeps retrieval order where nothing is gained by leaving it', () => {
    const batch = [
      ['d', 'b', 'a'],
      ['z', 'x', 'y'],
      ['q', 'b', 'd'],
    ];
    const orders = new Map(planBatch(batch).steps.map((step) => [step.index, step.documents]));
    expect(orders.get(0)).toEqual(['d', 'b', 'a']);
    expect(orders.get(1)).toEqual(['z', 'x', 'y']);
    expect(orders.get(2)).toEqual(['d', 'b', 'q']);
  });

  it('plans for tokens where documents differ in length', () => {
    // By documents, sharing {a, b} is best; by tokens, sharing {long}.
    const batch = [
      ['a', 'b', 'long'],
      ['a', 'b', 'x'],
      ['long', 'y', 'z'],
    ];
    const tokens = (id: string) => (id === 'long' ? 1000 : 10);
    expect(planBatch(batch, { tokens }).trieTokens).toBe(1070);
    expect(planBatch(batch).trieNodes).toBe(7);
  });

  it.each([
    [{ tokens: () => -1 }, 'tokens'],
    [{ tokens: () => Number.NaN }, 'tokens'],
    [{ capacity: -1 }, 'capacity'],
    [{ capacity: Number.NaN }, 'capacity'],
  ])('refuses %o with the path %s', (options, path) => {
    let caught: unknown;
    try {
      planBatch([['a']], options);
    } catch (error) {
      caught = error;
    }
    expect(WarmpathError.isInstance(caught) && [caught.code, caught.path]).toEqual(['WARMPATH_INVALID_REQUEST', path]);
  });

  it('reuses as much of Zipf and topic batches as it is known to', () => {
    const mean = (batches: string[][][]) =>
      batches.reduce((sum, batch) => sum + planBatch(batch).reuse, 0) / batches.length;
    expect(mean([1, 2].map((seed) => zipfContexts({ count: 1000, k: 15, documents: 350, seed })))).toBeGreaterThan(
      0.364,
    );
    expect(mean([1, 2].map((seed) => topicContexts({ count: 1000, k: 15, seed })))).toBeGreaterThan(0.344);
    // Too large to be agglomerated as one group.
    expect(mean([zipfContexts({ count: 6000, k: 15, documents: 1600, seed: 1 })])).toBeGreaterThan(0.337);
  });
});
