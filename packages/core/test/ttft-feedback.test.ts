import fc from 'fast-check';
import './seed.js';
import { describe, expect, test } from 'vitest';
import { type TimedPrompt, TtftFeedback } from '../src/residency/engine-report.js';

const cold = (promptTokens: number, msPerToken = 0.1): TimedPrompt => {
  return { believedTokens: 0, promptTokens, ttftMs: 10 + msPerToken * promptTokens };
};

/** A request that should find `believedTokens` of 1,000, and finds `cached`. */
const warm = (believedTokens: number, cached: number): TimedPrompt => {
  return { believedTokens, promptTokens: 1_000, ttftMs: 10 + 0.1 * (1_000 - cached) };
};

function trained(): TtftFeedback {
  const feedback = new TtftFeedback();
  for (let number = 0; number < 8; number++) feedback.cachedTokens(cold(600 + 100 * number));
  return feedback;
}

describe('the time to the first token', () => {
  test('says nothing before cold requests were seen, and nothing of requests that find little', () => {
    expect(new TtftFeedback().cachedTokens(warm(900, 900))).toBeUndefined();
    expect(trained().cachedTokens(warm(200, 0))).toBeUndefined();
  });

  test('confirms what was believed where it was saved', () => {
    const feedback = trained();
    for (const tokens of [300, 600, 950]) expect(feedback.cachedTokens(warm(tokens, tokens))).toBe(tokens);
  });

  test('tells of a miss the second time in a row, and of how much was there all the same', () => {
    const feedback = trained();
    expect(feedback.cachedTokens(warm(800, 0))).toBeUndefined();
    expect(feedback.cachedTokens(warm(800, 0))).toBeLessThan(50);
    expect(feedback.cachedTokens(warm(800, 100))).toBeGreaterThan(50);
    expect(feedback.cachedTokens(warm(800, 800))).toBe(800);
    expect(feedback.cachedTokens(warm(800, 0))).toBeUndefined();
  });

  test('takes one slow answer for no miss', () => {
    const feedback = trained();
    for (let number = 0; number < 30; number++) {
      const { ttftMs, ...rest } = warm(700, 700);
      const told = feedback.cachedTokens({ ...rest, ttftMs: number % 3 === 0 ? 20 * ttftMs : ttftMs });
      expect(told).toBe(number % 3 === 0 ? undefined : 700);
    }
  });

  test('follows an engine that becomes slower', () => {
    const feedback = trained();
    for (let number = 0; number < 15; number++) feedback.cachedTokens(cold(1_000, 0.4));
    expect(feedback.cachedTokens({ ...warm(800, 800), ttftMs: 10 + 0.4 * 200 })).toBe(800);
  });

  test('never says more than was believed, nor less than nothing, whatever it is told', () => {
    const number = fc.oneof(fc.double({ min: -10, max: 5_000 }), fc.constantFrom(0, Number.NaN, Infinity));
    const prompt = fc.record({ believedTokens: fc.nat(5_000), promptTokens: number, ttftMs: number });
    fc.assert(
      fc.property(fc.array(prompt, { maxLength: 60 }), (prompts) => {
        const feedback = trained();
        for (const each of prompts) {
          const told = feedback.cachedTokens(each);
          if (told === undefined) continue;
          expect(told).toBeGreaterThanOrEqual(0);
          expect(told).toBeLessThanOrEqual(each.believedTokens);
        }
      }),
    );
  });
});
