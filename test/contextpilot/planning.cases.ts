import { planBatch, prepareDocuments } from '@warmpath/core';
import { expect } from 'vitest';
import { contextDistance } from '../../packages/papers/src/average-linkage.js';
import { ContextIndex, schedulePaths } from '../../packages/papers/src/context-index.js';
import type { ConformanceCase } from './case.js';

/** Contexts drawn with a seed: up to eight of thirty documents, without duplicates. */
function contexts(count: number, seed: number): readonly (readonly number[])[] {
  let state = seed;
  const draw = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return Array.from({ length: count }, () => [...new Set(Array.from({ length: 1 + draw(8) }, () => draw(30)))]);
}

const asIds = (context: readonly number[]) => context.map(String);

/** Batches: distance, order, schedule, and the index that lives on. */
export const planningCases: readonly ConformanceCase[] = [
  {
    number: 1,
    title:
      'the distance of contexts: 0 for equal ones, 1 where nothing is shared, symmetric, never less for a larger alpha',
    run: () => {
      for (const [i, a] of contexts(40, 1).entries()) {
        const b = contexts(40, 2)[i]!;
        expect(contextDistance(a, a, 0.01)).toBe(0);
        expect(
          contextDistance(
            a,
            a.map((document) => document + 100),
            0.01,
          ),
        ).toBe(1);
        expect(contextDistance(a, [], 0.01)).toBe(1);
        expect(contextDistance([], a, 0.01)).toBe(1);
        expect(contextDistance(a, b, 0.01)).toBeCloseTo(contextDistance(b, a, 0.01), 12);
        expect(contextDistance(a, b, 0.02)).toBeGreaterThanOrEqual(contextDistance(a, b, 0.01));
        const shared = a.filter((document) => b.includes(document));
        const apart = shared.reduce((sum, one) => sum + Math.abs(a.indexOf(one) - b.indexOf(one)), 0) / shared.length;
        const naive = shared.length === 0 ? 1 : 1 - shared.length / Math.max(a.length, b.length) + 0.01 * apart;
        expect(contextDistance(a, b, 0.01)).toBeCloseTo(naive, 12);
      }
    },
  },
  {
    number: 2,
    title: 'every order is a permutation of its context; a document that comes twice is named and kept once',
    run: () => {
      const batch = contexts(60, 3);
      for (const { index, documents } of planBatch(batch.map(asIds)).steps) {
        expect([...documents].sort()).toEqual(asIds(batch[index]!).sort());
      }
      const twice = [1, 2, 2, 3].map((id) => ({ id: String(id), content: `Text ${id}.` }));
      const { documents, warnings } = prepareDocuments(twice);
      expect(documents.map(({ id }) => id)).toEqual(['1', '2', '3']);
      expect(warnings).toMatchObject([{ code: 'WARMPATH_DUPLICATE_DOCUMENT', path: 'documents[2]' }]);
    },
  },
  {
    number: 3,
    title: 'contexts that share three documents share a prefix of three',
    run: () => {
      const batch = [
        ['1', '2', '3', '100', '200'],
        ['1', '2', '3', '300', '400'],
        ['500', '501'],
      ];
      const { steps } = planBatch(batch);
      const of = (index: number) => steps.find((step) => step.index === index)!.documents.slice(0, 3);
      expect(of(0)).toEqual(of(1));
      expect([...of(0)].sort()).toEqual(['1', '2', '3']);
    },
  },
  {
    number: 4,
    title:
      'the schedule runs every context once, the same way every time; clusters stay together and share a beginning',
    run: () => {
      const batch = Array.from({ length: 10 }, (_, i) =>
        i % 2 === 0 ? ['1', '2', '3', `x${i}`] : ['10', '20', '30', `y${i}`],
      );
      const plans = [1, 2, 3].map(() => planBatch(batch).steps);
      expect(plans[1]).toEqual(plans[0]);
      expect(plans[2]).toEqual(plans[0]);
      const order = plans[0]!.map(({ index }) => index);
      expect(order.toSorted((a, b) => a - b)).toEqual([...batch.keys()]);
      const halves = [plans[0]!.slice(0, 5), plans[0]!.slice(5)];
      for (const half of halves) {
        expect(new Set(half.map(({ index }) => index % 2)).size).toBe(1);
        expect(new Set(half.map(({ documents }) => documents[0])).size).toBe(1);
      }
    },
  },
  {
    number: 5,
    title: 'longer paths run first, equal ones in lexicographic order, and empty ones are a group of their own',
    run: () => {
      expect(
        schedulePaths([
          [0, 1],
          [0, 1, 2, 3],
          [0, 1, 2],
        ]),
      ).toEqual([1, 2, 0]);
      expect(
        schedulePaths([
          [0, 2],
          [0, 1],
        ]),
      ).toEqual([1, 0]);
      expect(schedulePaths([[], [1], [], [1, 0], []])).toEqual([0, 2, 4, 3, 1]);
    },
  },
  {
    number: 6,
    title: 'behind [A, B, C], a later [D, A, B] is served as [A, B, D]',
    run: () => {
      const index = new ContextIndex();
      index.insert([1, 2, 3]);
      expect(index.insert([4, 1, 2]).documents).toEqual([1, 2, 4]);
    },
  },
  {
    number: 7,
    title: 'a second batch that shares beginnings is matched, under request ids that are new',
    run: () => {
      const index = new ContextIndex();
      const first = index.build([
        [1, 2, 3],
        [1, 2, 4],
      ]);
      const second = [
        [2, 1, 5],
        [1, 2, 6],
      ].map((context) => index.insert(context));
      expect(second.every(({ matched }) => matched === 2)).toBe(true);
      expect(new Set([...first, ...second].map(({ requestId }) => requestId)).size).toBe(4);
    },
  },
  {
    number: 8,
    title: "every call pairs an order with its own context, a second batch on one instance's too",
    run: () => {
      const index = new ContextIndex();
      for (const seed of [4, 5, 6]) {
        const batch = contexts(25, seed);
        const indexed = seed === 4 ? index.build(batch) : batch.map((context) => index.insert(context));
        for (const [place, { documents }] of indexed.entries()) {
          expect(documents.toSorted()).toEqual(batch[place]!.toSorted());
        }
        for (const { index: place, documents } of planBatch(batch.map(asIds)).steps) {
          expect([...documents].sort()).toEqual(asIds(batch[place]!).sort());
        }
      }
    },
  },
  {
    number: 9,
    title: 'copies, subsets and intersections of other contexts get a request id each',
    run: () => {
      const indexed = new ContextIndex().build([[1, 2, 3], [3, 2, 1], [1, 2], [1, 2, 4], [2, 1], []]);
      expect(new Set(indexed.map(({ requestId }) => requestId)).size).toBe(6);
    },
  },
  {
    number: 10,
    title: '5,000 contexts that share nothing are served, and evicting all leaves nothing',
    run: () => {
      const index = new ContextIndex();
      for (let i = 0; i < 5_000; i++) index.insert([2 * i, 2 * i + 1]);
      expect(index.insert([1, 0]).documents).toEqual([0, 1]);
      expect(index.evict(index.tokens)).toHaveLength(5_001);
      expect([index.size, index.tokens]).toEqual([0, 0]);
      expect(index.insert([1, 2]).matched).toBe(0);
    },
  },
  {
    number: 11,
    title:
      'evicting a request takes its end and the parents that nothing else needs; an unknown one is said to be unknown',
    run: () => {
      const index = new ContextIndex();
      const [one, other] = [
        [1, 2, 3],
        [1, 2, 4],
      ].map((context) => index.insert(context));
      expect(index.remove(one!.requestId)).toBe(true);
      expect([index.remove(one!.requestId), index.remove(99)]).toEqual([false, false]);
      expect([index.size, index.tokens]).toEqual([1, 3]);
      expect(index.remove(other!.requestId)).toBe(true);
      expect([index.size, index.tokens]).toEqual([0, 0]);
    },
  },
];
