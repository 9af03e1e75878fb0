import './seed.js';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  REPLACEMENT_POLICY_NAMES,
  Replacement,
  type ReplacementPolicyName,
  replacementPolicy,
} from '../src/internal.js';
import { EvictionQueue, SIZE_DOUBLING_REQUESTS } from '../src/replacement/eviction-queue.js';
import { UseStatistics } from '../src/replacement/use-statistics.js';
import { replacementPolicyCases } from './conformance/replacement-policy.cases.js';

for (const name of REPLACEMENT_POLICY_NAMES) {
  test(`${name} is called so`, () => expect(replacementPolicy(name).name).toBe(name));
  replacementPolicyCases(replacementPolicy(name));
}

/** Nodes 0 … n-1 in one tier, used as listed (each use a request), in the order in which they are evicted. */
function evicted(name: ReplacementPolicyName, uses: readonly { node: number; costPerToken?: number }[]): number[] {
  const replacement = new Replacement({
    policy: replacementPolicy(name),
    tiers: ['device'],
    onForgotten: () => {},
  });
  for (const { node, costPerToken } of uses) {
    replacement.enter(node, 'device');
    replacement.use({
      nodes: [node],
      computedFrom: costPerToken === undefined ? 1 : 0,
      costPerToken: costPerToken ?? 0,
    });
    replacement.allowEviction(node, 'device');
  }
  const order: number[] = [];
  for (let node = replacement.evict('device'); node !== undefined; node = replacement.evict('device')) order.push(node);
  return order;
}

describe('the policies by example', () => {
  const uses = [
    { node: 0, costPerToken: 1 },
    { node: 0 },
    { node: 0 },
    { node: 1, costPerToken: 5 },
    { node: 2, costPerToken: 1 },
    { node: 2 },
  ];

  test('LRU goes by the last use, LFU and GDSF by the number of uses, PGDSF by what they cost', () => {
    expect(evicted('lru', uses)).toEqual([0, 1, 2]);
    expect(evicted('lfu', uses)).toEqual([1, 2, 0]);
    expect(evicted('gdsf', uses)).toEqual([1, 2, 0]);
    expect(evicted('pgdsf', uses)).toEqual([2, 0, 1]);
  });

  test('equals go in order of their last use', () => {
    for (const name of REPLACEMENT_POLICY_NAMES) {
      const equal = [2, 0, 1].map((node) => ({ node, costPerToken: 1 }));
      expect(evicted(name, equal)).toEqual([2, 0, 1]);
    }
  });
});

describe('Replacement', () => {
  const create = (name: ReplacementPolicyName, window = 100, forgotten: number[] = []) =>
    new Replacement({
      policy: replacementPolicy(name),
      tiers: ['device', 'host'],
      window,
      onForgotten: (node) => forgotten.push(node),
    });
  const request = (node: number, costPerToken = 1) => ({ nodes: [node], computedFrom: 0, costPerToken });

  test('has a clock for each tier: what comes in after an eviction stands above what was there', () => {
    const replacement = create('gdsf');
    for (const node of [0, 1]) {
      replacement.enter(node, 'device');
      replacement.enter(node, 'host');
      for (let use = 0; use < 5; use++) replacement.use(request(node));
      replacement.allowEviction(node, 'device');
      replacement.allowEviction(node, 'host');
    }
    expect(replacement.evict('device')).toBe(0);
    // On the device the clock stands at 5, in the host at 0: one use is worth 6 here and 1 there.
    for (const tier of ['device', 'host'] as const) replacement.enter(2, tier);
    replacement.use(request(2));
    for (const tier of ['device', 'host'] as const) replacement.allowEviction(2, tier);
    expect(replacement.evict('device')).toBe(1);
    expect(replacement.evict('host')).toBe(2);
  });

  test('a policy that remembers counts uses from before an eviction, one that does not starts anew', () => {
    const goesFirst = (name: ReplacementPolicyName) => {
      const replacement = create(name);
      for (let use = 0; use < 3; use++) replacement.use(request(0));
      replacement.enter(0, 'device');
      replacement.leave(0, 'device');
      for (const node of [0, 1]) replacement.enter(node, 'device');
      replacement.use(request(0));
      for (let use = 0; use < 2; use++) replacement.use(request(1));
      for (const node of [0, 1]) replacement.allowEviction(node, 'device');
      return replacement.evict('device');
    };
    expect(goesFirst('pgdsf')).toBe(1);
    expect(goesFirst('lfu')).toBe(0);
  });

  test('forgets an evicted node when its last use leaves the window, children before parents', () => {
    const forgotten: number[] = [];
    const replacement = create('pgdsf', 2, forgotten);
    replacement.use({ nodes: [3, 4], computedFrom: 0, costPerToken: 1 });
    replacement.use(request(5));
    expect(forgotten).toEqual([]);
    replacement.use(request(5));
    expect(forgotten).toEqual([4, 3]);
  });

  test('a handle that was given to another node starts with nothing', () => {
    const replacement = create('lfu', 3);
    for (let use = 0; use < 3; use++) replacement.use(request(0));
    replacement.enter(0, 'device');
    replacement.leave(0, 'device');
    for (const node of [0, 1]) {
      replacement.enter(node, 'device');
      replacement.allowEviction(node, 'device');
    }
    replacement.use(request(0));
    replacement.use({ nodes: [1], computedFrom: 1, costPerToken: 0 });
    // The uses of the first bearer have left the window by now, and took nothing from the second.
    replacement.use(request(0));
    expect(replacement.evict('device')).toBe(1);
  });

  test('refuses a window and a tier that make no sense', () => {
    expect(() => create('lru', 0)).toThrow(expect.objectContaining({ path: 'window' }));
    expect(() => create('lru').evict('disk')).toThrow(expect.objectContaining({ path: 'tier' }));
  });
});

test('the eviction queue sorts, whatever is set, offered and withdrawn in between', () => {
  const operation = fc.record({ node: fc.nat({ max: 40 }), priority: fc.nat({ max: 8 }), stays: fc.boolean() });
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 150 }), (operations) => {
      const queue = new EvictionQueue();
      const expected = new Map<number, number>();
      const owner = { canWait: false, usedAt: 0 };
      for (const { node, priority, stays } of operations) {
        queue.hold(node, owner, 1);
        queue.setPriority(node, priority);
        queue.allowEviction(node);
        expected.delete(node);
        expected.set(node, priority);
        if (!stays) {
          queue.forbidEviction(node);
          expected.delete(node);
        }
        expect(queue.size).toBe(expected.size);
      }
      // A stable sort keeps those of equal priority in order of their setting.
      const sorted = [...expected].sort(([, a], [, b]) => a - b).map(([node]) => node);
      expect(sorted.map(() => queue.evict())).toEqual(sorted);
      expect(queue.evict()).toBeUndefined();
    }),
  );
});

test('the eviction queue sorts what is left after any were withdrawn', () => {
  const priorities = fc.array(fc.nat({ max: 50 }), { minLength: 20, maxLength: 60 });
  fc.assert(
    fc.property(priorities, fc.array(fc.nat({ max: 59 }), { maxLength: 20 }), (values, withdrawn) => {
      const queue = new EvictionQueue();
      const owner = { canWait: false, usedAt: 0 };
      for (const [node, priority] of values.entries()) {
        queue.hold(node, owner, 1);
        queue.setPriority(node, priority);
        queue.allowEviction(node);
      }
      for (const node of withdrawn) queue.forbidEviction(node);
      const left = [...values.keys()].filter((node) => !withdrawn.includes(node));
      const sorted = left.toSorted((a, b) => values[a]! - values[b]! || a - b);
      expect(left.map(() => queue.evict())).toEqual(sorted);
    }),
  );
});

test('of several owners, the one that holds most for its last use loses the node that it values least', () => {
  const owners = [false, false, true].map((canWait) => ({ canWait, usedAt: 0 }));
  const operation = fc.oneof(
    fc.record({
      kind: fc.constant('hold' as const),
      node: fc.nat({ max: 20 }),
      owner: fc.nat({ max: 2 }),
      size: fc.integer({ min: 1, max: 9 }),
      priority: fc.nat({ max: 8 }),
    }),
    fc.record({
      kind: fc.constantFrom('release' as const, 'forbidEviction', 'allowEviction'),
      node: fc.nat({ max: 20 }),
    }),
    fc.record({ kind: fc.constant('use' as const), owner: fc.nat({ max: 2 }), after: fc.nat({ max: 900 }) }),
    fc.record({ kind: fc.constant('evict' as const) }),
  );
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 120, size: 'max' }), (operations) => {
      const queue = new EvictionQueue();
      for (const owner of owners) owner.usedAt = 0;
      const held = new Map<
        number,
        { owner: number; size: number; priority: number; order: number; isEvictable: boolean }
      >();
      let request = 0;
      let order = 0;
      for (const step of operations) {
        if (step.kind === 'hold') {
          queue.hold(step.node, owners[step.owner]!, step.size);
          queue.setPriority(step.node, step.priority);
          const isEvictable = held.get(step.node)?.isEvictable ?? false;
          held.set(step.node, { ...step, order: order++, isEvictable });
        } else if (step.kind === 'use') {
          request += step.after;
          owners[step.owner]!.usedAt = request;
          queue.use(owners[step.owner]!);
        } else if (step.kind === 'release') {
          queue.release(step.node);
          held.delete(step.node);
        } else if (step.kind !== 'evict') {
          if (held.has(step.node)) {
            queue[step.kind](step.node);
            held.get(step.node)!.isEvictable = step.kind === 'allowEviction';
          }
        } else {
          const excess = owners.map(({ canWait, usedAt }, place) => {
            const own = [...held.values()].filter(({ owner }) => owner === place);
            const size = own.reduce((sum, each) => sum + each.size, 0);
            const mayLose = own.some(({ isEvictable }) => isEvictable);
            return mayLose ? Math.log2(size) + (request - usedAt) / SIZE_DOUBLING_REQUESTS + (canWait ? 20 : 0) : -1;
          });
          const victim = queue.evict();
          const most = Math.max(...excess);
          if (most < 0) {
            expect(victim).toBeUndefined();
            continue;
          }
          const { owner, isEvictable } = held.get(victim!)!;
          expect(isEvictable).toBe(true);
          expect(excess[owner]).toBeCloseTo(most, 6);
          const candidates = [...held].filter(([, each]) => each.owner === owner && each.isEvictable);
          const [lowest] = candidates.toSorted(([, a], [, b]) => a.priority - b.priority || a.order - b.order);
          expect(victim).toBe(lowest![0]);
          held.get(victim!)!.isEvictable = false;
        }
        expect(queue.size).toBe([...held.values()].filter(({ isEvictable }) => isEvictable).length);
        expect(queue.owners).toBe(new Set([...held.values()].map(({ owner }) => owner)).size);
      }
    }),
    { seed: 51, numRuns: runs(400) },
  );
});

test('frequencies are those of the last requests, however many uses these have', () => {
  // Ever longer ones, so that memory grows while it is half way round.
  const requests = fc
    .array(fc.uniqueArray(fc.nat({ max: 99 }), { maxLength: 40, size: 'max' }), {
      minLength: 1,
      maxLength: 60,
      size: 'max',
    })
    .map((all) => all.toSorted((a, b) => a.length - b.length));
  fc.assert(
    fc.property(requests, fc.integer({ min: 1, max: 30 }), (all, window) => {
      const statistics = new UseStatistics({ window, onExpired: () => {} });
      for (const [number, nodes] of all.entries()) {
        statistics.record(nodes);
        const recent = all.slice(Math.max(0, number + 1 - window), number + 1).flat();
        for (const node of nodes) expect(statistics.frequency(node)).toBe(recent.filter((use) => use === node).length);
      }
    }),
    { numRuns: runs(50) },
  );
});

test('uses that a node inherits or is told of count as those of the last request, and leave with them', () => {
  const uses = fc.array(fc.uniqueArray(fc.nat({ max: 9 }), { maxLength: 4 }), { minLength: 1, maxLength: 40 });
  fc.assert(
    fc.property(uses, uses, fc.integer({ min: 1, max: 12 }), fc.nat({ max: 30 }), (before, after, window, told) => {
      const statistics = new UseStatistics({ window, onExpired: () => {} });
      statistics.restoreUses(20, told);
      expect(statistics.frequency(20)).toBe(Math.min(told, window));
      for (const nodes of before) statistics.record(nodes);
      const inherited = statistics.frequency(3);
      statistics.recordMiss(3, 7);
      statistics.inherit(21, 3);
      expect(statistics.frequency(21)).toBe(inherited);
      expect(statistics.costPerToken(21)).toBe(7);
      for (const [number, nodes] of after.entries()) {
        statistics.record(nodes);
        expect(statistics.frequency(21)).toBe(number + 1 < window ? inherited : 0);
        const recent = [...before, ...after.slice(0, number + 1)].slice(-window).flat();
        expect(statistics.frequency(3)).toBe(recent.filter((use) => use === 3).length);
      }
      statistics.expectCost(22, 5);
      expect(statistics.costPerToken(22)).toBe(5);
      statistics.reset(22);
      expect(statistics.costPerToken(22)).toBe(0);
    }),
    { seed: 32, numRuns: runs(200) },
  );
});

test('pgdsf keeps a part of what was used often, and what nobody computed here, before what was used once', () => {
  const replacement = new Replacement({
    policy: replacementPolicy('pgdsf'),
    tiers: ['host'],
    onForgotten: () => {},
  });
  const [often, part, once, fromDisk] = [0, 1, 2, 3];
  for (let use = 0; use < 20; use++) replacement.use({ nodes: [often], computedFrom: 0, costPerToken: 2 });
  replacement.use({ nodes: [once], computedFrom: 0, costPerToken: 2 });
  replacement.inherit(part, often);
  replacement.expectCost(fromDisk, 2);
  replacement.restoreUses(fromDisk, 10);
  for (const node of [part, once, fromDisk, often]) {
    replacement.enter(node, 'host');
    replacement.allowEviction(node, 'host');
  }
  expect([replacement.evict('host'), replacement.evict('host')]).toEqual([once, fromDisk]);
});
