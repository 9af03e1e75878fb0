/** One message of a conversation, its content flattened to text. */
export interface ChatMessage {
  readonly role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  /**
   * Places in the content at which its parts end, in UTF-16 code units, ascending; the end of the content is known
   * anyway.
   */
  readonly partEnds?: readonly number[];
  readonly name?: string | undefined;
  /** What the assistant thought before it answered. */
  readonly reasoning?: string | undefined;
  /** Calls that an assistant has made. */
  readonly toolCalls?: readonly ToolCall[];
  /** Which call a tool's message answers. */
  readonly toolCallId?: string;
}

export interface ToolCall {
  readonly id?: string | null | undefined;
  readonly name: string;
  /** A text that should be JSON; a model may have written another. */
  readonly arguments: string;
}

/** A function that the model may call, as requests define it. */
export interface ToolDefinition {
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    readonly description?: string | null | undefined;
    readonly parameters?: Readonly<Record<string, unknown>> | null | undefined;
  };
}

/** Two messages as one, in the role of the second. */
export function joinMessages(first: ChatMessage, second: ChatMessage, separator: string): ChatMessage {
  const start = first.content.length + separator.length;
  return {
    ...second,
    content: first.content + separator + second.content,
    partEnds: [...(first.partEnds ?? []), start, ...(second.partEnds ?? []).map((end) => end + start)],
  };
}

/** @returns The object that a text is the JSON of; `undefined` for any other text. */
export function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
