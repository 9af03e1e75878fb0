import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../../test/suite.js';
import type { ServedHistory } from '../../src/index.js';
import { order } from '../arbitraries.js';

/** What was believed of one request before it was sent, and what came of it. */
export interface ServedOnce {
  readonly predicted: number;
  readonly cached: number;
  readonly promptTokens: number;
}

/** An engine of limited room, and what is believed of it by one residency source. */
export interface SourceTwin {
  readonly history: ServedHistory;
  /** Sends documents in exactly this order, and completes the request. */
  serve(ids: readonly string[]): ServedOnce;
  /** Somebody else's request, who does not go through here: of so many tokens, shared with nobody. */
  serveAnother(tokens: number): void;
  /** The engine begins anew, with nothing in its cache, and the source hears of it as it would. */
  restart(): void;
  /** What is believed of these documents, in this order. */
  predict(ids: readonly string[]): number;
}

/** How sure a source is. */
export interface SourceClaims {
  /** Predictions are within so many tokens of what is reused, whatever happens. Left out: no such promise. */
  readonly within?: number;
  /** What it believes while others take the engine's room, in mean tokens a request off, at most. */
  readonly meanErrorUnderPressure: number;
}

type Step = { readonly ids: string[] } | { readonly another: number };

const steps = (maxLength: number): fc.Arbitrary<Step[]> =>
  fc.array(
    fc.oneof(
      { weight: 5, arbitrary: order(5, 1, 12).map((ids) => ({ ids })) },
      { weight: 1, arbitrary: fc.integer({ min: 50, max: 900 }).map((another) => ({ another })) },
    ),
    { maxLength, size: 'max' },
  );

/**
 * What every residency source keeps to. `create` makes a fresh engine that has room for so many tokens, and the source
 * beside it.
 */
export function residencySourceCases(
  name: string,
  create: (capacityTokens: number) => SourceTwin,
  { within, meanErrorUnderPressure }: SourceClaims,
): void {
  describe(name, () => {
    const played = (twin: SourceTwin, plan: readonly Step[]): ServedOnce[] =>
      plan.flatMap((step) => {
        if ('ids' in step) return [twin.serve(step.ids)];
        twin.serveAnother(step.another);
        return [];
      });

    test('never believes in more than the prompt, and nothing of an engine that nobody asked', () => {
      fc.assert(
        fc.property(steps(30), fc.integer({ min: 600, max: 6_000 }), (plan, capacity) => {
          const twin = create(capacity);
          expect(twin.predict(['a', 'b'])).toBe(0);
          for (const { predicted, promptTokens } of played(twin, plan)) {
            expect(predicted).toBeGreaterThanOrEqual(0);
            expect(predicted).toBeLessThanOrEqual(promptTokens);
          }
        }),
        { numRuns: runs(60) },
      );
    });

    test('predicts, and changes nothing by that', () => {
      fc.assert(
        fc.property(steps(20), order(5, 1, 12), (plan, ids) => {
          const twin = create(3_000);
          played(twin, plan);
          const before = [twin.predict(ids), twin.history.tree.nodes, twin.history.requests];
          expect([twin.predict(ids), twin.history.tree.nodes, twin.history.requests]).toEqual(before);
        }),
        { numRuns: runs(60) },
      );
    });

    test('knows what an engine with room enough reuses of the same documents again', () => {
      fc.assert(
        fc.property(order(5, 1, 12), (ids) => {
          const twin = create(1_000_000);
          twin.serve(['x1', 'x2']);
          twin.serve(ids);
          const { predicted, cached } = twin.serve(ids);
          // What stands between a document's end and the next block's is nobody's promise.
          expect(Math.abs(predicted - cached)).toBeLessThanOrEqual(BLOCK_TOKENS);
          expect(cached).toBeGreaterThan(0);
        }),
        { numRuns: runs(60) },
      );
    });

    test('comes back to the truth under pressure, as far as it claims', () => {
      const errors: number[] = [];
      fc.assert(
        fc.property(steps(60), fc.integer({ min: 1_200, max: 4_000 }), (plan, capacity) => {
          for (const { predicted, cached } of played(create(capacity), plan)) {
            errors.push(Math.abs(predicted - cached));
            if (within !== undefined) expect(errors.at(-1)).toBeLessThanOrEqual(within);
          }
        }),
        { numRuns: runs(40) },
      );
      const mean = errors.reduce((sum, error) => sum + error, 0) / errors.length;
      expect(mean).toBeLessThanOrEqual(meanErrorUnderPressure);
    });

    test('forgets when it is told to', () => {
      const twin = create(3_000);
      for (const ids of [
        ['a', 'b'],
        ['c', 'd'],
        ['a', 'e'],
      ])
        twin.serve(ids);
      twin.restart();
      twin.history.clear();
      expect(twin.predict(['a', 'b'])).toBe(0);
      expect(twin.serve(['a', 'b']).cached).toBe(0);
    });
  });
}

/** Tokens of a block of the engines here. */
export const BLOCK_TOKENS = 16;
