import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LayoutName } from '../src/index.js';
import { Pipeline } from './conversation-model.js';
import { steps, World } from './conversation-world.js';
import './seed.js';

const layout: fc.Arbitrary<LayoutName> = fc.constantFrom('question', 'message', 'system');

describe('random conversations', () => {
  it('show every supplied document exactly once, and never change what was sent', { timeout: 120_000 }, () => {
    let references = 0;
    let replayed = 0;
    fc.assert(
      fc.property(layout, steps, (name, played) => {
        const world = new World(new Pipeline({ layout: name }));
        for (const step of played) world.play(step);
        references += world.references;
        replayed += world.replayed;
      }),
      { numRuns: 500 },
    );
    // The worlds are such that there is something to see.
    expect(references).toBeGreaterThan(1_000);
    expect(replayed).toBeGreaterThan(1_000);
  });

  it('show every supplied document exactly once when almost nothing is remembered', { timeout: 120_000 }, () => {
    fc.assert(
      fc.property(
        layout,
        steps,
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 9 }),
        (name, played, maxTurns, maxAgeMs) => {
          const world = new World(new Pipeline({ layout: name, limits: { maxTurns, maxAgeMs } }), {
            checksBytes: false,
          });
          for (const step of played) {
            world.play(step);
            expect(world.pipeline.memory.turns).toBeLessThanOrEqual(maxTurns);
          }
        },
      ),
      { numRuns: 250 },
    );
  });
});
