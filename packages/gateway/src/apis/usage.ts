import { isObject } from '../json/json-scanner.js';

/** What an engine says about a request's prompt. */
export interface Usage {
  readonly promptTokens: number;
  /** `undefined` where the engine says nothing: several leave the field out at 0, others never send it. */
  readonly cachedTokens: number | undefined;
}

/**
 * Reads the `usage` of any of the APIs; `undefined` for anything else. OpenAI's chat counts `prompt_tokens` and, of
 * these, cached ones; so do its Responses, as `input_tokens`. Anthropic's `input_tokens` are those that were neither
 * read from the cache nor written to it: the prompt is the sum of all three.
 */
export function readUsage(value: unknown): Usage | undefined {
  if (!isObject(value)) return undefined;
  const { prompt_tokens: promptTokens, input_tokens: inputTokens } = value;
  if (isCount(promptTokens)) {
    // DeepSeek's own name for it; the usual one is not there in all of its versions.
    const hit = value['prompt_cache_hit_tokens'];
    return usage(promptTokens, cachedOf(value['prompt_tokens_details']) ?? (isCount(hit) ? hit : undefined));
  }
  if (!isCount(inputTokens)) return undefined;
  const { cache_read_input_tokens: read, cache_creation_input_tokens: written } = value;
  if (!isCount(read) && !isCount(written)) return usage(inputTokens, cachedOf(value['input_tokens_details']));
  return usage(inputTokens + (isCount(read) ? read : 0) + (isCount(written) ? written : 0), isCount(read) ? read : 0);
}

/** Tokens of the answer, as the `usage` of any of the APIs states them; `undefined` where it does not. */
export function readCompletionTokens(value: unknown): number | undefined {
  if (!isObject(value)) return undefined;
  const { completion_tokens: completionTokens, output_tokens: outputTokens } = value;
  if (isCount(completionTokens)) return completionTokens;
  return isCount(outputTokens) ? outputTokens : undefined;
}

/** What one SSE event tells. */
export interface StreamEvent {
  readonly usage: Usage | undefined;
  readonly completionTokens: number | undefined;
  /** Whether it carries generated text (or a tool call), which the opening events do not. */
  readonly content: boolean;
}

/** Reads the JSON of one `data:` line of a stream, of whichever API; `undefined` is a line that is none. */
export function readStreamEvent(object: Readonly<Record<string, unknown>> | undefined): StreamEvent {
  const stated = usageOfEvent(object);
  return {
    usage: readUsage(stated),
    completionTokens: readCompletionTokens(stated),
    content: hasContent(object),
  };
}

/** Anthropic states it in the message that starts, and again at the end; the Responses in the response that ends. */
function usageOfEvent(event: Readonly<Record<string, unknown>> | undefined): unknown {
  const { usage: own, message, response } = event ?? {};
  if (isObject(own)) return own;
  if (isObject(message)) return message['usage'];
  return isObject(response) ? response['usage'] : undefined;
}

/** The object that a text is the JSON of, if it is. O(text). */
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
