import type { AnswerFailure, FinishReason, TokenCounts } from '@warmpath/core/internal';
import type { Answer, AnswerBlock, AnswerHead, AnswerWriter } from './answer-assembly.js';
import { sseEvent } from './answer-assembly.js';
import { writeJson } from './chat-request.js';
import { parseObject, readEngineError } from './errors.js';
import { RawJson } from './request-value.js';

/** OpenAI's `finish_reason` as Anthropic's `stop_reason`. */
const STOP_REASONS: ReadonlyMap<FinishReason, string> = new Map([
  ['stop', 'end_turn'],
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['content_filter', 'refusal'],
]);

/** Errors that Anthropic calls by a name of their own. */
const ERROR_TYPES: ReadonlyMap<number, string> = new Map([
  [401, 'authentication_error'],
  [402, 'billing_error'],
  [403, 'permission_error'],
  [404, 'not_found_error'],
  [413, 'request_too_large'],
  [429, 'rate_limit_error'],
  [503, 'overloaded_error'],
  [504, 'timeout_error'],
  [529, 'overloaded_error'],
]);

/** What Anthropic calls an error with that HTTP status. */
export function messagesErrorType(status: number): string {
  return ERROR_TYPES.get(status) ?? (status < 500 ? 'invalid_request_error' : 'api_error');
}

/**
 * Writes answers as Anthropic's Messages.
 *
 * @param promptTokens An estimate that a stream begins with; it ends with what the engine counted.
 */
export function messagesWriter(promptTokens = 0): AnswerWriter {
  // What the arguments of the open call begin as. What is no object waits for its end.
  let begun: 'nothing' | 'object' | 'other' = 'nothing';
  const delta = (block: AnswerBlock, text: string) =>
    event('content_block_delta', { index: block.index, delta: deltaOf(block, text) });
  return {
    start: (head, usage) => {
      const counts = usageOf({ promptTokens, ...usage });
      return event('message_start', { message: message(head, [], STOP_OF_NOTHING, counts) }) + event('ping', {});
    },
    open: (block) => {
      begun = 'nothing';
      return event('content_block_start', { index: block.index, content_block: startOf(block) });
    },
    append: (block, text) => {
      if (block.kind !== 'call' || begun === 'object') return delta(block, text);
      const first = begun === 'nothing' ? block.text.trimStart()[0] : undefined;
      if (first !== undefined) begun = first === '{' ? 'object' : 'other';
      return first === '{' ? delta(block, block.text) : '';
    },
    close: (block) => {
      const { kind, index, text } = block;
      const signature = { index, delta: { type: 'signature_delta', signature: '' } };
      const last = kind === 'reasoning' ? event('content_block_delta', signature) : '';
      const held = kind === 'call' && begun === 'other' ? delta(block, writeJson(inputOf(text))) : '';
      return last + held + event('content_block_stop', { index });
    },
    end: (answer) =>
      event('message_delta', { delta: stopOf(answer), usage: usageOf({ promptTokens, ...answer.usage }) }) +
      event('message_stop', {}),
    fail: (failure) => event('error', { error: errorOf(failure) }),
    whole: (answer) =>
      writeJson(message(answer.head, answer.blocks.map(blockOf), stopOf(answer), usageOf(answer.usage))),
    error: errorBody,
    engineError: (text, status, requestId) => errorBody(readEngineError(text, status), requestId),
  };
}

const STOP_OF_NOTHING = { stop_reason: null, stop_sequence: null };

function event(type: string, members: object): string {
  return sseEvent(type, { type, ...members });
}

function message({ id, model }: AnswerHead, content: readonly object[], stop: object, usage: object): object {
  return { id: `msg_${id}`, type: 'message', role: 'assistant', model, content, ...stop, usage };
}

function stopOf({ reason, stop }: Answer): object {
  if (reason === 'stop' && stop !== undefined) return { stop_reason: 'stop_sequence', stop_sequence: stop };
  return { stop_reason: STOP_REASONS.get(reason) ?? 'end_turn', stop_sequence: null };
}

/** Anthropic counts apart what was read from and written to the cache. Counts that the engine does not state are 0. */
function usageOf({ promptTokens = 0, cachedTokens = 0, cacheWriteTokens = 0, completionTokens = 0 }: TokenCounts) {
  return {
    input_tokens: Math.max(0, promptTokens - cachedTokens - cacheWriteTokens),
    cache_creation_input_tokens: cacheWriteTokens,
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

/**
 * Arguments as the model wrote them. Some engines write the JSON of their JSON. What is no object stands in the object
 * that Anthropic's documentation has for that.
 */
function inputOf(text: string): object {
  if (text.trim() === '') return {};
  const written = parseObject(text) === undefined ? textIn(text) : text;
  return parseObject(written) === undefined ? { INVALID_JSON: text } : new RawJson(written.trim());
}

/** The text that a JSON string stands for. */
function textIn(json: string): string {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'string' ? value : '';
  } catch {
    return '';
  }
}

function errorBody(failure: AnswerFailure, requestId: string | undefined): string {
  return JSON.stringify({ type: 'error', error: errorOf(failure), request_id: requestId });
}

function errorOf({ message: text, code, param, type = '', status = 500 }: AnswerFailure): object {
  const isOwn = [...ERROR_TYPES.values(), 'invalid_request_error', 'api_error'].includes(type);
  return { type: isOwn ? type : messagesErrorType(status), message: text, code, param };
}
