import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ChatMessage, LayoutName } from '../src/index.js';
import { Pipeline } from './conversation-model.js';
import { steps, World, type WorldOptions } from './conversation-world.js';
import './seed.js';
import { runs } from '../../../test/suite.js';

const layout: fc.Arbitrary<LayoutName> = fc.constantFrom('question', 'message', 'system');

/** What the models of a world say: one of two sentences, or always the same. */
const answers: fc.Arbitrary<Partial<WorldOptions>> = fc.constantFrom(
  {},
  { answer: (): ChatMessage => ({ role: 'assistant', content: 'Yes.' }) },
);

describe('random conversations', () => {
  it('show every supplied document exactly once, and never change what was sent', () => {
    let references = 0;
    let replayed = 0;
    fc.assert(
      fc.property(layout, steps, answers, (name, played, said) => {
        const world = new World(new Pipeline({ layout: name }), said);
        for (const step of played) world.play(step);
        references += world.references;
        replayed += world.replayed;
      }),
      { numRuns: runs(500) },
    );
    // The worlds are such that there is something to see.
    expect(references).toBeGreaterThan(runs(1_000));
    expect(replayed).toBeGreaterThan(runs(1_000));
  });

  it('show documents again where that is asked for, and no label names two texts', () => {
    let sentAgain = 0;
    fc.assert(
      fc.property(layout, steps, answers, (name, played, said) => {
        const world = new World(new Pipeline({ layout: name }), { ...said, sendsAgain: true });
        for (const step of played) world.play(step);
        sentAgain += world.sentAgain;
      }),
      { numRuns: runs(300) },
    );
    expect(sentAgain).toBeGreaterThan(runs(300));
  });

  it('report what is forgotten, and show all the rest, when almost nothing is remembered', () => {
    let forgotten = 0;
    let replayed = 0;
    const limits = fc.record({
      maxBytes: fc.integer({ min: 3_000, max: 60_000 }),
      maxAgeMs: fc.integer({ min: 1, max: 30 }),
    });
    fc.assert(
      fc.property(layout, steps, answers, limits, (name, played, said, bounds) => {
        const world = new World(new Pipeline({ layout: name, limits: bounds }), { ...said, remembersAll: false });
        for (const step of played) {
          world.play(step);
          expect(world.pipeline.memory.bytes).toBeLessThanOrEqual(bounds.maxBytes);
        }
        forgotten += world.forgotten;
        replayed += world.replayed;
      }),
      { numRuns: runs(500) },
    );
    expect(forgotten).toBeGreaterThan(runs(500));
    expect(replayed).toBeGreaterThan(runs(500));
  });
});
