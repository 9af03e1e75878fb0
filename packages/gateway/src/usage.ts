/** What an engine says about a request's prompt. */
export interface Usage {
  readonly promptTokens: number;
  /** `undefined` where the engine says nothing: several leave the field out at 0, others never send it. */
  readonly cachedTokens: number | undefined;
}

/** Reads OpenAI's `usage` object; `undefined` for anything else. */
export function readUsage(value: unknown): Usage | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { prompt_tokens: promptTokens, prompt_tokens_details: details } = value as Record<string, unknown>;
  if (!isCount(promptTokens)) return undefined;
  const cached = typeof details === 'object' && details !== null ? (details as Record<string, unknown>) : {};
  const cachedTokens = cached['cached_tokens'];
  return { promptTokens, cachedTokens: isCount(cachedTokens) ? Math.min(cachedTokens, promptTokens) : undefined };
}

/** The usage of a whole JSON response. Answers `undefined` for what is not JSON. O(text). */
export function usageOfResponse(text: string): Usage | undefined {
  const object = asObject(text);
  return object === undefined ? undefined : readUsage(object['usage']);
}

/** What one SSE event tells. */
export interface StreamEvent {
  readonly usage: Usage | undefined;
  /** Whether it carries generated text (or a tool call), which the opening role event does not. */
  readonly content: boolean;
}

/** Reads the JSON of one `data:` line of OpenAI's stream. */
export function readStreamEvent(text: string): StreamEvent {
  const object = asObject(text);
  return { usage: readUsage(object?.['usage']), content: hasContent(object?.['choices']) };
}

function asObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function hasContent(choices: unknown): boolean {
  if (!Array.isArray(choices)) return false;
  return choices.some((choice: unknown) => {
    const { text, delta } = (choice ?? {}) as { text?: unknown; delta?: unknown };
    if (typeof text === 'string' && text !== '') return true;
    if (typeof delta !== 'object' || delta === null) return false;
    return Object.entries(delta).some(([name, value]) => name !== 'role' && value !== null && value !== '');
  });
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0;
}
