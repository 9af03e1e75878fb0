import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../../test/suite.js';
import type { Scheduler, SchedulerName } from '../../src/internal.js';

/** A waiting request of the tests: its number in order of arrival, and what it finds in the cache. */
export interface Waiting {
  readonly number: number;
  readonly cachedTokens: number;
  readonly computeTokens: number;
}

/** What happens to a scheduler: a request comes, one is asked for, or the n-th of those waiting leaves. */
export type Step =
  | { readonly kind: 'push'; readonly reuse: Omit<Waiting, 'number'> }
  | { readonly kind: 'next' }
  | { readonly kind: 'remove'; readonly place: number };

const reuse = fc
  .record({ cachedTokens: fc.nat({ max: 40 }), computeTokens: fc.nat({ max: 20 }) })
  .map(({ cachedTokens, computeTokens }) => ({ cachedTokens, computeTokens: computeTokens + 1 }));

/** More come than go, so that queues grow. */
export const stepsArbitrary: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: reuse.map((found) => ({ kind: 'push' as const, reuse: found })) },
    { weight: 4, arbitrary: fc.constant({ kind: 'next' as const }) },
    { weight: 1, arbitrary: fc.nat({ max: 30 }).map((place) => ({ kind: 'remove' as const, place })) },
  ),
  { maxLength: 200, size: 'max' },
);

/** What came of the steps: every request that came, in which order they went, which left, and the overtakes of each. */
export interface Played {
  readonly pushed: Waiting[];
  readonly served: Waiting[];
  readonly removed: Waiting[];
  /** By number: later requests that went before it. */
  readonly overtaken: Map<number, number>;
}

/** Plays steps on a scheduler, checks after each what every scheduler keeps to, and serves the rest at the end. */
export function play(scheduler: Scheduler<Waiting>, steps: readonly Step[]): Played {
  const played: Played = { pushed: [], served: [], removed: [], overtaken: new Map() };
  let waiting: Waiting[] = [];
  const serve = () => {
    const request = scheduler.next(played.served.length);
    if (request === undefined) return expect(waiting).toEqual([]);
    expect(waiting).toContain(request);
    for (const { number } of waiting) {
      if (number < request.number) played.overtaken.set(number, (played.overtaken.get(number) ?? 0) + 1);
    }
    waiting = waiting.filter((other) => other !== request);
    played.served.push(request);
  };
  for (const step of steps) {
    if (step.kind === 'next') serve();
    else if (step.kind === 'push') {
      const request = { number: played.pushed.length, ...step.reuse };
      played.pushed.push(request);
      waiting.push(request);
      scheduler.push(request);
    } else {
      const request = waiting[step.place];
      if (request !== undefined) {
        expect(scheduler.remove(request)).toBe(true);
        expect(scheduler.remove(request)).toBe(false);
        waiting = waiting.filter((other) => other !== request);
        played.removed.push(request);
      }
    }
    expect([...scheduler]).toEqual(waiting);
    expect(scheduler.size).toBe(waiting.length);
  }
  while (waiting.length > 0) serve();
  return played;
}

/** The contract of `Scheduler`, for every implementation. */
export function schedulerCases(
  discipline: SchedulerName,
  create: (options: { capacity?: number }) => Scheduler<Waiting>,
): void {
  describe(`scheduler ${discipline}`, () => {
    test('loses nothing, serves nothing twice, and lists what waits in order of arrival', () => {
      fc.assert(
        fc.property(stepsArbitrary, (steps) => {
          const { pushed, served, removed } = play(create({}), steps);
          const numbers = [...served, ...removed].map(({ number }) => number);
          expect(numbers.toSorted((a, b) => a - b)).toEqual(pushed.map(({ number }) => number));
        }),
        { numRuns: runs(200) },
      );
    });

    test('gives the same answers for the same steps', () => {
      fc.assert(
        fc.property(stepsArbitrary, (steps) => {
          expect(play(create({}), steps).served).toEqual(play(create({}), steps).served);
        }),
        { numRuns: runs(50) },
      );
    });

    test('refuses what does not fit its queue, and takes it once there is room', () => {
      const scheduler = create({ capacity: 2 });
      const request = (number: number) => ({ number, cachedTokens: 0, computeTokens: 1 });
      scheduler.push(request(0));
      scheduler.push(request(1));
      const refused = expect.objectContaining({ code: 'WARMPATH_OVERLOADED' });
      expect(() => scheduler.push(request(2))).toThrow(refused);
      expect(scheduler.next(0)).toEqual(request(0));
      scheduler.push(request(2));
      expect(scheduler.size).toBe(2);
      expect(() => create({ capacity: 0 })).toThrow(/capacity/);
    });

    test('has nothing to give when nothing waits', () => {
      const scheduler = create({});
      expect(scheduler.next(0)).toBeUndefined();
      expect([...scheduler]).toEqual([]);
    });
  });
}
