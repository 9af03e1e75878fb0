import './seed.js';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type SpeculationAction, SpeculationGate, SpeculativePipeline } from '../src/internal.js';
import type { SearchStage } from '../src/speculation.js';

const documents = fc.uniqueArray(fc.constantFrom('a', 'b', 'c'), { maxLength: 2 });

/** A search, stage by stage, with what waits at the engine; the last stage is final. */
const search = fc
  .array(fc.record({ documents, pending: fc.nat({ max: 4 }) }), { minLength: 1, maxLength: 12, size: 'max' })
  .map((stages) => stages.map((stage, place) => ({ ...stage, isFinal: place === stages.length - 1 })));

type Stages = readonly (SearchStage & { readonly pending: number })[];

function run(stages: Stages, maxPending: number): SpeculationAction[][] {
  const pipeline = new SpeculativePipeline({ maxPending });
  return stages.map((stage) => pipeline.stage(stage, stage.pending));
}

describe('the speculative pipeline', () => {
  test('has one generation at a time, on the current candidates, and ends with the final documents', () => {
    fc.assert(
      fc.property(search, fc.nat({ max: 4 }), (stages, maxPending) => {
        let live: { generation: number; documents: readonly string[] } | undefined;
        let started = 0;
        for (const [place, actions] of run(stages, maxPending).entries()) {
          const stage = stages[place]!;
          for (const action of actions) {
            if (action.kind === 'start') {
              expect(live).toBeUndefined();
              expect(action.generation).toBe(started++);
              expect(action.isSpeculative).toBe(!stage.isFinal);
              live = action;
            } else {
              expect(action.generation).toBe(live?.generation);
              if (action.kind === 'end') live = undefined;
              else expect(action.kind).toBe(stage.isFinal ? 'confirm' : 'keep');
            }
          }
          if (live !== undefined) expect(live.documents).toEqual(stage.documents);
        }
        expect(live?.documents).toEqual(stages.at(-1)!.documents);
      }),
      { numRuns: 500 },
    );
  });

  test('speculates whenever the engine has room and there is something to speculate on, and only then', () => {
    fc.assert(
      fc.property(search, fc.nat({ max: 4 }), (stages, maxPending) => {
        let live: string | undefined;
        for (const [place, actions] of run(stages, maxPending).entries()) {
          const { documents: candidates, pending, isFinal } = stages[place]!;
          const isNew = candidates.join() !== live;
          const starts = actions.some(({ kind }) => kind === 'start');
          const isAllowed = isFinal || (candidates.length > 0 && pending < maxPending);
          expect(starts).toBe(isNew && isAllowed);
          if (isNew) live = starts ? candidates.join() : undefined;
        }
      }),
      { numRuns: 500 },
    );
  });

  const stage = (ids: string, isFinal = false) => ({ documents: [...ids], isFinal });

  test('the example of the paper: four stages, one wrong speculation, no waiting for the search', () => {
    const pipeline = new SpeculativePipeline({ maxPending: 4 });
    expect(pipeline.stage(stage('ac'), 0)).toEqual([
      { kind: 'start', generation: 0, documents: ['a', 'c'], isSpeculative: true },
    ]);
    expect(pipeline.stage(stage('ab'), 0)).toEqual([
      { kind: 'end', generation: 0 },
      { kind: 'start', generation: 1, documents: ['a', 'b'], isSpeculative: true },
    ]);
    expect(pipeline.stage(stage('ab'), 9)).toEqual([{ kind: 'keep', generation: 1 }]);
    expect(pipeline.stage(stage('ab', true), 9)).toEqual([{ kind: 'confirm', generation: 1 }]);
  });

  test('tries candidates again that it passed over because the engine was busy', () => {
    const pipeline = new SpeculativePipeline({ maxPending: 1 });
    expect(pipeline.stage(stage('ab'), 1)).toEqual([]);
    expect(pipeline.stage(stage('ab'), 0)).toMatchObject([{ kind: 'start', documents: ['a', 'b'] }]);
  });

  test('order counts: the same documents in another order are another prompt', () => {
    const pipeline = new SpeculativePipeline({ maxPending: 1 });
    pipeline.stage(stage('ab'), 0);
    expect(pipeline.stage(stage('ba', true), 9).map(({ kind }) => kind)).toEqual(['end', 'start']);
  });

  test('where sets count, a re-ranking keeps what lives, and a changed set does not', () => {
    fc.assert(
      fc.property(search, fc.nat({ max: 4 }), (stages, maxPending) => {
        const pipeline = new SpeculativePipeline({ maxPending, agreement: 'set' });
        let live: string | undefined;
        for (const { pending, ...each } of stages) {
          const actions = pipeline.stage(each, pending).map(({ kind }) => kind);
          const members = each.documents.toSorted().join();
          const isSame = members === live;
          expect(actions.includes(each.isFinal ? 'confirm' : 'keep')).toBe(isSame);
          expect(actions.includes('end')).toBe(live !== undefined && !isSame);
          if (actions.includes('start')) live = members;
          else if (!isSame) live = undefined;
        }
        expect(live).toBe(stages.at(-1)!.documents.toSorted().join());
      }),
      { numRuns: 500 },
    );
  });

  test('starts only at stages that are worth it, and always on the final documents', () => {
    const asked: number[] = [];
    const isWorthTrying = (at: number) => asked.push(at) > 0 && at === 2;
    const pipeline = new SpeculativePipeline({ maxPending: 1, isWorthTrying });
    for (const ids of ['ab', 'ab']) expect(pipeline.stage(stage(ids), 0)).toEqual([]);
    expect(pipeline.stage(stage('ab'), 1)).toEqual([]);
    expect(pipeline.stage(stage('ab', true), 9)).toMatchObject([{ kind: 'start', isSpeculative: false }]);
    expect(asked).toEqual([0, 1]);
  });

  test('ends what lives when the request is given up, and takes nothing more', () => {
    const pipeline = new SpeculativePipeline({ maxPending: 1 });
    pipeline.stage(stage('a'), 0);
    expect(pipeline.abort()).toEqual([{ kind: 'end', generation: 0 }]);
    expect(pipeline.abort()).toEqual([]);
    expect(() => pipeline.stage(stage('a'), 0)).toThrow(expect.objectContaining({ path: 'stage' }));
    expect(() => new SpeculativePipeline({ maxPending: -1 })).toThrow(/maxPending/);
  });
});

describe('the gate of speculations', () => {
  const share = fc.double({ min: 0, max: 1, noNaN: true });
  const searches = fc.array(
    fc.record({
      agreed: fc.array(fc.boolean(), { maxLength: 80 }),
      promptTokens: fc.integer({ min: 1, max: 10_000 }),
      wastedPart: fc.double({ min: 0, max: 3, noNaN: true }),
    }),
    { minLength: 1, maxLength: 300 },
  );

  test('wastes no more than its share, but for what one speculation may cost', () => {
    fc.assert(
      fc.property(share, searches, (wastedShare, list) => {
        const gate = new SpeculationGate({ wastedShare });
        let [prompts, wasted, dearest] = [0, 0, 0];
        for (const { agreed, promptTokens, wastedPart } of list) {
          const starts = agreed.some((_, stage) => gate.mayStart(stage));
          const wastedTokens = starts ? wastedPart * promptTokens : 0;
          gate.observe({ agreed, promptTokens, wastedTokens });
          prompts += promptTokens;
          wasted += wastedTokens;
          dearest = Math.max(dearest, wastedTokens);
          expect(wasted).toBeLessThanOrEqual(wastedShare * prompts + dearest + 1e-6 * prompts);
        }
      }),
    );
  });

  test('learns at which stage candidates are final, and forgets what was', () => {
    const gate = new SpeculationGate();
    expect(gate.chance(0)).toBe(0.5);
    for (let i = 0; i < 50; i++) gate.observe({ agreed: [false, i % 4 > 0, true], promptTokens: 100, wastedTokens: 0 });
    expect([0, 1, 2].map((at) => gate.mayStart(at))).toEqual([false, true, true]);
    expect(gate.chance(1)).toBeCloseTo(0.75, 1);
    expect(gate.chance(3)).toBe(0.5);
    // Thirty half-lives of the contrary.
    for (let i = 0; i < 6_000; i++) gate.observe({ agreed: [true, false], promptTokens: 100, wastedTokens: 0 });
    expect([0, 1, 2].map((at) => gate.mayStart(at))).toEqual([true, false, true]);
  });

  test('spends a short budget where it is worth most', () => {
    const gate = new SpeculationGate();
    // Nothing is known, and nothing saved.
    expect(gate.mayStart(0)).toBe(false);
    const search = { promptTokens: 100, wastedTokens: 10 };
    // As much is wasted as is earned: only what is right nine times of ten may start, and the budget stays as it is.
    for (let i = 0; i < 400; i++) gate.observe({ agreed: [i % 4 > 0, i % 50 > 0], ...search });
    expect([gate.mayStart(0), gate.mayStart(1)]).toEqual([false, false]);
    gate.observe({ agreed: [true, true], promptTokens: 100, wastedTokens: 0 });
    expect([gate.mayStart(0), gate.mayStart(1)]).toEqual([false, true]);
    for (let i = 0; i < 30; i++) gate.observe({ agreed: [i % 4 > 0, true], promptTokens: 100, wastedTokens: 0 });
    expect([gate.mayStart(0), gate.mayStart(1)]).toEqual([true, true]);
  });

  test('never starts with a share of nothing, and saves up for a few searches only', () => {
    expect(new SpeculationGate({ wastedShare: 0 }).mayStart(0)).toBe(false);
    const gate = new SpeculationGate({ wastedShare: 0.5 });
    for (let i = 0; i < 1_000; i++) gate.observe({ agreed: [true], promptTokens: 100, wastedTokens: 0 });
    let started = 0;
    while (gate.mayStart(0) && started < 100) {
      started++;
      gate.observe({ agreed: [true], promptTokens: 100, wastedTokens: 100 });
    }
    expect(started).toBeGreaterThan(16);
    expect(started).toBeLessThan(64);
    expect(() => new SpeculationGate({ wastedShare: 1.1 })).toThrow(/wastedShare/);
  });
});
