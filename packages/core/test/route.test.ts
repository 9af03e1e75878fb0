import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ArrangeRequest, arrange, observe, prepareDocuments, ServedHistory } from '../src/index.js';
import { EngineRouter, expectedCachedTokens, type RouteCandidate } from '../src/internal.js';

/** The same rule without anything left out or ordered: every candidate is asked, in turn. */
class NaiveRule {
  readonly recent = new Map<number, number>();
  share = 0.5;
  last = -1;

  choose(candidates: readonly RouteCandidate[], promptTokens: number, newTokens: readonly number[]): number {
    const recentOf = ({ engine, weight = 1 }: RouteCandidate) => (this.recent.get(engine) ?? 0) / weight;
    const mean = candidates.reduce((sum, candidate) => sum + recentOf(candidate), 0) / candidates.length;
    const inTurn = [...candidates.keys()].sort((a, b) => {
      const behind = (place: number) => Number(candidates[place]!.engine <= this.last);
      return behind(a) - behind(b) || a - b;
    });
    const costs = candidates.map((candidate, place) => {
      const pressure = mean === 0 ? 1 : recentOf(candidate) / mean;
      return (candidate.pendingTokens + newTokens[place]! * (1 + this.share * pressure)) / (candidate.weight ?? 1);
    });
    const best = inTurn.reduce((least, place) => (costs[place]! < costs[least]! ? place : least), inTurn[0]!);
    const { engine } = candidates[best]!;
    this.last = engine;
    for (const each of candidates) {
      const kept = 1 - 1 / (32 * candidates.length);
      this.recent.set(each.engine, (this.recent.get(each.engine) ?? 0) * kept);
    }
    this.recent.set(engine, this.recent.get(engine)! + newTokens[best]!);
    this.share += (1 - newTokens[best]! / promptTokens - this.share) / 100;
    return best;
  }
}

const request = (engines: number) =>
  fc.record({
    taking: fc.uniqueArray(fc.nat(engines - 1), { minLength: 1 }).map((all) => all.sort((a, b) => a - b)),
    pending: fc.array(fc.nat(2_000), { minLength: engines, maxLength: engines }),
    cached: fc.array(fc.nat(1_000), { minLength: engines, maxLength: engines }),
  });

describe('EngineRouter', () => {
  it('chooses what a rule that asks every engine chooses', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(0.5, 1, 2, 3), { minLength: 6, maxLength: 6 }),
        fc.array(request(6), { maxLength: 60 }),
        (weights, requests) => {
          const rule = new EngineRouter();
          const naive = new NaiveRule();
          for (const { taking, pending, cached } of requests) {
            const candidates = taking.map((engine) => {
              return { engine, pendingTokens: pending[engine]!, weight: weights[engine]! };
            });
            const newTokens = taking.map((engine) => 1_001 - cached[engine]!);
            const route = rule.choose(candidates, 1_001, (place) => newTokens[place]!);
            expect(route.place).toBe(naive.choose(candidates, 1_001, newTokens));
            expect(route.newTokens).toBe(newTokens[route.place]);
          }
        },
      ),
      { seed: 7, numRuns: 300 },
    );
  });

  it('asks nothing of an engine that has more to do than another one needs for everything', () => {
    const asked: number[] = [];
    new EngineRouter().choose(
      [0, 1, 2].map((engine) => ({ engine, pendingTokens: 10_000 * engine })),
      100,
      (place) => {
        asked.push(place);
        return 100;
      },
    );
    expect(asked).toEqual([0]);
  });

  it('gives one of twice the weight twice the tokens', () => {
    const rule = new EngineRouter();
    const given = [0, 0];
    for (let round = 0; round < 3_000; round++) {
      const candidates = given.map((pendingTokens, engine) => ({ engine, pendingTokens, weight: engine + 1 }));
      given[rule.choose(candidates, 100, () => 100).place]! += 100;
    }
    expect(given[1]! / given[0]!).toBeCloseTo(2, 1);
  });

  it('takes equals in turn, and one first that was given nothing yet', () => {
    const rule = new EngineRouter();
    const candidates = [0, 1, 2].map((engine) => ({ engine, pendingTokens: 0 }));
    const choose = () => rule.choose(candidates, 100, () => 100).place;
    expect([choose(), choose(), choose()]).toEqual([0, 1, 2]);
    rule.forget(2);
    expect(choose()).toBe(2);
  });
});

describe('expectedCachedTokens', () => {
  const pool = [
    ...prepareDocuments(Array.from({ length: 8 }, (_, i) => ({ id: `d${i}`, content: `text ${i} `.repeat(i + 1) })))
      .documents,
  ];
  const preamble = { key: 'p', tokens: 10 };

  it('is what the arrangement for that engine predicts', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.shuffledSubarray(pool, { minLength: 1, maxLength: 5 }), { maxLength: 6 }), {
          minLength: 1,
          maxLength: 3,
        }),
        fc.shuffledSubarray(pool, { minLength: 1, maxLength: 6 }),
        fc.constantFrom('exact' as const, 'greedy' as const, 'retrieval' as const, 'sorted' as const),
        fc.option(fc.nat(3), { nil: undefined }),
        (served, wanted, policy, maxShift) => {
          const asked: ArrangeRequest = {
            documents: wanted,
            preamble,
            policy,
            // An order that does not pay for its hint is not made; engines are compared without that.
            hints: false,
            ...(maxShift !== undefined && { maxShift }),
          };
          const reuse = expectedCachedTokens(asked, 0);
          for (const orders of served) {
            const view = new ServedHistory();
            for (const order of orders) {
              observe({ kind: 'completed', arrangement: { documents: order, preamble }, now: 0 }, view);
            }
            expect(reuse(view)).toBe(arrange(asked, view, 0).predictedCachedTokens);
          }
        },
      ),
      { seed: 3, numRuns: 300 },
    );
  });

  it('leaves out what the request refuses, as arrange does', () => {
    expect(() => expectedCachedTokens({ documents: pool, pin: ['nobody'] }, 0)).toThrow('pin[0]');
  });
});
