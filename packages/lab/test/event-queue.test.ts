import fc from 'fast-check';
import { expect, it } from 'vitest';
import { EventQueue } from '../src/server/event-queue.js';

it('gives events by time, and those of one time in the order they were added, whenever they are taken', () => {
  const actionArbitrary = fc.option(fc.nat({ max: 5 }), { nil: 'take' as const });
  fc.assert(
    fc.property(fc.array(actionArbitrary, { maxLength: 80 }), (actions) => {
      const queue = new EventQueue<number>();
      const naive: { time: number; event: number }[] = [];
      for (const [event, action] of actions.entries()) {
        if (action === 'take') {
          expect(queue.nextTime).toBe(naive[0]?.time ?? Number.POSITIVE_INFINITY);
          expect(queue.take()).toBe(naive.shift()?.event);
        } else {
          queue.add(action, event);
          naive.push({ time: action, event });
          naive.sort((a, b) => a.time - b.time || a.event - b.event);
        }
        expect(queue.size).toBe(naive.length);
      }
    }),
    { seed: 51, numRuns: 200 },
  );
});
