import { isObject } from '../intake/apis/content-texts.js';
import type { JsonObject, JsonPath } from '../intake/apis/request-texts.js';
import {
  assistantMessage,
  type ChatMessage,
  type ChatPart,
  type ChatRequest,
  type ChatTool,
  chatRequest,
  contentOf,
  functionTool,
  type ToolCall,
  textPart,
} from './chat-request.js';
import { contentParts } from './messages-blocks.js';
import { isGiven, notTranslatable, objectAt, type RequestSource, stringAt, wrongType } from './request-source.js';

/** Members that are said in other words; all others mean the same, or are the engine's own. */
const TRANSLATED: ReadonlySet<string> = new Set([
  'model',
  'system',
  'messages',
  'stop_sequences',
  'stream',
  'tools',
  'tool_choice',
  'metadata',
  'thinking',
  'output_config',
  'output_format',
  'cache_control',
  'service_tier',
  'container',
  'mcp_servers',
  'context_management',
]);

/**
 * A request of Anthropic's Messages in the words of chat completions. Every text, image, call and result of a tool of the
 * input is in the output, once and in its order; marks for Anthropic's cache (`cache_control`) are not.
 *
 * Errors: `WARMPATH_NOT_TRANSLATABLE` for what has no equivalent, `WARMPATH_INVALID_REQUEST`, both with the path in the
 * client's body. O(body).
 */
export function messagesToChat(source: RequestSource): ChatRequest {
  const { body } = source;
  for (const key of ['container', 'mcp_servers']) source.refuseIfGiven(key);
  for (const key of ['service_tier', 'context_management']) source.leaveOutIfGiven(key);
  if (isObject(body['thinking']) && body['thinking']['type'] !== 'disabled') source.leaveOut(['thinking']);
  const { metadata, stop_sequences: stop } = body;
  const messages = [...systemMessages(source), ...readMessages(source)];
  return chatRequest(source, {
    messages,
    tool: (tool, place) => chatTool(source, tool, place),
    fields: {
      ...toolChoice(body['tool_choice']),
      ...outputFields(source),
      ...continuation(messages),
      ...(isGiven(stop) && { stop: source.raw(['stop_sequences']) }),
      ...(isObject(metadata) && isGiven(metadata['user_id']) && { user: metadata['user_id'] }),
    },
    translated: TRANSLATED,
  });
}

/** A last message of the assistant is the beginning of the answer; engines take it for an earlier turn unless they are told. */
function continuation(messages: readonly ChatMessage[]): object {
  const last = messages.at(-1);
  if (last?.role !== 'assistant' || last['tool_calls'] !== undefined) return {};
  return { continue_final_message: true, add_generation_prompt: false };
}

function systemMessages(source: RequestSource): readonly ChatMessage[] {
  const { system } = source.body;
  return isGiven(system) ? [{ role: 'system', content: contentOf(contentParts(source, system, ['system'])) }] : [];
}

function readMessages(source: RequestSource): readonly ChatMessage[] {
  const { messages } = source.body;
  if (!Array.isArray(messages)) throw wrongType(['messages'], 'an array of messages');
  return messages.flatMap((message: unknown, position) => {
    const place = ['messages', position];
    const { role, content } = objectAt(message, place);
    const contentPlace = [...place, 'content'];
    if (role === 'assistant') return [readAssistant(source, content, contentPlace)];
    if (role === 'user') return readUser(source, content, contentPlace);
    if (role === 'system') return [{ role, content: contentOf(contentParts(source, content, contentPlace)) }];
    throw wrongType([...place, 'role'], '`user` or `assistant`');
  });
}

/** Results of tools are messages of their own; what stands between them stays between them. */
function readUser(source: RequestSource, content: unknown, place: JsonPath): readonly ChatMessage[] {
  if (!Array.isArray(content)) return [{ role: 'user', content: contentOf(contentParts(source, content, place)) }];
  const messages: ChatMessage[] = [];
  let from = 0;
  const flush = (to: number): void => {
    const parts = contentParts(source, content.slice(from, to), place, from);
    if (parts.length > 0) messages.push({ role: 'user', content: contentOf(parts) });
    from = to + 1;
  };
  for (const [position, block] of content.entries()) {
    if (!isObject(block) || block['type'] !== 'tool_result') continue;
    flush(position);
    messages.push(readResult(source, block, [...place, position]));
  }
  flush(content.length);
  return messages.length > 0 ? messages : [{ role: 'user', content: '' }];
}

function readResult(source: RequestSource, block: JsonObject, place: JsonPath): ChatMessage {
  const parts = contentParts(source, block['content'] ?? '', [...place, 'content']);
  // Chat completions have no mark for a result that is an error; the words are what the model goes by.
  const marked = block['is_error'] === true ? [textPart('Error:'), ...parts] : parts;
  const id = stringAt(block['tool_use_id'], [...place, 'tool_use_id']);
  return { role: 'tool', tool_call_id: id, content: contentOf(marked) };
}

function readAssistant(source: RequestSource, content: unknown, place: JsonPath): ChatMessage {
  if (!Array.isArray(content)) return { role: 'assistant', content: contentOf(contentParts(source, content, place)) };
  const parts: ChatPart[] = [];
  const calls: ToolCall[] = [];
  const reasoning: string[] = [];
  for (const [position, given] of content.entries()) {
    const at = [...place, position];
    const block = objectAt(given, at);
    if (block['type'] === 'tool_use') {
      const name = stringAt(block['name'], [...at, 'name']);
      const id = stringAt(block['id'], [...at, 'id']);
      const input = source.raw([...at, 'input'])?.text ?? '{}';
      calls.push({ id, type: 'function', function: { name, arguments: input } });
    } else if (block['type'] === 'thinking') reasoning.push(stringAt(block['thinking'], [...at, 'thinking']));
    else parts.push(...contentParts(source, [block], place, position));
  }
  return assistantMessage({ parts, calls, reasoning });
}

function chatTool(source: RequestSource, given: unknown, place: JsonPath): ChatTool {
  const tool = objectAt(given, place);
  const { type } = tool;
  if (type !== undefined && type !== null && type !== 'custom') {
    throw notTranslatable([...place, 'type'], 'This tool runs at Anthropic');
  }
  return functionTool(source, tool, place, 'input_schema');
}

function toolChoice(given: unknown): object {
  if (!isGiven(given)) return {};
  const { type, name, disable_parallel_tool_use: alone } = objectAt(given, ['tool_choice']);
  return { tool_choice: chatToolChoice(type, name), ...(alone === true && { parallel_tool_calls: false }) };
}

function chatToolChoice(type: unknown, name: unknown): unknown {
  if (type === 'auto' || type === 'none') return type;
  if (type === 'any') return 'required';
  if (type === 'tool') return { type: 'function', function: { name: stringAt(name, ['tool_choice', 'name']) } };
  throw wrongType(['tool_choice', 'type'], '`auto`, `any`, `tool` or `none`');
}

/** What the answer has to look like; the effort is a wish. */
function outputFields(source: RequestSource): object {
  const config = source.body['output_config'];
  const { effort, format = source.body['output_format'] } = isObject(config) ? config : {};
  const place = isObject(config) && isGiven(config['format']) ? ['output_config', 'format'] : ['output_format'];
  return {
    ...(isGiven(effort) && { reasoning_effort: effort }),
    ...(isGiven(format) && { response_format: responseFormat(source, objectAt(format, place), place) }),
  };
}

function responseFormat(source: RequestSource, { type }: JsonObject, place: JsonPath): object {
  if (type !== 'json_schema') throw notTranslatable([...place, 'type']);
  return { type, json_schema: { name: 'answer', schema: source.raw([...place, 'schema']), strict: true } };
}
