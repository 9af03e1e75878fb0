import type { ChatPromptOptions } from '../chat/chat-template.js';
import type { ChatMessage } from '../chat/messages.js';
import { refuse } from '../structured/schema-node.js';
import type { ChatPromptFields, MessageInput } from './schemas.js';

/** A conversation and how it becomes a prompt, all but its tools. */
export interface ReadConversation extends Pick<ChatPromptOptions, 'variables' | 'isContinued'> {
  readonly messages: readonly ChatMessage[];
  readonly opensAnswer: boolean;
}

/**
 * An assistant's message that stands last is continued, as by llama-server, unless the request opens another.
 *
 * @throws WARMPATH_INVALID_REQUEST with the path of what is wrong.
 */
export function readConversation(fields: ChatPromptFields): ReadConversation {
  const { add_generation_prompt: opens, continue_final_message: continues, reasoning_effort: effort } = fields;
  const read = toMessages(fields.messages);
  const last = read.at(-1)!;
  const canContinue = last.role === 'assistant' && last.toolCalls === undefined;
  const isAsked = continues !== undefined && continues !== null && continues !== false;
  if (isAsked && opens === true) {
    throw refuse('continue_final_message', 'Expected `add_generation_prompt: false` with it');
  }
  if (isAsked && !canContinue) {
    throw refuse('continue_final_message', 'Expected a message of the assistant without calls at the end');
  }
  const isContinued = isAsked || (canContinue && continues !== false && (opens ?? undefined) === undefined);
  const effortVariables =
    typeof effort !== 'string' ? {} : effort === 'none' ? { enable_thinking: false } : { reasoning_effort: effort };
  return {
    messages: read,
    opensAnswer: opens ?? !isContinued,
    isContinued,
    variables: { ...effortVariables, ...fields.chat_template_kwargs },
  };
}

function toMessages(given: readonly MessageInput[]): ChatMessage[] {
  return given.map((message, index) => {
    const { role, content, name, tool_calls: calls, tool_call_id: callId } = message;
    const reasoning = message.reasoning_content ?? message.reasoning ?? undefined;
    if (content === undefined && !calls && reasoning === undefined) {
      throw refuse(`messages[${index}].content`, 'Expected a string or an array of text parts');
    }
    const parts = contentTexts(content, `messages[${index}].content`);
    let end = 0;
    const partEnds = parts.map((part) => {
      end += part.length + 1;
      return end;
    });
    return {
      role,
      // Parts are joined with a line break, as by vLLM and llama-server; it belongs to the part before it.
      content: parts.join('\n'),
      partEnds: partEnds.slice(0, -1),
      ...(typeof name === 'string' && { name }),
      ...(reasoning !== undefined && reasoning !== '' && { reasoning }),
      ...(calls && calls.length > 0 && { toolCalls: calls.map((call) => ({ id: call.id, ...call.function })) }),
      ...(typeof callId === 'string' && { toolCallId: callId }),
    };
  });
}

function contentTexts(content: unknown, path: string): string[] {
  if (typeof content === 'string') return [content];
  if (content === null || content === undefined) return [];
  if (!Array.isArray(content)) throw refuse(path, 'Expected a string or an array of text parts');
  return content.map((part: unknown, index) => {
    const { type, text } = (part ?? {}) as { readonly type?: unknown; readonly text?: unknown };
    if (type !== 'text') throw refuse(`${path}[${index}].type`, 'This engine reads text parts only');
    if (typeof text !== 'string') throw refuse(`${path}[${index}].text`, 'Expected a string');
    return text;
  });
}
