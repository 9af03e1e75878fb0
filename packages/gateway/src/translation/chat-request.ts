import type { ChatMessage, ContentPart, Warning } from '@warmpath/core';

/** A request in the words of chat completions. */
export interface ChatRequest {
  /** JSON. */
  readonly body: string;
  /** Members of the original that were left out. */
  readonly leftOut: readonly Warning[];
}

/** A call of a tool in an assistant's message. */
export interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: string };
}

/** Parts as a message's content: one text alone is a string, which every chat template takes. */
export function contentOf(parts: readonly ContentPart[]): string | readonly ContentPart[] {
  const [first] = parts;
  if (first === undefined) return '';
  return parts.length === 1 && isPlainText(first) ? first.text : parts;
}

function isPlainText(part: ContentPart): part is ContentPart & { readonly text: string } {
  return part.type === 'text' && typeof part.text === 'string' && Object.keys(part).length === 2;
}

/** What an assistant said, thought and called in one turn. */
export interface AssistantTurn {
  readonly parts: readonly ContentPart[];
  readonly calls: readonly ToolCall[];
  readonly reasoning: readonly string[];
}

/** An assistant's message. Reasoning goes where vLLM, SGLang, llama-server and DeepSeek have it. */
export function assistantMessage({ parts, calls, reasoning }: AssistantTurn): ChatMessage {
  return {
    role: 'assistant',
    content: parts.length === 0 && calls.length > 0 ? null : contentOf(parts),
    ...(reasoning.length > 0 && { reasoning_content: reasoning.join('') }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}
