import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readUsage } from '../src/internal.js';
import './seed.js';

const COUNTED = { promptTokens: 100, cachedTokens: 60 };

test.each<[string, unknown, object]>([
  ['our own', { promptTokens: 100, cachedTokens: 60 }, COUNTED],
  ['OpenAI chat completions', { prompt_tokens: 100, prompt_tokens_details: { cached_tokens: 60 } }, COUNTED],
  ['OpenAI Responses', { input_tokens: 100, input_tokens_details: { cached_tokens: 60 } }, COUNTED],
  ['Anthropic', { input_tokens: 30, cache_read_input_tokens: 60, cache_creation_input_tokens: 10 }, COUNTED],
  [
    'Anthropic, all cached',
    { input_tokens: 0, cache_read_input_tokens: 100 },
    { promptTokens: 100, cachedTokens: 100 },
  ],
  ['Bedrock', { inputTokens: 30, cacheReadInputTokens: 60, cacheWriteInputTokens: 10 }, COUNTED],
  ['AI SDK 5', { inputTokens: 100, cachedInputTokens: 60 }, COUNTED],
  ['AI SDK 6', { inputTokens: 100, inputTokenDetails: { cacheReadTokens: 60 } }, COUNTED],
  ['an AI SDK provider', { inputTokens: { total: 100, noCache: 40, cacheRead: 60 } }, COUNTED],
  ['LangChain', { input_tokens: 100, input_token_details: { cache_read: 60 } }, COUNTED],
  ['Gemini', { promptTokenCount: 100, cachedContentTokenCount: 60 }, COUNTED],
  ['DeepSeek', { prompt_tokens: 100, prompt_cache_hit_tokens: 60, prompt_cache_miss_tokens: 40 }, COUNTED],
  [
    'LiteLLM, which counts the cached tokens in the prompt and again',
    { prompt_tokens: 100, cache_read_input_tokens: 60, prompt_tokens_details: { cached_tokens: 60 } },
    COUNTED,
  ],
  ['a whole answer', { id: 'x', usage: { prompt_tokens: 100, prompt_tokens_details: { cached_tokens: 60 } } }, COUNTED],
  ['a LangChain message', { usage_metadata: { input_tokens: 100, input_token_details: { cache_read: 60 } } }, COUNTED],
  ['an answer of Gemini', { usageMetadata: { promptTokenCount: 100, cachedContentTokenCount: 60 } }, COUNTED],
  [
    'nothing cached',
    { prompt_tokens: 100, prompt_tokens_details: { cached_tokens: 0 } },
    { promptTokens: 100, cachedTokens: 0 },
  ],
  ['no count of cached tokens', { prompt_tokens: 100, prompt_tokens_details: null }, { promptTokens: 100 }],
  ['zeros where nothing was counted', { inputTokens: 0, cachedInputTokens: 0 }, {}],
  ['more cached than there was', { inputTokens: 40, cachedInputTokens: 60 }, { cachedTokens: 60 }],
  ['counts that are none', { prompt_tokens: -1, cachedTokens: Number.NaN, promptTokens: '100' }, {}],
  ['nothing', undefined, {}],
  ['null', null, {}],
  ['a chunk without usage', { usage: null, choices: [] }, {}],
])('the usage of %s', (_, usage, expected) => {
  expect(readUsage(usage)).toEqual(expected);
});

test('any JSON is read without an error, and no prompt has fewer tokens than were cached', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const { promptTokens, cachedTokens } = readUsage(value);
      if (promptTokens !== undefined) expect(cachedTokens ?? 0).toBeLessThanOrEqual(promptTokens);
    }),
  );
});
