import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readTokenCounts, readUsage } from '../src/internal.js';
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
      for (const { promptTokens, cachedTokens } of [readTokenCounts(value), readTokenCounts({ usage: value })])
        if (promptTokens !== undefined) expect(cachedTokens ?? 0).toBeLessThanOrEqual(promptTokens);
    }),
  );
});

const ALL = { promptTokens: 100, cachedTokens: 60, cacheWriteTokens: 10, completionTokens: 8, reasoningTokens: 3 };
const { cacheWriteTokens: _, ...NOT_WRITTEN } = ALL;
const { reasoningTokens: __, ...NO_REASONING } = NOT_WRITTEN;
const COMPLETION = { completion_tokens: 8, completion_tokens_details: { reasoning_tokens: 3 } };
const OUTPUT = { output_tokens: 8, output_tokens_details: { reasoning_tokens: 3 } };
const ANTHROPIC = { input_tokens: 30, cache_read_input_tokens: 60, cache_creation_input_tokens: 10, output_tokens: 8 };
const PLAIN = { prompt_tokens: 100, completion_tokens: 8 };

test.each<[string, object, object]>([
  [
    'OpenAI chat completions',
    {
      usage: {
        prompt_tokens: 100,
        prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 10 },
        ...COMPLETION,
      },
    },
    ALL,
  ],
  [
    'OpenAI Responses, in an event',
    {
      response: {
        usage: { input_tokens: 100, input_tokens_details: { cached_tokens: 60, cache_write_tokens: 10 }, ...OUTPUT },
      },
    },
    ALL,
  ],
  [
    'Anthropic, in its first event',
    { type: 'message_start', message: { usage: ANTHROPIC } },
    { ...NO_REASONING, cacheWriteTokens: 10 },
  ],
  [
    'Anthropic, where it only wrote',
    { usage: { input_tokens: 30, cache_creation_input_tokens: 70 } },
    { promptTokens: 100, cachedTokens: 0, cacheWriteTokens: 70 },
  ],
  ['DeepSeek', { usage: { ...PLAIN, prompt_cache_hit_tokens: 60, prompt_cache_miss_tokens: 40 } }, NO_REASONING],
  ['Moonshot', { usage: { ...PLAIN, cached_tokens: 60 } }, NO_REASONING],
  [
    'Moonshot, in a stream',
    { choices: [{ index: 0, delta: {}, usage: { ...PLAIN, cached_tokens: 60 } }] },
    NO_REASONING,
  ],
  ['a count beside the usage', { usage: PLAIN, cached_tokens: 60 }, NO_REASONING],
  ['a count in the choice', { usage: PLAIN, choices: [{ index: 0, cached_tokens: 60 }] }, NO_REASONING],
  ['Mistral', { usage: { ...PLAIN, num_cached_tokens: 60 } }, NO_REASONING],
  [
    'Groq, in a stream',
    { choices: [], x_groq: { usage: { ...PLAIN, prompt_tokens_details: { cached_tokens: 60 } } } },
    NO_REASONING,
  ],
  ['SGLang', { usage: { ...PLAIN, reasoning_tokens: 3, prompt_tokens_details: { cached_tokens: 60 } } }, NOT_WRITTEN],
  [
    'Alibaba',
    { usage: { ...PLAIN, prompt_tokens_details: { cached_tokens: 60, cache_creation_input_tokens: 10 } } },
    { ...NO_REASONING, cacheWriteTokens: 10 },
  ],
  [
    'LiteLLM',
    { usage: { ...PLAIN, cache_read_input_tokens: 60, cache_creation_input_tokens: 10 } },
    { ...NO_REASONING, cacheWriteTokens: 10 },
  ],
  [
    'Gemini',
    {
      usageMetadata: {
        promptTokenCount: 100,
        cachedContentTokenCount: 60,
        candidatesTokenCount: 8,
        thoughtsTokenCount: 3,
      },
    },
    NOT_WRITTEN,
  ],
  ['llama-server without usage', { choices: [], timings: { prompt_n: 40, cache_n: 60, predicted_n: 8 } }, NO_REASONING],
  [
    'llama-server, cached tokens in its timings alone',
    { usage: PLAIN, timings: { prompt_n: 40, cache_n: 60 } },
    NO_REASONING,
  ],
  [
    'timings that contradict the usage',
    { usage: PLAIN, timings: { prompt_n: 1, cache_n: 160 } },
    { ...NO_REASONING, cachedTokens: 100 },
  ],
  [
    'more cached than there was',
    { usage: { prompt_tokens: 9, prompt_tokens_details: { cached_tokens: 90 } } },
    { promptTokens: 9, cachedTokens: 9 },
  ],
  [
    'an answer whose prompt was not counted',
    { usage: { prompt_tokens: 0, completion_tokens: 8 } },
    { completionTokens: 8 },
  ],
])('all counts of %s', (_, answer, expected) => {
  expect(readTokenCounts(answer)).toEqual(expected);
});
