/** Tokens of a prompt, as far as the engine counted them. */
export interface PromptUsage {
  readonly promptTokens?: number;
  /** How many of them were cached. */
  readonly cachedTokens?: number;
}

/** Tokens of a prompt and its answer, as far as the engine counted them. */
export interface TokenCounts extends PromptUsage {
  /** Tokens of the prompt that the engine wrote into its cache, where it counts them. */
  readonly cacheWriteTokens?: number;
  /** How many of them it keeps for an hour. */
  readonly hourWriteTokens?: number;
  readonly completionTokens?: number;
  /** How many tokens of the answer are reasoning. */
  readonly reasoningTokens?: number;
}

/** Places of the usage in an answer, or in an event of a stream. */
const USAGE_PATHS = paths([
  'usage',
  'message.usage', // Anthropic, in the first event
  'response.usage', // OpenAI Responses, in the last event
  'choices.0.usage', // Moonshot, in streams
  'x_groq.usage', // Groq, in streams
  'usage_metadata', // LangChain
  'usageMetadata', // Gemini
]);
/** Paths of the whole prompt, its cached part included. */
const PROMPT_PATHS = paths([
  'promptTokens',
  'prompt_tokens', // OpenAI chat completions, vLLM, SGLang, llama-server, DeepSeek
  'inputTokens.total', // AI SDK providers
  'promptTokenCount', // Gemini
  'inputTokens', // AI SDK, Bedrock
  'input_tokens', // OpenAI Responses, LangChain, Anthropic
]);
const CACHED_PATHS = paths([
  'cachedTokens',
  'prompt_tokens_details.cached_tokens',
  'input_tokens_details.cached_tokens',
  'inputTokens.cacheRead',
  'inputTokenDetails.cacheReadTokens',
  'cachedInputTokens',
  'input_token_details.cache_read',
  'cachedContentTokenCount',
  'prompt_cache_hit_tokens', // DeepSeek
  'cached_tokens', // Moonshot, Together
  'num_cached_tokens', // Mistral
  'cache_read_input_tokens',
  'cacheReadInputTokens',
]);
const WRITTEN_PATHS = paths([
  'cacheWriteTokens',
  'prompt_tokens_details.cache_write_tokens', // OpenAI, OpenRouter
  'input_tokens_details.cache_write_tokens', // OpenAI Responses
  'prompt_tokens_details.cache_creation_input_tokens', // Alibaba
  'prompt_tokens_details.cache_creation_tokens', // LiteLLM
  'cache_write_tokens',
  'cache_creation_input_tokens', // Anthropic
  'inputTokens.cacheWrite',
  'inputTokenDetails.cacheWriteTokens',
  'input_token_details.cache_creation',
  'cacheWriteInputTokens', // Bedrock
]);
const HOUR_WRITTEN_PATHS = paths([
  'cache_creation.ephemeral_1h_input_tokens', // Anthropic
  'prompt_tokens_details.cache_creation_token_details.ephemeral_1h_input_tokens', // LiteLLM
]);
const COMPLETION_PATHS = paths([
  'completionTokens',
  'completion_tokens',
  'output_tokens',
  'outputTokens.total',
  'outputTokens',
  'candidatesTokenCount',
]);
const REASONING_PATHS = paths([
  'reasoningTokens',
  'completion_tokens_details.reasoning_tokens',
  'output_tokens_details.reasoning_tokens',
  'outputTokens.reasoning',
  'outputTokenDetails.reasoningTokens',
  'output_token_details.reasoning',
  'reasoning_tokens', // SGLang
  'thoughtsTokenCount',
]);
/** Cached tokens of an answer, beside its usage. */
const BESIDE_PATHS = paths(['cached_tokens', 'choices.0.cached_tokens']);
/** Anthropic and Bedrock count tokens that were read from or written to the cache beside the input. */
const BESIDE_INPUT: Readonly<Record<string, readonly Path[]>> = {
  input_tokens: paths(['cache_read_input_tokens', 'cache_creation_input_tokens']),
  inputTokens: paths(['cacheReadInputTokens', 'cacheWriteInputTokens']),
};
/** Fields of APIs that are known to count the cached tokens in the prompt. Other fields mean different things. */
const INCLUDES_CACHED: ReadonlySet<string> = new Set(['prompt_tokens', 'input_tokens']);

/**
 * Reads the counts that an API or SDK reports, from its usage or from an answer or event that holds it. Empty for what
 * is neither. A count of 0 for the whole prompt means that the engine reported none.
 */
export function readTokenCounts(value: unknown): TokenCounts {
  if (!isObject(value)) return NO_COUNTS;
  const isAnswer = 'choices' in value || 'type' in value;
  const inner = isAnswer || findAt(PROMPT_PATHS, value) === undefined ? usageIn(value) : undefined;
  const own = inner === undefined && isAnswer ? NO_COUNTS : countsOf(inner ?? value);
  if (inner === undefined && !isAnswer && Object.keys(own).length > 0) return own;
  // Some engines state a part of the counts beside the usage.
  const { timings } = value;
  const counts = { ...(timings !== undefined && readTimings(timings)), ...cachedBeside(value), ...own };
  const { promptTokens = Number.POSITIVE_INFINITY, cachedTokens } = counts;
  return cachedTokens === undefined ? counts : { ...counts, cachedTokens: Math.min(cachedTokens, promptTokens) };
}

const NO_COUNTS: TokenCounts = {};

function usageIn(value: unknown): unknown {
  for (const path of USAGE_PATHS) {
    const usage = valueAt(value, path);
    if (isObject(usage)) return usage;
  }
  return undefined;
}

/** Of the counts that an API or SDK reports, those of the prompt (`readTokenCounts`). */
export function readUsage(value: unknown): PromptUsage {
  const { promptTokens, cachedTokens } = readTokenCounts(value);
  return { ...(promptTokens !== undefined && { promptTokens }), ...(cachedTokens !== undefined && { cachedTokens }) };
}

function countsOf(usage: unknown): TokenCounts {
  const prompt = findAt(PROMPT_PATHS, usage);
  const beside = BESIDE_INPUT[prompt?.path.join('.') ?? ''] ?? [];
  const promptTokens = beside.reduce((sum, path) => sum + (countAt(usage, path) ?? 0), prompt?.count ?? 0);
  const cacheWriteTokens = findAt(WRITTEN_PATHS, usage)?.count;
  let cachedTokens = findAt(CACHED_PATHS, usage)?.count;
  // Anthropic leaves out what it read where it only wrote.
  if (beside.some((path) => countAt(usage, path) !== undefined)) cachedTokens ??= 0;
  const answer = {
    completionTokens: findAt(COMPLETION_PATHS, usage)?.count,
    reasoningTokens: findAt(REASONING_PATHS, usage)?.count,
  };
  if (prompt !== undefined && promptTokens === 0) return defined(answer);
  const isExcess = prompt !== undefined && (cachedTokens ?? 0) > promptTokens;
  const isClamped = isExcess && INCLUDES_CACHED.has(prompt.path.join('.'));
  return defined({
    promptTokens: prompt === undefined || (isExcess && !isClamped) ? undefined : promptTokens,
    cachedTokens: isClamped ? promptTokens : cachedTokens,
    cacheWriteTokens,
    hourWriteTokens: findAt(HOUR_WRITTEN_PATHS, usage)?.count || undefined,
    ...answer,
  });
}

/** Cached tokens that an answer states beside its usage. */
function cachedBeside(answer: unknown): TokenCounts {
  const cachedTokens = findAt(BESIDE_PATHS, answer)?.count;
  return cachedTokens === undefined ? NO_COUNTS : { cachedTokens };
}

/** llama-server states the same counts as `timings`, also at the end of a stream that has no `usage`. */
function readTimings(timings: unknown): TokenCounts {
  const [computed, cachedTokens] = [countAt(timings, ['prompt_n']), countAt(timings, ['cache_n'])];
  const completionTokens = countAt(timings, ['predicted_n']);
  if (computed === undefined || cachedTokens === undefined) return defined({ completionTokens });
  return defined({ promptTokens: computed + cachedTokens, cachedTokens, completionTokens });
}

type Path = readonly string[];

function paths(fields: readonly string[]): readonly Path[] {
  return fields.map((field) => field.split('.'));
}

function findAt(among: readonly Path[], value: unknown): { readonly path: Path; readonly count: number } | undefined {
  for (const path of among) {
    const count = countAt(value, path);
    if (count !== undefined) return { path, count };
  }
  return undefined;
}

function countAt(value: unknown, path: Path): number | undefined {
  const found = valueAt(value, path);
  return Number.isSafeInteger(found) && (found as number) >= 0 ? (found as number) : undefined;
}

function valueAt(value: unknown, path: Path): unknown {
  let found = value;
  for (const name of path) found = isObject(found) && Object.hasOwn(found, name) ? found[name] : undefined;
  return found;
}

/** Arrays included, whose elements have a path, too. */
function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

function defined(counts: { readonly [Name in keyof TokenCounts]: TokenCounts[Name] | undefined }): TokenCounts {
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count !== undefined)) as TokenCounts;
}
