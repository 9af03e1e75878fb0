import { isObject } from '../json/json-scanner.js';

/** An engine's token counts of a prompt. */
export interface Usage {
  readonly promptTokens: number;
  /** `undefined` if left out: some engines do so at 0, others always. */
  readonly cachedTokens: number | undefined;
}

/**
 * Reads the `usage` of any API; `undefined` for anything else. OpenAI's `prompt_tokens` and `input_tokens` include
 * cached tokens. Anthropic's `input_tokens` are those neither read from the cache nor written to it, so the prompt is
 * the sum of all three.
 */
export function readUsage(value: unknown): Usage | undefined {
  if (!isObject(value)) return undefined;
  const { prompt_tokens: promptTokens, input_tokens: inputTokens } = value;
  if (isCount(promptTokens)) {
    // DeepSeek's name. Some versions lack the usual field.
    const hit = value['prompt_cache_hit_tokens'];
    return usage(promptTokens, cachedOf(value['prompt_tokens_details']) ?? (isCount(hit) ? hit : undefined));
  }
  if (!isCount(inputTokens)) return undefined;
  const { cache_read_input_tokens: read, cache_creation_input_tokens: written } = value;
  if (!isCount(read) && !isCount(written)) return usage(inputTokens, cachedOf(value['input_tokens_details']));
  return usage(inputTokens + (isCount(read) ? read : 0) + (isCount(written) ? written : 0), isCount(read) ? read : 0);
}

/** Tokens of the answer in the `usage` of any API; `undefined` if left out. */
export function readCompletionTokens(value: unknown): number | undefined {
  if (!isObject(value)) return undefined;
  const { completion_tokens: completionTokens, output_tokens: outputTokens } = value;
  if (isCount(completionTokens)) return completionTokens;
  return isCount(outputTokens) ? outputTokens : undefined;
}

/** The content of one SSE event. */
export interface StreamEvent {
  readonly usage: Usage | undefined;
  readonly completionTokens: number | undefined;
  /** Whether it contains generated text or a tool call. */
  readonly content: boolean;
}

/** Reads one `data:` line of any API; `undefined` if it is no JSON object. */
export function readStreamEvent(object: Readonly<Record<string, unknown>> | undefined): StreamEvent {
  const stated = usageOfEvent(object);
  return {
    usage: readUsage(stated) ?? readTimings(object?.['timings']),
    completionTokens: readCompletionTokens(stated) ?? readPredicted(object?.['timings']),
    content: hasContent(object),
  };
}

/** llama-server states the same counts as `timings` at the end of a stream that has no `usage`. */
function readTimings(value: unknown): Usage | undefined {
  if (!isObject(value)) return undefined;
  const { prompt_n: computed, cache_n: cached } = value;
  return isCount(computed) && isCount(cached) ? usage(computed + cached, cached) : undefined;
}

function readPredicted(value: unknown): number | undefined {
  const predicted = isObject(value) ? value['predicted_n'] : undefined;
  return isCount(predicted) ? predicted : undefined;
}

/** Anthropic sends usage in the first message and at the end, Responses in the last event. */
function usageOfEvent(event: Readonly<Record<string, unknown>> | undefined): unknown {
  const { usage: own, message, response } = event ?? {};
  if (isObject(own)) return own;
  if (isObject(message)) return message['usage'];
  return isObject(response) ? response['usage'] : undefined;
}

/** The JSON object in a text; `undefined` if there is none. O(text). */
export function asObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function hasContent(event: Readonly<Record<string, unknown>> | undefined): boolean {
  const { choices, type } = event ?? {};
  if (typeof type === 'string') return type === 'content_block_delta' || /^response\..*\.delta$/.test(type);
  if (!Array.isArray(choices)) return false;
  return choices.some((choice: unknown) => {
    const { text, delta } = (choice ?? {}) as { text?: unknown; delta?: unknown };
    if (typeof text === 'string' && text !== '') return true;
    if (typeof delta !== 'object' || delta === null) return false;
    return Object.entries(delta).some(([name, value]) => name !== 'role' && value !== null && value !== '');
  });
}

function usage(promptTokens: number, cached: number | undefined): Usage {
  return { promptTokens, cachedTokens: cached === undefined ? undefined : Math.min(cached, promptTokens) };
}

function cachedOf(details: unknown): number | undefined {
  const cached = isObject(details) ? details['cached_tokens'] : undefined;
  return isCount(cached) ? cached : undefined;
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0;
}
