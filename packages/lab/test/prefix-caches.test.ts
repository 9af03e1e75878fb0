import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createNoCache, LlamaSlots, type PrefixCacheModel, SglangRadixCache, VllmBlockCache } from '../src/index.js';
import { commonTokens, itIsAPrefixCache } from './conformance/prefix-cache.cases.js';
import { NaiveBlocks, NaiveRadix, spellOut } from './naive-caches.js';
import { LONGEST_PROMPT, promptsArbitrary } from './prompts.js';

const FEW_BLOCKS = Math.ceil(LONGEST_PROMPT / 16);

itIsAPrefixCache('off', createNoCache);
itIsAPrefixCache('vllm-blocks, unlimited', () => new VllmBlockCache());
itIsAPrefixCache('vllm-blocks, of 16', () => new VllmBlockCache({ blocks: FEW_BLOCKS + 3 }));
itIsAPrefixCache('vllm-blocks, small blocks', () => new VllmBlockCache({ blockSize: 4, blocks: LONGEST_PROMPT }));
itIsAPrefixCache('sglang-radix, unlimited', () => new SglangRadixCache());
itIsAPrefixCache('sglang-radix, limited', () => new SglangRadixCache({ tokens: LONGEST_PROMPT + 40 }));
itIsAPrefixCache('llama-slots', () => new LlamaSlots());
itIsAPrefixCache('llama-slots, little memory', () => new LlamaSlots({ slots: 2, savedTokens: 100 }));
itIsAPrefixCache('llama-slots, idle slots kept', () => new LlamaSlots({ clearsIdleSlots: false }));

describe('vLLM blocks', () => {
  it('without limit hold all full blocks ever served, the last token left out', () => {
    fc.assert(
      fc.property(promptsArbitrary, (prompts) => {
        expectLongestCommonPrefix(new VllmBlockCache(), prompts);
      }),
      { seed: 21, numRuns: 150 },
    );
  });

  it.each([16, 4, 1])('in blocks of %i agree with the token-wise twin', (blockSize) => {
    fc.assert(
      fc.property(promptsArbitrary, fc.nat({ max: 20 }), (prompts, spare) => {
        const blocks = Math.ceil(LONGEST_PROMPT / blockSize) + spare;
        const cache = new VllmBlockCache({ blockSize, blocks });
        const naive = new NaiveBlocks(blockSize, blocks);
        for (const prompt of prompts) expect(cache.serve(prompt)).toBe(naive.serve(prompt));
      }),
      { seed: 22, numRuns: 100 },
    );
  });

  it('lose the tail of a prompt before its start', () => {
    const cache = new VllmBlockCache({ blocks: 6 });
    const prompt = (key: string) => ({ spans: [{ key, tokens: 65 }] });
    cache.serve(prompt('first'));
    expect(cache.cachedTokens(prompt('first'))).toBe(64);
    // Five blocks each: the sixth, unused one goes first, then four from the end of the first prompt.
    cache.serve(prompt('second'));
    expect(cache.cachedTokens(prompt('first'))).toBe(16);
  });

  it('refuse a prompt that does not fit as a whole, and sizes that make no sense', () => {
    const tooLong = { spans: [{ key: 'long', tokens: 33 }] };
    expect(() => new VllmBlockCache({ blocks: 2 }).serve(tooLong)).toThrow(/3 blocks are needed/);
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
      { seed: 31, numRuns: 150 },
    );
  });

  it('agrees with the token-wise twin', () => {
    fc.assert(
      fc.property(promptsArbitrary, fc.nat({ max: 300 }), (prompts, spare) => {
        const tokens = LONGEST_PROMPT + spare;
        const cache = new SglangRadixCache({ tokens });
        const naive = new NaiveRadix(tokens);
        for (const prompt of prompts) {
          expect(cache.serve(prompt)).toBe(naive.serve(prompt));
          expect(cache.usedTokens).toBe(naive.size());
        }
      }),
      { seed: 32, numRuns: 100 },
    );
  });

  it('refuses a prompt that does not fit as a whole, and sizes that make no sense', () => {
    expect(() => new SglangRadixCache({ tokens: 9 }).serve({ spans: [{ key: 'long', tokens: 10 }] })).toThrow(
      /room for 9/,
    );
    expect(() => new SglangRadixCache({ tokens: -1 })).toThrow(/tokens/);
  });
});

describe('llama-server slots', () => {
  const prompt = (...spans: [key: string, tokens: number][]) => ({
    spans: spans.map(([key, tokens]) => ({ key, tokens })),
  });

  it('continue the slot that shares more than a tenth of the prompt', () => {
    const cache = new LlamaSlots();
    cache.serve(prompt(['documents', 90], ['one', 10]));
    expect(cache.serve(prompt(['documents', 90], ['two', 10]))).toBe(90);
  });

  it('move a saved prompt back in, once', () => {
    const cache = new LlamaSlots({ slots: 1 });
    cache.serve(prompt(['a', 100]));
    cache.serve(prompt(['b', 100]));
    expect(cache.serve(prompt(['a', 100]))).toBe(99);
    // A slot that keeps most of its prompt is continued without saving: no copy is left of what is overwritten.
    cache.serve(prompt(['a', 60], ['c', 400]));
    expect(cache.cachedTokens(prompt(['a', 100]))).toBe(60);
  });

  it('do not load a saved prompt of which less than a quarter would be kept', () => {
    const cache = new LlamaSlots({ slots: 1 });
    cache.serve(prompt(['shared', 500], ['long', 3_560]));
    cache.serve(prompt(['other', 560]));
    expect(cache.serve(prompt(['shared', 500], ['short', 60]))).toBe(0);
  });

  it('reuse a live slot however little of it is kept, when idle slots are not cleared', () => {
    const cache = new LlamaSlots({ clearsIdleSlots: false });
    cache.serve(prompt(['shared', 500], ['long', 3_560]));
    cache.serve(prompt(['other', 560]));
    expect(cache.serve(prompt(['shared', 500], ['short', 60]))).toBe(500);
  });

  it('let the oldest saved prompt go when memory is full', () => {
    const cache = new LlamaSlots({ slots: 1, savedTokens: 200 });
    for (const key of ['a', 'b', 'c', 'd']) cache.serve(prompt([key, 100]));
    expect(cache.cachedTokens(prompt(['a', 100]))).toBe(0);
    expect(cache.cachedTokens(prompt(['c', 100]))).toBe(99);
  });

  it('refuse a number of slots that makes no sense', () => {
    expect(() => new LlamaSlots({ slots: 0 })).toThrow(/slots/);
  });
});

function expectLongestCommonPrefix(cache: PrefixCacheModel, prompts: Parameters<PrefixCacheModel['serve']>[0][]): void {
  const before: string[][] = [];
  for (const prompt of prompts) {
    const tokens = spellOut(prompt);
    const common = Math.max(0, ...before.map((other) => commonTokens(other, tokens)));
    const whole = Math.floor(Math.min(common, tokens.length - 1) / cache.granularity) * cache.granularity;
    expect(cache.serve(prompt)).toBe(whole);
    before.push(tokens);
  }
}
