import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type PrefixCacheModel, promptTokens } from '../../src/index.js';
import { spellOut } from '../naive-caches.js';
import { promptsArbitrary } from '../prompts.js';

/** What every prefix cache keeps to, whatever its rules. */
export function itIsAPrefixCache(name: string, create: () => PrefixCacheModel): void {
  describe(`prefix cache ${name}`, () => {
    it('answers from what was served before, never with the whole prompt, and in its own granularity', () => {
      fc.assert(
        fc.property(promptsArbitrary, (prompts) => {
          const cache = create();
          const before: string[][] = [];
          for (const prompt of prompts) {
            const tokens = spellOut(prompt);
            const predicted = cache.cachedTokens(prompt);
            const cached = cache.serve(prompt);
            expect(cached).toBe(predicted);
            expect(cached).toBeLessThan(promptTokens(prompt));
            expect(cached).toBeLessThanOrEqual(Math.max(0, ...before.map((other) => commonTokens(other, tokens))));
            expect(cached % cache.granularity).toBe(0);
            expect(cache.usedTokens).toBeLessThanOrEqual(cache.capacityTokens);
            before.push(tokens);
          }
        }),
        { seed: 11, numRuns: 150 },
      );
    });

    it('changes nothing when asked, and everything is gone when cleared', () => {
      fc.assert(
        fc.property(promptsArbitrary, (prompts) => {
          const cache = create();
          const asked = create();
          const served = prompts.map((prompt) => cache.serve(prompt));
          const servedBetweenQuestions = prompts.map((prompt) => {
            for (const other of prompts) asked.cachedTokens(other);
            return asked.serve(prompt);
          });
          expect(servedBetweenQuestions).toEqual(served);
          cache.clear();
          expect(prompts.map((prompt) => cache.cachedTokens(prompt))).toEqual(prompts.map(() => 0));
          expect(prompts.map((prompt) => cache.serve(prompt))).toEqual(served);
        }),
        { seed: 12, numRuns: 60 },
      );
    });
  });
}

/** Tokens in common at the start. */
export function commonTokens(a: readonly string[], b: readonly string[]): number {
  const parted = a.findIndex((token, place) => token !== b[place]);
  return parted < 0 ? a.length : parted;
}
