import { WarmpathError } from '@warmpath/core';
import { z } from 'zod';

/** Most stop strings of one request, and the longest of them in characters. */
const MAX_STOPS = 16;
const MAX_STOP_LENGTH = 512;

/** Most places of one prompt at which documents end. */
const MAX_SEGMENTS = 4096;

/** Lowest priority. The default, 0, is the highest. */
const MAX_PRIORITY = 100;

/** Longest cache salt in characters, as in vLLM. */
const MAX_SALT_LENGTH = 1024;

const MAX_MESSAGES = 2048;

/** An array whose length is checked before its elements. */
const arrayOf = <T extends z.ZodType>(element: T, most: number, least = 0) =>
  z.array(z.unknown()).min(least).max(most).pipe(z.array(element));

const stop = z
  .union([z.string().max(MAX_STOP_LENGTH), arrayOf(z.string().min(1).max(MAX_STOP_LENGTH), MAX_STOPS)], {
    error: `Expected a string or at most ${MAX_STOPS} non-empty strings of at most ${MAX_STOP_LENGTH} characters`,
  })
  .nullish();

export const cacheSalt = z.string().min(1).max(MAX_SALT_LENGTH).nullish();

/** Where the documents of a prompt end. */
export const segments = arrayOf(z.int().min(0), MAX_SEGMENTS).nullish();

const streamOptions = z.object({ include_usage: z.boolean().nullish() }).nullish();

const MAX_BIASES = 1024;

const penalty = z.number().min(-2).max(2).nullish();
const repetitionPenalty = z.number().gt(0).max(100).nullish();

/** Most tokens of an answer; -1 for as many as the context has room for. */
const tokenLimit = z.int().min(-1).nullish();

const bias = z.union([z.number().min(-100).max(100), z.literal(false)], {
  error: 'Expected a number from -100 to 100',
});

/** OpenAI's object of token ids, or llama-server's array of pairs; `false` forbids a token. */
const logitBias = z
  .preprocess(
    objectOfPairs,
    z
      .record(z.string(), z.unknown())
      .refine((biases) => Object.keys(biases).length <= MAX_BIASES, { error: `Expected at most ${MAX_BIASES} tokens` })
      .pipe(z.record(z.string().regex(/^\d{1,9}$/, { error: 'Expected a token id' }), bias)),
  )
  .nullish();

function objectOfPairs(given: unknown): unknown {
  const isPairs = Array.isArray(given) && given.length <= MAX_BIASES && given.every((pair) => Array.isArray(pair));
  return isPairs ? Object.fromEntries(given.map(([token, value]: unknown[]) => [String(token), value])) : given;
}

/** `jsonForm` reads the schemas. Unknown keys are refused: they could ask for another answer. */
const responseFormat = z
  .discriminatedUnion(
    'type',
    [
      z.object({ type: z.literal('text') }),
      z.strictObject({ type: z.literal('json_object') }),
      z.strictObject({
        type: z.literal('json_schema'),
        json_schema: z.object({
          name: z.string().max(64).nullish(),
          strict: z.boolean().nullish(),
          schema: z.record(z.string(), z.unknown()),
        }),
      }),
    ],
    { error: 'Expected one of the types text, json_object and json_schema, and nothing else' },
  )
  .nullish();

const toolChoice = z
  .union(
    [
      z.enum(['none', 'auto', 'required']),
      z.object({ type: z.literal('function'), function: z.object({ name: z.string() }) }),
    ],
    { error: 'Expected none, auto, required, or a function and its name' },
  )
  .nullish();

/** Likeliest tokens that an answer reports for each of its own. */
const topLogprobs = z.int().min(0).max(20).nullish();

/** Most answers of one request: those of all its prompts. */
export const MAX_ANSWERS = 128;

/** Fields that chat and plain completions share. What becomes of others: `request-fields.ts`. */
const generationFields = {
  model: z.string().nullish(),
  max_tokens: tokenLimit,
  n_predict: tokenLimit,
  temperature: z.number().min(0).max(100).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  top_k: z.int().min(-1).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  presence_penalty: penalty,
  frequency_penalty: penalty,
  repetition_penalty: repetitionPenalty,
  repeat_penalty: repetitionPenalty,
  repeat_last_n: z.int().min(-1).nullish(),
  logit_bias: logitBias,
  response_format: responseFormat,
  json_schema: z.unknown().optional(),
  guided_json: z.unknown().optional(),
  structured_outputs: z
    .strictObject({ json: z.unknown().optional() }, { error: 'This engine supports `json` alone here' })
    .nullish(),
  seed: z.int().min(-1).nullish(),
  stop,
  stream: z.boolean().nullish(),
  stream_options: streamOptions,
  n: z.int().min(1).max(MAX_ANSWERS).nullish(),
  ignore_eos: z.boolean().nullish(),
  priority: z.int().min(0).max(MAX_PRIORITY).nullish(),
  cache_salt: cacheSalt,
};

const MAX_CALLS = 128;

const toolCall = z.object({
  id: z.string().nullish(),
  type: z.literal('function', { error: 'This engine reads calls of functions only' }).nullish(),
  function: z.object({ name: z.string(), arguments: z.string() }),
});

const message = z.object({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
  name: z.string().nullish(),
  // Checked by hand, so that the path of an error leads into the part that is wrong.
  content: z.unknown().optional(),
  tool_calls: arrayOf(toolCall, MAX_CALLS).nullish(),
  tool_call_id: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  // As newer versions of vLLM name it.
  reasoning: z.string().nullish(),
});

const messages = arrayOf(message, MAX_MESSAGES, 1);

const MAX_TEMPLATE_VARIABLES = 64;

/** What a request says of how its conversation becomes a prompt. */
export const chatPromptFields = {
  messages,
  // Read by `chatForm`, which names the path of what is wrong.
  tools: z.unknown().optional(),
  chat_template_kwargs: z
    .record(z.string().regex(/^[A-Za-z_]\w{0,63}$/, { error: 'Expected the name of a variable' }), z.unknown())
    .refine((variables) => Object.keys(variables).length <= MAX_TEMPLATE_VARIABLES, {
      error: `Expected at most ${MAX_TEMPLATE_VARIABLES} variables`,
    })
    .nullish(),
  add_generation_prompt: z.boolean().nullish(),
  // The texts are llama-server's; what is continued follows from the message.
  continue_final_message: z.union([z.boolean(), z.enum(['content', 'reasoning_content'])]).nullish(),
  reasoning_effort: z.string().max(64).nullish(),
};

export type ChatPromptFields = z.output<z.ZodObject<typeof chatPromptFields>>;

export const chatCompletionSchema = z.object({
  ...generationFields,
  ...chatPromptFields,
  max_completion_tokens: tokenLimit,
  logprobs: z.boolean().nullish(),
  top_logprobs: topLogprobs,
  tool_choice: toolChoice,
  parallel_tool_calls: z.boolean().nullish(),
  reasoning_format: z.enum(['auto', 'none', 'deepseek']).nullish(),
});

export const completionSchema = z.object({
  ...generationFields,
  prompt: z.unknown(),
  segments,
  add_special_tokens: z.boolean().nullish(),
  echo: z.boolean().nullish(),
  best_of: z.literal(1, { error: 'This engine makes no more completions than it answers' }).nullish(),
  logprobs: topLogprobs,
});

export type GenerationFields = z.output<z.ZodObject<typeof generationFields>>;
export type ToolChoice = z.output<typeof toolChoice>;
export type MessageInput = z.output<typeof message>;

/**
 * @throws WARMPATH_INVALID_REQUEST with the path of the first field that is wrong. Says what was expected and never
 *   repeats a value.
 */
export function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: fieldPath(issue.path), detail: issue.message });
}

/** A missing name means the model that is served. */
export function checkModel(asked: string | null | undefined, served: string): void {
  if (asked !== undefined && asked !== null && asked !== '' && asked !== served) {
    const detail = `This engine serves the model ${served}.`;
    throw new WarmpathError('WARMPATH_MODEL_NOT_FOUND', { path: 'model', detail });
  }
}

function fieldPath(path: readonly PropertyKey[]): string {
  const text = path.map((key) => (typeof key === 'number' ? `[${key}]` : `.${String(key)}`)).join('');
  return text.startsWith('.') ? text.slice(1) : text || 'body';
}
