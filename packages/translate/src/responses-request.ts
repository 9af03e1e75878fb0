import {
  type AssistantTurn,
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
import type { RequestValue } from './request-value.js';

/** Members that are translated or left out; members of other names mean the same, or are the engine's own. */
const TRANSLATED: ReadonlySet<string> = new Set([
  'model',
  'instructions',
  'input',
  'max_output_tokens',
  'stream',
  'stream_options',
  'tools',
  'tool_choice',
  'text',
  'reasoning',
  'metadata',
  'include',
  'store',
  'truncation',
  'max_tool_calls',
  'top_logprobs',
  'background',
  'previous_response_id',
  'conversation',
  'prompt',
  'context_management',
]);

/** What only a server that keeps responses, prompts or conversations can do. */
const REFUSED = ['previous_response_id', 'conversation', 'prompt', 'background'];
/** Preferences without which the answer is still an answer. */
const LEFT_OUT = ['include', 'max_tool_calls', 'top_logprobs', 'context_management'];

/**
 * A request of OpenAI's Responses as chat completions. Every text, image, file, tool call and tool result of the input
 * is in the output, once and in its order; calls that follow a message or each other are one turn of the assistant.
 * O(body).
 *
 * @throws TranslateError `WARMPATH_NOT_TRANSLATABLE` for what has no equivalent, `WARMPATH_INVALID_REQUEST`.
 */
export function responsesToChat(request: RequestValue): ChatRequest {
  for (const key of REFUSED) {
    const member = request.get(key);
    if (member.isGiven) throw member.notTranslatable();
  }
  const leftOut = LEFT_OUT.map((key) => request.get(key)).filter(({ isGiven }) => isGiven);
  const truncation = request.get('truncation');
  if (truncation.value === 'auto') leftOut.push(truncation);
  // `generate_summary` is the older name.
  for (const name of ['summary', 'generate_summary']) {
    const summary = request.get('reasoning').get(name);
    if (summary.isGiven) leftOut.push(summary);
  }
  const limit = request.get('max_output_tokens');
  const body = chatRequest(request, {
    messages: [...systemMessages(request.get('instructions')), ...conversation(request.get('input'))],
    toolOf,
    fields: {
      ...toolChoice(request.get('tool_choice')),
      ...textFields(request.get('text')),
      ...reasoningFields(request.get('reasoning')),
      ...(limit.isGiven && { max_tokens: limit.raw() }),
    },
    translated: TRANSLATED,
  });
  return { body, leftOut };
}

function systemMessages(instructions: RequestValue): readonly ChatMessage[] {
  return instructions.isGiven ? [{ role: 'system', content: instructions.text() }] : [];
}

function conversation(input: RequestValue): readonly ChatMessage[] {
  if (typeof input.value === 'string') return [{ role: 'user', content: input.text() }];
  if (!Array.isArray(input.value)) throw input.wrongType('a string or an array of items');
  const messages: ChatMessage[] = [];
  let turn: AssistantTurn | undefined;
  const closeTurn = (): void => {
    if (turn !== undefined) messages.push(assistantMessage(turn));
    turn = undefined;
  };
  for (const item of input.elements()) {
    item.object();
    if (isAssistants(item)) {
      // Text behind a call is a turn of its own: in one turn, chat completions have the text first.
      if (turn !== undefined && startsTurn(item, turn)) closeTurn();
      turn ??= { parts: [], calls: [], reasoning: [] };
      addToTurn(turn, item);
      continue;
    }
    closeTurn();
    messages.push(messageOf(item));
  }
  closeTurn();
  return messages;
}

function isAssistants(item: RequestValue): boolean {
  const role = item.get('role').value;
  const type = item.get('type').value;
  return role === 'assistant' || (role === undefined && (type === 'function_call' || type === 'reasoning'));
}

function startsTurn(item: RequestValue, { parts, calls }: AssistantTurn): boolean {
  if (item.get('type').value === 'function_call') return false;
  return calls.length > 0 || parts.length > 0;
}

function addToTurn(turn: AssistantTurn, item: RequestValue): void {
  const type = item.get('type').value;
  if (type === 'reasoning') for (const text of reasoningTexts(item)) turn.reasoning.push(text);
  else if (type === 'function_call') {
    const id = item.get('call_id').string();
    const name = item.get('name').string();
    const given = item.get('arguments');
    // Chat templates parse it.
    const text = given.value === '' ? '{}' : given.text();
    turn.calls.push({ id, type: 'function', function: { name, arguments: text } });
  } else for (const part of contentParts(item.get('content'))) turn.parts.push(part);
}

/** What a model thought, in full or, where only that was kept, in summary. */
function reasoningTexts(item: RequestValue): readonly string[] {
  const content = item.get('content');
  const texts = (content.isGiven ? content : item.get('summary')).elements().map((part) => {
    part.object();
    return part.get('text').string();
  });
  // Nobody but its maker can read it.
  const encrypted = item.get('encrypted_content');
  if (texts.length === 0 && encrypted.isGiven) throw encrypted.notTranslatable();
  return texts;
}

/** A message of anyone but the assistant. */
function messageOf(item: RequestValue): ChatMessage {
  const type = item.get('type');
  const role = item.get('role');
  if (type.value === 'function_call_output') {
    const content = contentOf(contentParts(item.get('output')));
    return { role: 'tool', tool_call_id: item.get('call_id').string(), content };
  }
  if (type.value === 'item_reference') {
    throw type.notTranslatable('No items are stored here (send them whole, with `store: false`)');
  }
  if (type.value !== undefined && type.value !== null && type.value !== 'message') throw type.notTranslatable();
  if (role.value !== 'user' && role.value !== 'system' && role.value !== 'developer') {
    throw role.wrongType('`user`, `assistant`, `system` or `developer`');
  }
  // Most chat templates know no `developer`.
  const name = role.value === 'developer' ? 'system' : role.value;
  return { role: name, content: contentOf(contentParts(item.get('content'))) };
}

/** The content of an item (a string, or parts) as parts of chat completions. */
function contentParts(content: RequestValue): readonly ChatPart[] {
  if (typeof content.value === 'string') return [textPart(content.text())];
  return content.elements().map((part) => {
    part.object();
    const type = part.get('type');
    switch (type.value) {
      case 'input_text':
      case 'output_text':
      case 'text':
        return textPart(part.get('text').text());
      case 'refusal':
        return { type: 'refusal', refusal: part.get('refusal').text() };
      case 'input_image':
        return imagePart(part);
      case 'input_file':
        return filePart(part);
      case 'input_audio':
        return { type: 'input_audio', input_audio: part.get('input_audio').raw() };
      default:
        throw type.notTranslatable();
    }
  });
}

function imagePart(part: RequestValue): ChatPart {
  const fileId = part.get('file_id');
  if (fileId.isGiven) throw fileId.notTranslatable('The file is stored at OpenAI');
  const detail = part.get('detail');
  const url = part.get('image_url').text();
  return { type: 'image_url', image_url: { url, ...(detail.isGiven && { detail: detail.raw() }) } };
}

function filePart(part: RequestValue): ChatPart {
  const url = part.get('file_url');
  if (url.isGiven) throw url.notTranslatable();
  const given = ['filename', 'file_data', 'file_id'].filter((name) => part.get(name).isGiven);
  return { type: 'file', file: Object.fromEntries(given.map((name) => [name, part.get(name).raw()])) };
}

function toolOf(tool: RequestValue): ChatTool {
  tool.object();
  const type = tool.get('type');
  if (type.value !== 'function') throw type.notTranslatable('This tool runs at OpenAI');
  return functionTool(tool, 'parameters');
}

function toolChoice(choice: RequestValue): object {
  if (!choice.isGiven) return {};
  if (typeof choice.value === 'string') return { tool_choice: choice.value };
  choice.object();
  const type = choice.get('type');
  if (type.value !== 'function') throw type.notTranslatable();
  return { tool_choice: { type: 'function', function: { name: choice.get('name').string() } } };
}

function textFields(text: RequestValue): object {
  if (!text.isGiven) return {};
  text.object();
  const format = text.get('format');
  const verbosity = text.get('verbosity');
  return {
    ...(format.isGiven && responseFormat(format)),
    ...(verbosity.isGiven && { verbosity: verbosity.raw() }),
  };
}

function responseFormat(format: RequestValue): object {
  format.object();
  const type = format.get('type');
  if (type.value === 'text') return {};
  if (type.value === 'json_object') return { response_format: { type: 'json_object' } };
  if (type.value !== 'json_schema') throw type.notTranslatable();
  const members = ['name', 'description', 'schema', 'strict'].map((name) => [name, format.get(name).raw()]);
  return { response_format: { type: 'json_schema', json_schema: Object.fromEntries(members) } };
}

function reasoningFields(reasoning: RequestValue): object {
  if (!reasoning.isGiven) return {};
  reasoning.object();
  const effort = reasoning.get('effort');
  return effort.isGiven ? { reasoning_effort: effort.raw() } : {};
}
