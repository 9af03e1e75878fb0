import {
  assistantMessage,
  type ChatMessage,
  type ChatPart,
  type ChatRequest,
  type ChatTool,
  chatRequest,
  contentOf,
  functionTool,
  textPart,
} from './chat-request.js';
import { isObject } from './errors.js';
import type { RequestValue } from './request-value.js';

/** Members that are translated or left out; members of other names mean the same, or are the engine's own. */
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

/** What only Anthropic's servers can do. */
const REFUSED = ['container', 'mcp_servers'];
/** Preferences without which the answer is still an answer. */
const LEFT_OUT = ['service_tier', 'context_management'];

/**
 * A request of Anthropic's Messages as chat completions. Every text, image, tool call and tool result of the input is
 * in the output, once and in its order; marks for Anthropic's cache (`cache_control`) are not. O(body).
 *
 * @throws TranslateError `WARMPATH_NOT_TRANSLATABLE` for what has no equivalent, `WARMPATH_INVALID_REQUEST`.
 */
export function messagesToChat(request: RequestValue): ChatRequest {
  for (const key of REFUSED) {
    const member = request.get(key);
    if (member.isGiven) throw member.notTranslatable();
  }
  const leftOut = LEFT_OUT.map((key) => request.get(key)).filter(({ isGiven }) => isGiven);
  const thinking = request.get('thinking');
  if (isObject(thinking.value) && thinking.get('type').value !== 'disabled') leftOut.push(thinking);
  const stop = request.get('stop_sequences');
  const user = request.get('metadata').get('user_id');
  const messages = [...systemMessages(request.get('system')), ...conversation(request.get('messages'))];
  const body = chatRequest(request, {
    messages,
    toolOf,
    fields: {
      ...toolChoice(request.get('tool_choice')),
      ...outputFields(request),
      ...continuation(messages),
      ...(stop.isGiven && { stop: stop.raw() }),
      ...(user.isGiven && { user: user.raw() }),
    },
    translated: TRANSLATED,
  });
  return { body, leftOut };
}

/**
 * A last message of the assistant is the start of the answer; engines take it for an earlier turn unless something
 * says so.
 */
function continuation(messages: readonly ChatMessage[]): object {
  const last = messages.at(-1);
  if (last?.role !== 'assistant' || last['tool_calls'] !== undefined) return {};
  return { continue_final_message: true, add_generation_prompt: false };
}

function systemMessages(system: RequestValue): readonly ChatMessage[] {
  return system.isGiven ? [{ role: 'system', content: contentOf(contentParts(system)) }] : [];
}

function conversation(messages: RequestValue): readonly ChatMessage[] {
  if (!Array.isArray(messages.value)) throw messages.wrongType('an array of messages');
  return messages.elements().flatMap((message) => {
    message.object();
    const role = message.get('role');
    const content = message.get('content');
    if (role.value === 'assistant') return [assistantTurn(content)];
    if (role.value === 'user') return userMessages(content);
    if (role.value === 'system') return [{ role: 'system', content: contentOf(contentParts(content)) }];
    throw role.wrongType('`user` or `assistant`');
  });
}

/** Tool results are messages of their own; what stands between them stays between them. */
function userMessages(content: RequestValue): readonly ChatMessage[] {
  if (!Array.isArray(content.value)) return [{ role: 'user', content: contentOf(contentParts(content)) }];
  const messages: ChatMessage[] = [];
  let parts: ChatPart[] = [];
  const closeMessage = (): void => {
    if (parts.length > 0) messages.push({ role: 'user', content: contentOf(parts) });
    parts = [];
  };
  for (const block of content.elements()) {
    if (block.get('type').value === 'tool_result') {
      closeMessage();
      messages.push(toolResult(block));
    } else for (const part of blockParts(block)) parts.push(part);
  }
  closeMessage();
  return messages.length > 0 ? messages : [{ role: 'user', content: '' }];
}

function toolResult(block: RequestValue): ChatMessage {
  const content = contentParts(block.get('content'));
  // Chat completions have no mark for a result that is an error; the words are what the model goes by.
  const parts = block.get('is_error').value === true ? [textPart('Error:'), ...content] : content;
  return { role: 'tool', tool_call_id: block.get('tool_use_id').string(), content: contentOf(parts) };
}

function assistantTurn(content: RequestValue): ChatMessage {
  if (!Array.isArray(content.value)) return { role: 'assistant', content: contentOf(contentParts(content)) };
  const turn = { parts: [] as ChatPart[], calls: [] as ReturnType<typeof toolCall>[], reasoning: [] as string[] };
  for (const block of content.elements()) {
    const type = block.get('type').value;
    if (type === 'tool_use') turn.calls.push(toolCall(block));
    else if (type === 'thinking') turn.reasoning.push(block.get('thinking').string());
    else for (const part of blockParts(block)) turn.parts.push(part);
  }
  return assistantMessage(turn);
}

function toolCall(block: RequestValue) {
  const name = block.get('name').string();
  const input = block.get('input').raw()?.text ?? '{}';
  return { id: block.get('id').string(), type: 'function' as const, function: { name, arguments: input } };
}

/** The content of a message or a tool result (a string, or blocks) as parts of chat completions. */
function contentParts(content: RequestValue): readonly ChatPart[] {
  if (typeof content.value === 'string') return [textPart(content.text())];
  return content.elements().flatMap(blockParts);
}

function blockParts(block: RequestValue): readonly ChatPart[] {
  block.object();
  const type = block.get('type').value;
  if (type === 'document') return documentParts(block);
  if (type === 'search_result') return searchResultParts(block);
  return [textOrImage(block)];
}

/**
 * The content of a document or search result: texts and images, as in Anthropic's API, so that nothing nests without
 * end.
 */
function innerParts(content: RequestValue): readonly ChatPart[] {
  return typeof content.value === 'string' ? [textPart(content.text())] : content.elements().map(textOrImage);
}

function textOrImage(block: RequestValue): ChatPart {
  block.object();
  const type = block.get('type');
  if (type.value === 'text') return textPart(block.get('text').text());
  if (type.value === 'image') return { type: 'image_url', image_url: { url: imageUrl(block.get('source')) } };
  throw type.notTranslatable();
}

function imageUrl(source: RequestValue): string {
  source.object();
  const type = source.get('type');
  if (type.value === 'url') return source.get('url').string();
  if (type.value !== 'base64') throw type.notTranslatable('The file is stored at Anthropic');
  return dataUrl(source);
}

function dataUrl(source: RequestValue): string {
  return `data:${source.get('media_type').string()};base64,${source.get('data').string()}`;
}

/** A document's title and context are text that the model reads, too. */
function documentParts(block: RequestValue): readonly ChatPart[] {
  refuseCitations(block);
  const title = block.get('title');
  const source = block.get('source');
  source.object();
  const type = source.get('type');
  switch (type.value) {
    case 'text':
      return [...textsGiven(title, block.get('context')), textPart(source.get('data').text())];
    case 'content':
      return [...textsGiven(title, block.get('context')), ...innerParts(source.get('content'))];
    case 'base64': {
      const file = { filename: title.isGiven ? title.raw() : 'document.pdf', file_data: dataUrl(source) };
      return [...textsGiven(block.get('context')), { type: 'file', file }];
    }
    default:
      throw type.notTranslatable('This document is not in the request');
  }
}

function searchResultParts(block: RequestValue): readonly ChatPart[] {
  refuseCitations(block);
  return [...textsGiven(block.get('title'), block.get('source')), ...innerParts(block.get('content'))];
}

/** Texts of those values that are texts. */
function textsGiven(...values: readonly RequestValue[]): readonly ChatPart[] {
  return values
    .filter(({ value, isGiven }) => typeof value === 'string' && isGiven)
    .map((text) => textPart(text.text()));
}

/** An answer with citations is another answer than one without. */
function refuseCitations(block: RequestValue): void {
  const citations = block.get('citations');
  if (citations.get('enabled').value === true) throw citations.notTranslatable();
}

function toolOf(tool: RequestValue): ChatTool {
  tool.object();
  const type = tool.get('type');
  if (type.value !== undefined && type.value !== null && type.value !== 'custom') {
    throw type.notTranslatable('This tool runs at Anthropic');
  }
  return functionTool(tool, 'input_schema');
}

function toolChoice(choice: RequestValue): object {
  if (!choice.isGiven) return {};
  choice.object();
  const isSingle = choice.get('disable_parallel_tool_use').value === true;
  return { tool_choice: chatToolChoice(choice), ...(isSingle && { parallel_tool_calls: false }) };
}

function chatToolChoice(choice: RequestValue): unknown {
  const type = choice.get('type');
  switch (type.value) {
    case 'auto':
    case 'none':
      return type.value;
    case 'any':
      return 'required';
    case 'tool':
      return { type: 'function', function: { name: choice.get('name').string() } };
    default:
      throw type.wrongType('`auto`, `any`, `tool` or `none`');
  }
}

/** The form of the answer; `output_format` is an older name for `output_config.format`. */
function outputFields(request: RequestValue): object {
  const effort = request.get('output_config').get('effort');
  const current = request.get('output_config').get('format');
  const format = current.value === undefined ? request.get('output_format') : current;
  return {
    ...(effort.isGiven && { reasoning_effort: effort.raw() }),
    ...(format.isGiven && { response_format: responseFormat(format) }),
  };
}

function responseFormat(format: RequestValue): object {
  format.object();
  const type = format.get('type');
  if (type.value !== 'json_schema') throw type.notTranslatable();
  const schema = format.get('schema').raw();
  return { type: type.value, json_schema: { name: 'answer', schema, strict: true } };
}
