import type { AnswerBlock, AnswerEnd, AnswerHead, AnswerWriter } from './answer-assembly.js';
import type { ChatUsage } from './chat-deltas.js';
import { RawJson, writeJson } from './raw-json.js';
import { sseEvent } from './sse.js';

/** OpenAI's `finish_reason` as Anthropic's `stop_reason`. */
const STOP_REASONS: ReadonlyMap<string, string> = new Map([
  ['stop', 'end_turn'],
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
  ['content_filter', 'refusal'],
]);

/** Writes answers as Anthropic's Messages. */
export function messagesWriter(): AnswerWriter {
  return {
    start: (head) =>
      sseEvent('message_start', { type: 'message_start', message: message(head, [], NOTHING_YET) }) +
      sseEvent('ping', { type: 'ping' }),
    open: (block) => event('content_block_start', { index: block.index, content_block: startOf(block) }),
    append: (block, text) => event('content_block_delta', { index: block.index, delta: deltaOf(block, text) }),
    close: (block) =>
      (block.kind === 'reasoning'
        ? event('content_block_delta', { index: block.index, delta: { type: 'signature_delta', signature: '' } })
        : '') + event('content_block_stop', { index: block.index }),
    end: (end) => event('message_delta', { delta: stopOf(end), usage: usageOf(end.usage) }) + event('message_stop', {}),
    fail: ({ message: text, code }) =>
      sseEvent('error', { type: 'error', error: { type: 'api_error', message: text, code } }),
    whole: (head, blocks, end) => writeJson(message(head, blocks.map(blockOf), end)),
  };
}

const NOTHING_YET: AnswerEnd = {
  reason: '',
  stop: undefined,
  usage: { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 },
};

function event(type: string, members: object): string {
  return sseEvent(type, { type, ...members });
}

function message({ id, model }: AnswerHead, content: readonly object[], end: AnswerEnd): object {
  return {
    id: `msg_${id}`,
    type: 'message',
    role: 'assistant',
    model,
    content,
    ...stopOf(end),
    usage: usageOf(end.usage),
  };
}

function stopOf({ reason, stop }: AnswerEnd): object {
  if (reason === 'stop' && stop !== undefined) return { stop_reason: 'stop_sequence', stop_sequence: stop };
  return { stop_reason: reason === '' ? null : (STOP_REASONS.get(reason) ?? 'end_turn'), stop_sequence: null };
}

/** Anthropic counts cached tokens apart. */
function usageOf({ promptTokens, cachedTokens, completionTokens }: ChatUsage): object {
  return {
    input_tokens: Math.max(0, promptTokens - cachedTokens),
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
    output_tokens: completionTokens,
  };
}

function startOf({ kind, callId, name }: AnswerBlock): object {
  if (kind === 'call') return { type: 'tool_use', id: callId, name, input: {} };
  return kind === 'reasoning' ? { type: 'thinking', thinking: '', signature: '' } : { type: 'text', text: '' };
}

function deltaOf({ kind }: AnswerBlock, text: string): object {
  if (kind === 'call') return { type: 'input_json_delta', partial_json: text };
  return kind === 'reasoning' ? { type: 'thinking_delta', thinking: text } : { type: 'text_delta', text };
}

function blockOf({ kind, callId, name, text }: AnswerBlock): object {
  if (kind === 'call') return { type: 'tool_use', id: callId, name, input: inputOf(text) };
  return kind === 'reasoning' ? { type: 'thinking', thinking: text, signature: '' } : { type: 'text', text };
}

/** Arguments as the model wrote them, if they are an object; a model may fail to write one. */
function inputOf(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return new RawJson(text.trim());
  } catch {
    // Not JSON: there is no input that would say what the model meant.
  }
  return {};
}
