import { REPLACEMENT_POLICY_NAMES, replacementPolicy } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  type Admission,
  type CachedPrompt,
  createNoCache,
  LlamaSlots,
  type PrefixCacheModel,
  SglangRadixCache,
  serveAtOnce,
  VllmBlockCache,
} from '../src/index.js';
import { commonTokens, itIsAPrefixCache, play } from './conformance/prefix-cache.cases.js';
import { NaiveBlocks, NaiveRadix, spellOut } from './naive-caches.js';
import { type Action, actionsArbitrary, LONGEST_RUN, promptsArbitrary } from './prompts.js';

const FEW_BLOCKS = Math.ceil(LONGEST_RUN / 16);

itIsAPrefixCache('off', createNoCache, { isShared: false });
itIsAPrefixCache('vllm-blocks, unlimited', () => new VllmBlockCache(), { isShared: true });
itIsAPrefixCache('vllm-blocks, of 16', () => new VllmBlockCache({ blocks: FEW_BLOCKS + 3 }), { isShared: true });
itIsAPrefixCache('vllm-blocks, small blocks', () => new VllmBlockCache({ blockSize: 4, blocks: LONGEST_RUN }), {
  isShared: true,
});
itIsAPrefixCache('sglang-radix, unlimited', () => new SglangRadixCache(), { isShared: true });
itIsAPrefixCache('sglang-radix, limited', () => new SglangRadixCache({ tokens: LONGEST_RUN + 40 }), { isShared: true });
for (const name of REPLACEMENT_POLICY_NAMES) {
  const options = { tokens: LONGEST_RUN + 40, policy: replacementPolicy(name) };
  itIsAPrefixCache(`radix by ${name}`, () => new SglangRadixCache(options), { isShared: true });
}
itIsAPrefixCache('llama-slots', () => new LlamaSlots(), { isShared: false });
itIsAPrefixCache('llama-slots, little memory', () => new LlamaSlots({ slots: 2, savedTokens: 100 }), {
  isShared: false,
});
itIsAPrefixCache('llama-slots, idle slots kept', () => new LlamaSlots({ clearsIdleSlots: false }), { isShared: false });

describe('vLLM blocks', () => {
  it('without limit hold all full blocks ever served, the last token left out', () => {
    fc.assert(
      fc.property(promptsArbitrary, (prompts) => {
        expectLongestCommonPrefix(new VllmBlockCache(), prompts);
      }),
      { seed: 21, numRuns: runs(150) },
    );
  });

  it.each([16, 4, 1])('in blocks of %i agree with the token-wise twin', (blockSize) => {
    fc.assert(
      fc.property(actionsArbitrary, fc.nat({ max: 8 }), (actions, spare) => {
        const blocks = Math.ceil(longestOf(actions) / blockSize) + spare;
        const cache = new VllmBlockCache({ blockSize, blocks });
        expect(cachedCounts(cache, actions)).toEqual(cachedCounts(new NaiveBlocks(blockSize, blocks), actions));
      }),
      { seed: 22, numRuns: runs(150) },
    );
  });

  it('lose the tail of a prompt before its start', () => {
    const cache = new VllmBlockCache({ blocks: 6 });
    const prompt = (key: string) => ({ spans: [{ key, tokens: 65 }] });
    serveAtOnce(cache, prompt('first'));
    expect(cache.cachedTokens(prompt('first'))).toBe(64);
    // Five blocks each: the sixth, unused one goes first, then four from the end of the first prompt.
    serveAtOnce(cache, prompt('second'));
    expect(cache.cachedTokens(prompt('first'))).toBe(16);
  });

  it('do not count what a prompt reuses as room for the rest of it', () => {
    const cache = new VllmBlockCache({ blocks: 4 });
    serveAtOnce(cache, { spans: [{ key: 'long', tokens: 48 }] });
    const other = cache.admit({ spans: [{ key: 'other', tokens: 16 }] })!;
    const longer = {
      spans: [
        { key: 'long', tokens: 48 },
        { key: 'more', tokens: 16 },
      ],
    };
    // Three free blocks, all reused; the fourth is taken.
    expect(cache.admit(longer)).toBeUndefined();
    other.release();
    expect(cache.admit(longer)).toMatchObject({ cachedTokens: 48 });
  });

  it('refuse a prompt that does not fit as a whole, and sizes that make no sense', () => {
    const tooLong = { spans: [{ key: 'long', tokens: 33 }] };
    expect(() => serveAtOnce(new VllmBlockCache({ blocks: 2 }), tooLong)).toThrow(/3 blocks are needed/);
    expect(() => new VllmBlockCache({ blocks: 0 })).toThrow(/blocks/);
    expect(() => new VllmBlockCache({ blockSize: 1.5 })).toThrow(/blockSize/);
  });
});

describe('SGLang radix cache', () => {
  it('without limit holds every token ever served, the last one left out', () => {
    fc.assert(
      fc.property(promptsArbitrary, (prompts) => {
        expectLongestCommonPrefix(new SglangRadixCache(), prompts);
      }),
      { seed: 31, numRuns: runs(150) },
    );
  });

  it('agrees with the token-wise twin', () => {
    fc.assert(
      fc.property(actionsArbitrary, fc.nat({ max: 100 }), (actions, spare) => {
        const cache = new SglangRadixCache({ tokens: longestOf(actions) + spare });
        const naive = new NaiveRadix(cache.capacityTokens);
        const used: number[] = [];
        const cached = cachedCounts(cache, actions, () => used.push(cache.usedTokens));
        const naiveUsed: number[] = [];
        expect(cached).toEqual(cachedCounts(naive, actions, () => naiveUsed.push(naive.size())));
        expect(used).toEqual(naiveUsed);
      }),
      { seed: 32, numRuns: runs(150) },
    );
  });

  it('counts a prompt as used when it ends', () => {
    const cache = new SglangRadixCache({ tokens: 200 });
    const prompt = (key: string) => ({ spans: [{ key, tokens: 100 }] });
    const [long, short] = [cache.admit(prompt('long'))!, cache.admit(prompt('short'))!];
    for (const admission of [long, short]) admission.enter(100);
    short.release();
    long.release();
    serveAtOnce(cache, prompt('third'));
    expect(cache.cachedTokens(prompt('long'))).toBe(99);
  });

  it('refuses a prompt that does not fit as a whole, and sizes that make no sense', () => {
    expect(() => serveAtOnce(new SglangRadixCache({ tokens: 9 }), { spans: [{ key: 'long', tokens: 10 }] })).toThrow(
      /room for 9/,
    );
    expect(() => new SglangRadixCache({ tokens: -1 })).toThrow(/tokens/);
  });
});

describe('a radix cache with a replacement policy', () => {
  const prompt = (key: string) => ({ spans: [{ key, tokens: 100 }] });
  const cacheBy = (name: 'pgdsf' | 'gdsf') => new SglangRadixCache({ tokens: 1_000, policy: replacementPolicy(name) });

  it('keeps what was used often longer than what was used lately', () => {
    const [byPolicy, byAge] = [cacheBy('pgdsf'), new SglangRadixCache({ tokens: 1_000 })];
    for (const cache of [byPolicy, byAge]) {
      for (let i = 0; i < 20; i++) serveAtOnce(cache, prompt('often'));
      for (let i = 0; i < 60; i++) serveAtOnce(cache, prompt(`once ${i}`));
    }
    expect(byPolicy.cachedTokens(prompt('often'))).toBe(99);
    expect(byAge.cachedTokens(prompt('often'))).toBe(0);
  });

  it('counts uses from before an eviction on, where the policy remembers', () => {
    const survives = (name: 'pgdsf' | 'gdsf') => {
      const cache = cacheBy(name);
      let questions = 0;
      const about = (key: string) => ({
        spans: [...prompt(key).spans, { key: `question ${questions++}`, tokens: 10 }],
      });
      for (let i = 0; i < 5; i++) serveAtOnce(cache, about('often'));
      for (let i = 0; cache.cachedTokens(about('often')) > 0; i++) serveAtOnce(cache, prompt(`once ${i}`));
      for (let i = 0; i < 2; i++) serveAtOnce(cache, about('often'));
      for (let i = 0; i < 30; i++) serveAtOnce(cache, prompt(`later ${i}`));
      return cache.cachedTokens(about('often')) > 0;
    };
    expect(survives('pgdsf')).toBe(true);
    expect(survives('gdsf')).toBe(false);
  });

  it('gives the upper part of a cut edge the uses of the whole', () => {
    const cache = cacheBy('pgdsf');
    for (let i = 0; i < 20; i++) serveAtOnce(cache, prompt('often'));
    const half = { spans: [...[{ key: 'often', tokens: 50 }], { key: 'else', tokens: 50 }] };
    expect(serveAtOnce(cache, half)).toBe(50);
    for (let i = 0; i < 60; i++) serveAtOnce(cache, prompt(`once ${i}`));
    expect(cache.cachedTokens(prompt('often'))).toBe(99);
    expect(cache.cachedTokens(half)).toBe(50);
  });
});

describe('llama-server slots', () => {
  const prompt = (...spans: [key: string, tokens: number][]) => ({
    spans: spans.map(([key, tokens]) => ({ key, tokens })),
  });

  it('continue the slot that shares more than a tenth of the prompt', () => {
    const cache = new LlamaSlots();
    serveAtOnce(cache, prompt(['documents', 90], ['one', 10]));
    expect(serveAtOnce(cache, prompt(['documents', 90], ['two', 10]))).toBe(90);
  });

  it('move a saved prompt back in, once', () => {
    const cache = new LlamaSlots({ slots: 1 });
    serveAtOnce(cache, prompt(['a', 100]));
    serveAtOnce(cache, prompt(['b', 100]));
    expect(serveAtOnce(cache, prompt(['a', 100]))).toBe(99);
    // A slot that keeps most of its prompt is continued without saving: no copy is left of what is overwritten.
    serveAtOnce(cache, prompt(['a', 60], ['c', 400]));
    expect(cache.cachedTokens(prompt(['a', 100]))).toBe(60);
  });

  it('do not load a saved prompt of which less than a quarter would be kept', () => {
    const cache = new LlamaSlots({ slots: 1 });
    serveAtOnce(cache, prompt(['shared', 500], ['long', 3_560]));
    serveAtOnce(cache, prompt(['other', 560]));
    expect(serveAtOnce(cache, prompt(['shared', 500], ['short', 60]))).toBe(0);
  });

  it('reuse a live slot however little of it is kept, when idle slots are not cleared', () => {
    const cache = new LlamaSlots({ clearsIdleSlots: false });
    serveAtOnce(cache, prompt(['shared', 500], ['long', 3_560]));
    serveAtOnce(cache, prompt(['other', 560]));
    expect(serveAtOnce(cache, prompt(['shared', 500], ['short', 60]))).toBe(500);
  });

  it('let the oldest saved prompt go when memory is full', () => {
    const cache = new LlamaSlots({ slots: 1, savedTokens: 200 });
    for (const key of ['a', 'b', 'c', 'd']) serveAtOnce(cache, prompt([key, 100]));
    expect(cache.cachedTokens(prompt(['a', 100]))).toBe(0);
    expect(cache.cachedTokens(prompt(['c', 100]))).toBe(99);
  });

  it('take one prompt each, and lend nothing of it meanwhile', () => {
    const cache = new LlamaSlots({ slots: 2 });
    const first = cache.admit(prompt(['a', 100]))!;
    first.enter(100);
    const second = cache.admit(prompt(['a', 100]))!;
    expect(second.cachedTokens).toBe(0);
    expect(cache.admit(prompt(['a', 100]))).toBeUndefined();
    first.release();
    expect(cache.admit(prompt(['a', 100]))!.cachedTokens).toBe(99);
  });

  it('copy a saved prompt from host memory, and keep of an abandoned one what was computed', () => {
    const cache = new LlamaSlots({ slots: 1 });
    const abandoned = cache.admit(prompt(['a', 100]))!;
    abandoned.enter(60);
    abandoned.release();
    serveAtOnce(cache, prompt(['b', 100]));
    expect(cache.admit(prompt(['a', 100]))).toMatchObject({ cachedTokens: 60, hostTokens: 60 });
  });

  it('refuse a number of slots that makes no sense', () => {
    expect(() => new LlamaSlots({ slots: 0 })).toThrow(/slots/);
  });
});

/** Tokens of the longest prompt with its answer: a cache of this size is full all the time. */
function longestOf(actions: readonly Action[]): number {
  const lengths = actions.map((action) => (action.kind === 'admit' ? spellOut(action.prompt).length : 1));
  return Math.max(1, ...lengths);
}

/** Cached tokens of each admission, `refused` where there was no room; `after` is called after every action. */
function cachedCounts(
  cache: { admit(prompt: CachedPrompt): Admission | undefined },
  actions: readonly Action[],
  after: () => void = () => {},
): (number | 'refused')[] {
  const counts: (number | 'refused')[] = [];
  play(cache, actions, { admitted: (_, admission) => counts.push(admission?.cachedTokens ?? 'refused'), after });
  return counts;
}

function expectLongestCommonPrefix(cache: PrefixCacheModel, prompts: readonly CachedPrompt[]): void {
  const before: string[][] = [];
  for (const prompt of prompts) {
    const tokens = spellOut(prompt);
    const common = Math.max(0, ...before.map((other) => commonTokens(other, tokens)));
    const whole = Math.floor(Math.min(common, tokens.length - 1) / cache.granularity) * cache.granularity;
    expect(serveAtOnce(cache, prompt)).toBe(whole);
    before.push(tokens);
  }
}
