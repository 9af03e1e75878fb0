import { isRecord } from './document.js';

/** Tokens of a prompt, as far as the engine counted them. */
export interface PromptUsage {
  readonly promptTokens?: number;
  /** How many of them were cached. */
  readonly cachedTokens?: number;
}

/** Where answers hold their usage. */
const USAGE_FIELDS = ['usage', 'usage_metadata', 'usageMetadata'];
/** Paths of the whole prompt, its cached part included. */
const PROMPT_FIELDS = [
  'promptTokens',
  'prompt_tokens', // OpenAI chat completions, vLLM, SGLang, llama-server, DeepSeek
  'inputTokens.total', // AI SDK providers
  'promptTokenCount', // Gemini
  'inputTokens', // AI SDK, Bedrock
  'input_tokens', // OpenAI Responses, LangChain, Anthropic
];
const CACHED_FIELDS = [
  'cachedTokens',
  'prompt_tokens_details.cached_tokens',
  'input_tokens_details.cached_tokens',
  'inputTokens.cacheRead',
  'inputTokenDetails.cacheReadTokens',
  'cachedInputTokens',
  'input_token_details.cache_read',
  'cachedContentTokenCount',
  'prompt_cache_hit_tokens',
  'cache_read_input_tokens',
  'cacheReadInputTokens',
];
/** Anthropic and Bedrock count tokens that were read from or written to the cache beside the input. */
const BESIDE_INPUT: Readonly<Record<string, readonly string[]>> = {
  input_tokens: ['cache_read_input_tokens', 'cache_creation_input_tokens'],
  inputTokens: ['cacheReadInputTokens', 'cacheWriteInputTokens'],
};

/**
 * Reads the usage that an API or SDK reports, or an answer that holds it. Empty for what is neither. A count of 0 for
 * the whole prompt means that the engine reported none.
 */
export function readUsage(value: unknown): PromptUsage {
  if (!isRecord(value)) return {};
  const field = PROMPT_FIELDS.find((path) => countAt(value, path) !== undefined);
  const cachedTokens = CACHED_FIELDS.map((path) => countAt(value, path)).find((count) => count !== undefined);
  if (field === undefined && cachedTokens === undefined) {
    const inner = USAGE_FIELDS.map((name) => value[name]).find(isRecord);
    return inner === undefined ? {} : readUsage(inner);
  }
  const beside = BESIDE_INPUT[field ?? ''] ?? [];
  const promptTokens =
    field === undefined
      ? undefined
      : beside.reduce((sum, path) => sum + (countAt(value, path) ?? 0), countAt(value, field)!);
  if (promptTokens === 0) return {};
  const isPlausible = promptTokens !== undefined && promptTokens >= (cachedTokens ?? 0);
  return { ...(isPlausible && { promptTokens }), ...(cachedTokens !== undefined && { cachedTokens }) };
}

function countAt(value: unknown, path: string): number | undefined {
  let found = value;
  for (const name of path.split('.')) found = isRecord(found) ? found[name] : undefined;
  return Number.isSafeInteger(found) && (found as number) >= 0 ? (found as number) : undefined;
}
