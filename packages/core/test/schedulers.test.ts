import './seed.js';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import { RequestScheduler } from '../src/internal.js';
import type { RequestSchedulerOptions } from '../src/schedule/scheduler.js';
import { play, schedulerCases, stepsArbitrary, type Waiting } from './conformance/scheduler.cases.js';

type Options = Omit<RequestSchedulerOptions<Waiting>, 'lookup'>;

const cacheAware = (options: Options = {}) =>
  new RequestScheduler<Waiting>({ lookup: (request) => request, ...options });

const waiting = (number: number, cachedTokens: number, computeTokens: number): Waiting => ({
  number,
  cachedTokens,
  computeTokens,
});

/** Numbers in the order in which a scheduler serves these requests. */
function served(scheduler: RequestScheduler<Waiting>, requests: readonly Waiting[]): number[] {
  for (const request of requests) scheduler.push(request);
  return requests.map(() => scheduler.next(0)!.number);
}

schedulerCases('fifo', (options) => new RequestScheduler(options));
schedulerCases('cache-aware', (options) => cacheAware(options));

describe('first come, first served', () => {
  test('never lets a request overtake another', () => {
    fc.assert(
      fc.property(stepsArbitrary, (steps) => {
        expect(play(new RequestScheduler(), steps).overtaken.size).toBe(0);
      }),
    );
  });

  test('keeps its order over thousands of requests', () => {
    const scheduler = new RequestScheduler<number>();
    const order: number[] = [];
    for (let number = 0; number < 5_000; number++) {
      scheduler.push(number);
      if (number % 3 !== 0) order.push(scheduler.next(0)!);
    }
    while (scheduler.size > 0) order.push(scheduler.next(0)!);
    expect(order).toEqual(Array.from({ length: 5_000 }, (_, number) => number));
  });
});

describe('cache-aware reordering', () => {
  test.each([1, 2, 5])('never lets a request be overtaken more than %i times', (window) => {
    fc.assert(
      fc.property(stepsArbitrary, (steps) => {
        const { overtaken } = play(cacheAware({ window }), steps);
        expect(Math.max(0, ...overtaken.values())).toBeLessThanOrEqual(window);
      }),
      { numRuns: runs(200) },
    );
  });

  test('takes the largest share of cached tokens among its candidates, unless one has waited out its window', () => {
    fc.assert(
      fc.property(stepsArbitrary, fc.integer({ min: 1, max: 6 }), (steps, candidates) => {
        const scheduler = cacheAware({ candidates, window: 1_000 });
        let line: Waiting[] = [];
        for (const [number, step] of steps.entries()) {
          if (step.kind === 'push') {
            const request = { number, ...step.reuse };
            scheduler.push(request);
            line.push(request);
          } else if (line.length > 0) {
            const ratio = ({ cachedTokens, computeTokens }: Waiting) => cachedTokens / computeTokens;
            const front = line.slice(0, candidates);
            const best = front.find((request) => ratio(request) === Math.max(...front.map(ratio)))!;
            expect(scheduler.next(0)).toBe(best);
            line = line.filter((request) => request !== best);
          }
        }
      }),
    );
  });

  test('the example of the paper: the larger cached part first, the shorter computation first', () => {
    expect(served(cacheAware(), [waiting(1, 1, 2), waiting(2, 2, 2)])).toEqual([2, 1]);
    expect(served(cacheAware(), [waiting(1, 2, 2), waiting(2, 2, 1)])).toEqual([2, 1]);
  });

  test('looks the cache up at every dispatch, with the time of the dispatch', () => {
    const times: number[] = [];
    const held = new Set([1]);
    const scheduler = new RequestScheduler<number>({
      lookup: (request, now) => {
        times.push(now);
        return { cachedTokens: held.has(request) ? 9 : 0, computeTokens: 1 };
      },
    });
    for (const request of [0, 1, 2, 3]) scheduler.push(request);
    expect(scheduler.next(7)).toBe(1);
    held.add(3);
    expect(scheduler.next(8)).toBe(3);
    expect(times).toEqual([7, 7, 7, 7, 8, 8, 8]);
  });

  test('serves a request that nothing speaks for after its window', () => {
    const scheduler = cacheAware({ window: 3 });
    scheduler.push(waiting(0, 0, 1));
    const order: number[] = [];
    for (let number = 1; number < 8; number++) {
      scheduler.push(waiting(number, 5, 1));
      order.push(scheduler.next(0)!.number);
    }
    expect(order).toEqual([1, 2, 3, 0, 4, 5, 6]);
  });

  test.each([
    [{ window: 0 }, 'window'],
    [{ candidates: 1.5 }, 'candidates'],
  ])('refuses %j at %s', (options, path) => {
    expect(() => cacheAware(options)).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path }));
  });
});

describe('priorities', () => {
  test('go first, and hold no request up for longer than its equals do', () => {
    const scheduler = cacheAware({ window: 1 });
    for (const [number, priority] of [0, 2, 1, 2, 0].entries()) scheduler.push(waiting(number, number, 1), priority);
    expect(scheduler.size).toBe(5);
    expect([...scheduler].map(({ number }) => number)).toEqual([1, 3, 2, 0, 4]);
    expect(Array.from({ length: 6 }, () => scheduler.next(0)?.number)).toEqual([3, 1, 2, 4, 0, undefined]);
  });

  test('a request that is put back goes before its equals, the last one first, and behind more urgent requests', () => {
    const scheduler = cacheAware({ capacity: 4 });
    for (const number of [0, 1, 2, 3]) scheduler.push(waiting(number, number, 1));
    const [first, second] = [scheduler.next(0)!, scheduler.next(0)!];
    scheduler.push(waiting(4, 9, 1));
    scheduler.push(waiting(5, 0, 1), 1);
    // The queue is full: a request that was taken comes back all the same.
    scheduler.putBack(first);
    scheduler.putBack(second);
    expect(scheduler.size).toBe(6);
    expect(scheduler.remove(first)).toBe(true);
    expect(scheduler.remove(first)).toBe(false);
    scheduler.putBack(first);
    expect(Array.from({ length: 6 }, () => scheduler.next(0)!.number)).toEqual([5, 3, 2, 4, 1, 0]);
  });
});
