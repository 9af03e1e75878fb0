import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import {
  type Admission,
  type CachedPrompt,
  type PrefixCacheModel,
  promptTokens,
  serveAtOnce,
} from '../../src/index.js';
import { spellOut } from '../naive-caches.js';
import { type Action, actionsArbitrary, promptsArbitrary } from '../prompts.js';

/**
 * What every prefix cache keeps to, whatever its rules; `isShared` says whether a prompt under way lends what it has
 * entered.
 */
export function itIsAPrefixCache(
  name: string,
  create: () => PrefixCacheModel,
  { isShared }: { readonly isShared: boolean },
): void {
  describe(`prefix cache ${name}`, () => {
    it('answers from what was served before, never with the whole prompt, and in its own granularity', () => {
      fc.assert(
        fc.property(promptsArbitrary, (prompts) => {
          const cache = create();
          const before: string[][] = [];
          for (const prompt of prompts) {
            const tokens = spellOut(prompt);
            const predicted = cache.cachedTokens(prompt);
            const cached = serveAtOnce(cache, prompt);
            expect(cached).toBe(predicted);
            expectPlausible(cached, { cache, prompt, before });
            expect(cache.usedTokens).toBeLessThanOrEqual(cache.capacityTokens);
            before.push(tokens);
          }
        }),
        { seed: 11, numRuns: runs(150) },
      );
    });

    it('changes nothing when asked, and everything is gone when cleared', () => {
      fc.assert(
        fc.property(promptsArbitrary, (prompts) => {
          const cache = create();
          const asked = create();
          const served = prompts.map((prompt) => serveAtOnce(cache, prompt));
          const servedBetweenQuestions = prompts.map((prompt) => {
            for (const other of prompts) asked.cachedTokens(other);
            return serveAtOnce(asked, prompt);
          });
          expect(servedBetweenQuestions).toEqual(served);
          cache.clear();
          expect(prompts.map((prompt) => cache.cachedTokens(prompt))).toEqual(prompts.map(() => 0));
          expect(prompts.map((prompt) => serveAtOnce(cache, prompt))).toEqual(served);
        }),
        { seed: 12, numRuns: runs(60) },
      );
    });

    it('holds what prompts under way use, and never more than there is room for', () => {
      fc.assert(
        fc.property(actionsArbitrary, (actions) => {
          const cache = create();
          const computed: string[][] = [];
          const running = play(cache, actions, {
            admitted: (prompt, admission, others) => {
              if (admission !== undefined)
                return expectPlausible(admission.cachedTokens, { cache, prompt, before: computed });
              expect(others).toBeGreaterThan(0);
            },
            entered: (prompt, tokens) => computed.push(spellOut(prompt).slice(0, tokens)),
            after: (under) => {
              expect(cache.usedTokens).toBeLessThanOrEqual(cache.capacityTokens);
              if (isShared) for (const { prompt, entered } of under) expectHeld(cache, prompt, entered);
            },
          });
          for (const { admission } of running) admission.release();
          // With nothing under way there is room for any prompt again.
          for (const action of actions) if (action.kind === 'admit') serveAtOnce(cache, action.prompt);
          expect(cache.usedTokens).toBeLessThanOrEqual(cache.capacityTokens);
        }),
        { seed: 13, numRuns: runs(150) },
      );
    });

    it('refuses for now without a change', () => {
      fc.assert(
        fc.property(actionsArbitrary, (actions) => {
          const [cache, insistent] = [create(), create()];
          const admitted: (number | undefined)[] = [];
          play(cache, actions, { admitted: (_, admission) => admitted.push(admission?.cachedTokens) });
          const again: (number | undefined)[] = [];
          play(insistent, actions, {
            admitted: (prompt, admission) => {
              if (admission === undefined) expect(insistent.admit(prompt)).toBeUndefined();
              again.push(admission?.cachedTokens);
            },
          });
          expect(again).toEqual(admitted);
        }),
        { seed: 14, numRuns: runs(60) },
      );
    });
  });
}

/** A prompt under way, and how many of its tokens are computed. */
interface Running {
  readonly prompt: CachedPrompt;
  readonly admission: Admission;
  entered: number;
}

interface Watcher {
  /** Called with how many prompts are under way beside it. */
  readonly admitted?: (prompt: CachedPrompt, admission: Admission | undefined, others: number) => void;
  readonly entered?: (prompt: CachedPrompt, tokens: number) => void;
  readonly after?: (running: readonly Running[]) => void;
}

/** Plays the actions on a cache, and returns what is still under way. */
export function play(
  cache: { admit(prompt: CachedPrompt): Admission | undefined },
  actions: readonly Action[],
  watcher: Watcher = {},
): readonly Running[] {
  const running: Running[] = [];
  for (const action of actions) {
    if (action.kind === 'admit') {
      const admission = cache.admit(action.prompt);
      watcher.admitted?.(action.prompt, admission, running.length);
      if (admission !== undefined) {
        running.push({ prompt: action.prompt, admission, entered: admission.cachedTokens });
      }
    } else if (running.length > 0) {
      const place = action.pick % running.length;
      const picked = running[place]!;
      if (action.kind === 'release') {
        picked.admission.release();
        running.splice(place, 1);
      } else {
        picked.admission.enter(action.tokens);
        picked.entered = Math.max(picked.entered, Math.min(action.tokens, spellOut(picked.prompt).length));
        watcher.entered?.(picked.prompt, picked.entered);
      }
    }
    watcher.after?.(running);
  }
  return running;
}

function expectPlausible(
  cached: number,
  { cache, prompt, before }: { cache: PrefixCacheModel; prompt: CachedPrompt; before: readonly string[][] },
): void {
  const tokens = spellOut(prompt);
  expect(cached).toBeLessThan(promptTokens(prompt));
  expect(cached).toBeLessThanOrEqual(Math.max(0, ...before.map((other) => commonTokens(other, tokens))));
  expect(cached % cache.granularity).toBe(0);
}

function expectHeld(cache: PrefixCacheModel, prompt: CachedPrompt, entered: number): void {
  const most = Math.min(entered, promptTokens(prompt) - 1);
  expect(cache.cachedTokens(prompt)).toBeGreaterThanOrEqual(most - (most % cache.granularity));
}

/** Tokens in common at the start. */
export function commonTokens(a: readonly string[], b: readonly string[]): number {
  const parted = a.findIndex((token, place) => token !== b[place]);
  return parted < 0 ? a.length : parted;
}
