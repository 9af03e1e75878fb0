import {
  assistantMessage,
  type ChatMessage,
  type ChatOptions,
  type ChatPart,
  type ChatRequest,
  type ChatTool,
  chatRequest,
  contentOf,
  functionTool,
  leftOutPart,
  textPart,
} from './chat-request.js';
import { clientTool } from './client-tools.js';
import { isObject } from './errors.js';
import type { RequestValue } from './request-value.js';
import { settleMessages } from './settle-messages.js';

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

/** Preferences, and what only Anthropic's servers can do. */
const LEFT_OUT = ['service_tier', 'context_management', 'container', 'mcp_servers'];

/**
 * A request of Anthropic's Messages as chat completions. Every text, image, tool call and tool result of the input is
 * in the output, once; marks for Anthropic's cache (`cache_control`) are not. O(body).
 *
 * @throws TranslateError `WARMPATH_NOT_TRANSLATABLE` for an answer that has no equivalent, `WARMPATH_INVALID_REQUEST`.
 */
export function messagesToChat(request: RequestValue, { keepSystem }: ChatOptions): ChatRequest {
  const leftOut = LEFT_OUT.map((key) => request.get(key)).filter(({ isGiven }) => isGiven);
  const thinking = request.get('thinking');
  if (isObject(thinking.value) && thinking.get('type').value !== 'disabled') leftOut.push(thinking);
  const stop = request.get('stop_sequences');
  const user = request.get('metadata').get('user_id');
  const reader = new MessageReader(leftOut);
  const given = [...reader.system(request.get('system')), ...reader.conversation(request.get('messages'))];
  const { messages, movedSystem } = settleMessages(given, keepSystem);
  const tools = request
    .get('tools')
    .elements()
    .flatMap((tool) => toolOf(tool, leftOut));
  const body = chatRequest(request, {
    messages,
    tools,
    fields: {
      ...toolChoice(request.get('tool_choice'), tools, leftOut),
      ...outputFields(request),
      ...continuation(messages),
      ...(stop.isGiven && { stop: stop.raw() }),
      ...(user.isGiven && { user: user.raw() }),
    },
    translated: TRANSLATED,
  });
  return { body, leftOut, movedSystem, callForms: NO_FORMS };
}

const NO_FORMS: ChatRequest['callForms'] = new Map();

/**
 * A last message of the assistant is the start of the answer; engines take it for an earlier turn unless something
 * says so.
 */
function continuation(messages: readonly ChatMessage[]): object {
  const last = messages.at(-1);
  if (last?.role !== 'assistant' || last['tool_calls'] !== undefined) return {};
  return { continue_final_message: true, add_generation_prompt: false };
}

/** Reads messages, and notes what it leaves out. */
class MessageReader {
  readonly #leftOut: RequestValue[];

  constructor(leftOut: RequestValue[]) {
    this.#leftOut = leftOut;
  }

  system(system: RequestValue): readonly ChatMessage[] {
    return system.isGiven ? [{ role: 'system', content: contentOf(this.#parts(system)) }] : [];
  }

  conversation(messages: RequestValue): readonly ChatMessage[] {
    if (!Array.isArray(messages.value)) throw messages.wrongType('an array of messages');
    return messages.elements().flatMap((message) => {
      message.object();
      const role = message.get('role');
      const content = message.get('content');
      if (role.value === 'assistant') return [this.#assistantTurn(content)];
      if (role.value === 'user') return this.#userMessages(content);
      if (role.value === 'system') return [{ role: 'system', content: contentOf(this.#parts(content)) }];
      throw role.wrongType('`user` or `assistant`');
    });
  }

  /** Tool results are messages of their own; what stands between them stays between them. */
  #userMessages(content: RequestValue): readonly ChatMessage[] {
    if (!Array.isArray(content.value)) return [{ role: 'user', content: contentOf(this.#parts(content)) }];
    const messages: ChatMessage[] = [];
    let parts: ChatPart[] = [];
    const closeMessage = (): void => {
      if (parts.length > 0) messages.push({ role: 'user', content: contentOf(parts) });
      parts = [];
    };
    for (const block of content.elements()) {
      if (block.get('type').value === 'tool_result') {
        closeMessage();
        messages.push(this.#toolResult(block));
      } else for (const part of this.#blockParts(block)) parts.push(part);
    }
    closeMessage();
    return messages.length > 0 ? messages : [{ role: 'user', content: '' }];
  }

  #toolResult(block: RequestValue): ChatMessage {
    const content = this.#parts(block.get('content'));
    // Chat completions have no mark for a result that is an error; the words are what the model goes by.
    const parts = block.get('is_error').value === true ? [textPart('Error:'), ...content] : content;
    return { role: 'tool', tool_call_id: block.get('tool_use_id').string(), content: contentOf(parts) };
  }

  /** Thoughts that only Anthropic can read, and what tools did at Anthropic, are left out. */
  #assistantTurn(content: RequestValue): ChatMessage {
    if (!Array.isArray(content.value)) return { role: 'assistant', content: contentOf(this.#parts(content)) };
    const turn = { parts: [] as ChatPart[], calls: [] as ReturnType<typeof toolCall>[], reasoning: [] as string[] };
    for (const block of content.elements()) {
      block.object();
      const type = block.get('type');
      if (type.value === 'tool_use') turn.calls.push(toolCall(block));
      else if (type.value === 'thinking' && block.get('thinking').string() !== '')
        turn.reasoning.push(block.get('thinking').string());
      else if (READ_BLOCKS.has(type.string())) for (const part of this.#blockParts(block)) turn.parts.push(part);
      else this.#leftOut.push(type);
    }
    return assistantMessage(turn);
  }

  /** The content of a message or a tool result (a string, or blocks) as parts of chat completions. */
  #parts(content: RequestValue): readonly ChatPart[] {
    if (typeof content.value === 'string') return [textPart(content.text())];
    return content.elements().flatMap((block) => this.#blockParts(block));
  }

  #blockParts(block: RequestValue): readonly ChatPart[] {
    block.object();
    const type = block.get('type').value;
    if (type === 'document') return this.#documentParts(block);
    if (type === 'search_result') return this.#searchResultParts(block);
    return [this.#textOrImage(block)];
  }

  /**
   * The content of a document or search result: texts and images, as in Anthropic's API, so that nothing nests without
   * end.
   */
  #innerParts(content: RequestValue): readonly ChatPart[] {
    if (typeof content.value === 'string') return [textPart(content.text())];
    return content.elements().map((block) => this.#textOrImage(block));
  }

  #textOrImage(block: RequestValue): ChatPart {
    block.object();
    const type = block.get('type');
    if (type.value === 'text') return textPart(block.get('text').text());
    // The tool itself is in `tools`.
    if (type.value === 'tool_reference') return textPart(block.get('tool_name').text());
    if (type.value !== 'image') return this.#leaveOut(type, type);
    const source = block.get('source');
    source.object();
    const kind = source.get('type');
    if (kind.value === 'url') return imagePart(source.get('url').string());
    return kind.value === 'base64' ? imagePart(dataUrl(source)) : this.#leaveOut(kind, type);
  }

  /** A document's title and context are text that the model reads, too. */
  #documentParts(block: RequestValue): readonly ChatPart[] {
    this.#withoutCitations(block);
    const title = block.get('title');
    const source = block.get('source');
    source.object();
    const type = source.get('type');
    switch (type.value) {
      case 'text':
        return [...textsGiven(title, block.get('context')), textPart(source.get('data').text())];
      case 'content':
        return [...textsGiven(title, block.get('context')), ...this.#innerParts(source.get('content'))];
      case 'base64': {
        const file = { filename: title.isGiven ? title.raw() : 'document.pdf', file_data: dataUrl(source) };
        return [...textsGiven(block.get('context')), { type: 'file', file }];
      }
      default:
        return [...textsGiven(title, block.get('context')), this.#leaveOut(type, block.get('type'))];
    }
  }

  #searchResultParts(block: RequestValue): readonly ChatPart[] {
    this.#withoutCitations(block);
    return [...textsGiven(block.get('title'), block.get('source')), ...this.#innerParts(block.get('content'))];
  }

  #withoutCitations(block: RequestValue): void {
    const citations = block.get('citations');
    if (citations.get('enabled').value === true) this.#leftOut.push(citations);
  }

  #leaveOut(reason: RequestValue, type: RequestValue): ChatPart {
    const part = leftOutPart(type);
    this.#leftOut.push(reason);
    return part;
  }
}

/** Blocks that messages of all roles may have. */
const READ_BLOCKS: ReadonlySet<string> = new Set(['text', 'image', 'document', 'search_result']);

function toolCall(block: RequestValue) {
  const name = block.get('name').string();
  const input = block.get('input').raw()?.text ?? '{}';
  return { id: block.get('id').string(), type: 'function' as const, function: { name, arguments: input } };
}

function imagePart(url: string): ChatPart {
  return { type: 'image_url', image_url: { url } };
}

function dataUrl(source: RequestValue): string {
  return `data:${source.get('media_type').string()};base64,${source.get('data').string()}`;
}

/** Texts of those values that are texts. */
function textsGiven(...values: readonly RequestValue[]): readonly ChatPart[] {
  return values
    .filter(({ value, isGiven }) => typeof value === 'string' && isGiven)
    .map((text) => textPart(text.text()));
}

/** Tools that run at Anthropic are left out. */
function toolOf(tool: RequestValue, leftOut: RequestValue[]): readonly ChatTool[] {
  tool.object();
  const type = tool.get('type');
  if (type.value === undefined || type.value === null || type.value === 'custom')
    return [functionTool(tool, 'input_schema')];
  const known = clientTool(tool);
  if (known === undefined) leftOut.push(type);
  return known === undefined ? [] : [known];
}

function toolChoice(choice: RequestValue, tools: readonly ChatTool[], leftOut: RequestValue[]): object {
  if (!choice.isGiven) return {};
  choice.object();
  const isSingle = choice.get('disable_parallel_tool_use').value === true;
  const name = choice.get('type').value === 'tool' ? choice.get('name') : undefined;
  const isLeftOut = name !== undefined && tools.every((tool) => tool.function.name !== name.string());
  if (isLeftOut) leftOut.push(name);
  return {
    ...(!isLeftOut && { tool_choice: chatToolChoice(choice) }),
    ...(isSingle && { parallel_tool_calls: false }),
  };
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
