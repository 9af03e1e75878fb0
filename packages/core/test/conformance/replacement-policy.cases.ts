import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { Replacement, type ReplacementPolicy, type Tier } from '../../src/internal.js';
import { NaiveReplacement } from '../naive-replacement.js';

const TIERS: readonly Tier[] = ['device', 'host'];
const NODES = 12;

const node = fc.nat({ max: NODES - 1 });
const tier = fc.constantFrom(...TIERS);
const step = fc.oneof(
  fc.record({
    kind: fc.constant('use' as const),
    nodes: fc.uniqueArray(node, { maxLength: 4 }),
    computedFrom: fc.nat({ max: 4 }),
    costPerToken: fc.integer({ min: 1, max: 9 }),
  }),
  fc.record({ kind: fc.constantFrom('enter' as const, 'leave', 'allowEviction', 'forbidEviction'), node, tier }),
  fc.record({ kind: fc.constant('evict' as const), tier }),
);

const use = fc.record({
  request: fc.nat({ max: 1_000 }),
  frequency: fc.integer({ min: 1, max: 50 }),
  costPerToken: fc.integer({ min: 0, max: 100 }),
});

/** The contract of `ReplacementPolicy`, and what it amounts to in `Replacement`, for every implementation. */
export function replacementPolicyCases(policy: ReplacementPolicy): void {
  describe(`replacement policy ${policy.name}`, () => {
    test('is a function, never lowers a node that is used again, nor as the clock moves on', () => {
      fc.assert(
        fc.property(use, fc.nat({ max: 500 }), fc.nat({ max: 9 }), (first, clock, later) => {
          const before = policy.priority(first, clock);
          expect(policy.priority(first, clock)).toBe(before);
          expect(Number.isFinite(before)).toBe(true);
          const again = {
            ...first,
            request: first.request + later + 1,
            frequency: first.frequency + 1,
          };
          expect(policy.priority(again, clock + later)).toBeGreaterThanOrEqual(before);
        }),
      );
    });

    test.each([1, 3, 40])('evicts what the plain twin evicts, and forgets with it, window of %i', (window) => {
      fc.assert(
        fc.property(fc.array(step, { maxLength: 120, size: 'max' }), (steps) => {
          const forgotten: number[] = [];
          const replacement = new Replacement({
            policy,
            tiers: TIERS,
            window,
            onForgotten: (handle) => forgotten.push(handle),
          });
          const naive = new NaiveReplacement(policy, window, TIERS);
          for (const action of steps) {
            play(action, replacement, naive);
            // A request's nodes are forgotten children first; the twin does not care for the order.
            expect(forgotten.toSorted()).toEqual(naive.forgotten.toSorted());
          }
        }),
        { numRuns: runs(200) },
      );
    });
  });
}

function play(
  action: typeof step extends fc.Arbitrary<infer S> ? S : never,
  ...twins: [Replacement, NaiveReplacement]
) {
  const [replacement, naive] = twins;
  if (action.kind === 'use') {
    replacement.use(action);
    naive.use(action);
    return;
  }
  if (action.kind === 'evict') {
    expect(replacement.evict(action.tier)).toBe(naive.evict(action.tier));
    return;
  }
  // The tree speaks of a tier only for what lies there.
  if (action.kind !== 'enter' && !naive.isHeld(action.node, action.tier)) return;
  replacement[action.kind](action.node, action.tier);
  if (action.kind === 'enter' || action.kind === 'leave') naive[action.kind](action.node, action.tier);
  else naive.setEvictable(action.node, action.tier, action.kind === 'allowEviction');
}
