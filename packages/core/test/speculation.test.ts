import './seed.js';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type SearchStage, type SpeculationAction, SpeculativePipeline } from '../src/index.js';

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

  test('ends what lives when the request is given up, and takes nothing more', () => {
    const pipeline = new SpeculativePipeline({ maxPending: 1 });
    pipeline.stage(stage('a'), 0);
    expect(pipeline.abort()).toEqual([{ kind: 'end', generation: 0 }]);
    expect(pipeline.abort()).toEqual([]);
    expect(() => pipeline.stage(stage('a'), 0)).toThrow(expect.objectContaining({ path: 'stage' }));
    expect(() => new SpeculativePipeline({ maxPending: -1 })).toThrow(/maxPending/);
  });
});
