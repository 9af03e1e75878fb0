import {
  type AssistantTurn,
  assistantMessage,
  type ChatMessage,
  type ChatOptions,
  type ChatPart,
  type ChatRequest,
  chatRequest,
  contentOf,
  leftOutPart,
  textPart,
  writeJson,
} from './chat-request.js';
import { argumentsOfItem, itemToolName } from './client-tools.js';
import { isObject } from './errors.js';
import { textArguments } from './free-text.js';
import type { JsonText, RequestValue } from './request-value.js';
import { functionName, ResponseTools } from './response-tools.js';
import { settleMessages } from './settle-messages.js';

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
  'client_metadata',
]);

/** What only a server that keeps responses, prompts or conversations can do. */
const REFUSED = ['previous_response_id', 'conversation', 'prompt'];
/** Preferences without which the answer is still an answer. */
const LEFT_OUT = ['include', 'max_tool_calls', 'top_logprobs', 'context_management', 'background'];
const REMEDY = 'No conversation is stored here under this name. Send its items whole';

/**
 * A request of OpenAI's Responses as chat completions. Every text, image, file, tool call and tool result of the input
 * is in the output, once; calls that follow a message or each other are one turn of the assistant. O(body).
 *
 * @throws TranslateError `WARMPATH_NOT_TRANSLATABLE` for what has no equivalent, `WARMPATH_INVALID_REQUEST`.
 */
export function responsesToChat(request: RequestValue, { keepSystem }: ChatOptions): ChatRequest {
  for (const key of REFUSED) {
    const member = request.get(key);
    if (member.isGiven) throw member.notTranslatable(REMEDY);
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
  const tools = new ResponseTools(leftOut);
  tools.addAll(request.get('tools'));
  const given = [
    ...systemMessages(request.get('instructions')),
    ...new ItemReader(tools, leftOut).conversation(request.get('input')),
  ];
  const { messages, movedSystem } = settleMessages(given, keepSystem);
  const body = chatRequest(request, {
    messages,
    tools: tools.functions,
    fields: {
      ...toolChoice(request.get('tool_choice'), tools, leftOut),
      ...textFields(request.get('text')),
      ...reasoningFields(request.get('reasoning')),
      ...(limit.isGiven && { max_tokens: limit.raw() }),
    },
    translated: TRANSLATED,
  });
  return { body, leftOut, movedSystem, callForms: tools.callForms };
}

function systemMessages(instructions: RequestValue): readonly ChatMessage[] {
  return instructions.isGiven ? [{ role: 'system', content: instructions.text() }] : [];
}

/** Reads the items of an input, and notes what it leaves out. */
class ItemReader {
  readonly #tools: ResponseTools;
  readonly #leftOut: RequestValue[];

  constructor(tools: ResponseTools, leftOut: RequestValue[]) {
    this.#tools = tools;
    this.#leftOut = leftOut;
  }

  conversation(input: RequestValue): readonly ChatMessage[] {
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
      if (!this.#isRead(item)) continue;
      if (isAssistants(item)) {
        // Text behind a call is a turn of its own: in one turn, chat completions have the text first.
        if (turn !== undefined && startsTurn(item, turn)) closeTurn();
        turn ??= { parts: [], calls: [], reasoning: [] };
        this.#addToTurn(turn, item);
        continue;
      }
      closeTurn();
      messages.push(this.#messageOf(item));
    }
    closeTurn();
    return messages;
  }

  /** Whether an item is part of the conversation. Tools that come as items are added; other items are left out. */
  #isRead(item: RequestValue): boolean {
    const type = item.get('type');
    if (type.value === 'additional_tools' || type.value === 'tool_search_output') this.#tools.addAll(item.get('tools'));
    if (type.value === 'additional_tools') return false;
    if (isMessage(item) || isCall(item) || isResult(item)) return true;
    if (type.value === 'item_reference') throw type.notTranslatable(REMEDY);
    if (type.value === 'reasoning') {
      // Only its maker can read what is encrypted.
      const encrypted = item.get('encrypted_content');
      const isReadable = reasoningTexts(item).length > 0;
      if (!isReadable && encrypted.isGiven) this.#leftOut.push(encrypted);
      return isReadable;
    }
    this.#leftOut.push(type);
    return false;
  }

  #addToTurn(turn: AssistantTurn, item: RequestValue): void {
    if (isCall(item)) turn.calls.push(toolCall(item));
    else if (item.get('type').value === 'reasoning') for (const text of reasoningTexts(item)) turn.reasoning.push(text);
    else for (const part of this.#contentParts(item.get('content'))) turn.parts.push(part);
  }

  /** A message of anyone but the assistant. */
  #messageOf(item: RequestValue): ChatMessage {
    const role = item.get('role');
    if (isResult(item)) {
      const parts = this.#resultParts(item);
      // Chat completions have no mark for a result that is an error.
      const content = contentOf(item.get('status').value === 'failed' ? [textPart('Error:'), ...parts] : parts);
      return { role: 'tool', tool_call_id: resultId(item).string(), content };
    }
    if (role.value !== 'user' && role.value !== 'system' && role.value !== 'developer') {
      throw role.wrongType('`user`, `assistant`, `system` or `developer`');
    }
    // Most chat templates know no `developer`.
    const name = role.value === 'developer' ? 'system' : role.value;
    return { role: name, content: contentOf(this.#contentParts(item.get('content'))) };
  }

  /** Texts and images of a result; the JSON of any other. */
  #resultParts(item: RequestValue): readonly ChatPart[] {
    const output = item.get('output');
    if (typeof output.value === 'string') return [textPart(output.text())];
    const isContent =
      Array.isArray(output.value) && output.elements().every((part) => typeof part.get('type').value === 'string');
    if (isContent) return this.#contentParts(output);
    // A picture of a screen.
    if (output.get('image_url').isGiven) return [imagePart(output)];
    const result = output.isGiven ? output : item.get('tools');
    const status = item.get('status').value;
    return [textPart(result.raw()?.text ?? (typeof status === 'string' ? status : ''))];
  }

  /** The content of an item (a string, or parts) as parts of chat completions. */
  #contentParts(content: RequestValue): readonly ChatPart[] {
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
          return this.#mediaPart(part, part.get('file_id'), imagePart);
        case 'input_file':
          return this.#mediaPart(part, part.get('file_url'), filePart);
        case 'input_audio':
          return { type: 'input_audio', input_audio: part.get('input_audio').raw() };
        default:
          return this.#leaveOut(type, type);
      }
    });
  }

  /** @param elsewhere Where the medium is, if it is not in the request. */
  #mediaPart(part: RequestValue, elsewhere: RequestValue, read: (part: RequestValue) => ChatPart): ChatPart {
    return elsewhere.isGiven ? this.#leaveOut(elsewhere, part.get('type')) : read(part);
  }

  #leaveOut(reason: RequestValue, type: RequestValue): ChatPart {
    const part = leftOutPart(type);
    this.#leftOut.push(reason);
    return part;
  }
}

function isMessage(item: RequestValue): boolean {
  const type = item.get('type').value;
  if (type === undefined || type === null || type === 'message') return true;
  return typeof item.get('role').value === 'string' && item.get('content').isGiven;
}

/** A call of a tool that the client runs; calls of tools that ran at OpenAI have no `call_id`. */
function isCall(item: RequestValue): boolean {
  const type = item.get('type').value;
  if (type === 'function_call' || type === 'custom_tool_call') return true;
  return typeof type === 'string' && type.endsWith('_call') && item.get('call_id').isGiven;
}

function isResult(item: RequestValue): boolean {
  const type = item.get('type').value;
  return typeof type === 'string' && type.endsWith('_output') && resultId(item).isGiven;
}

/** Results of a local shell may name their call by `id`. */
function resultId(item: RequestValue): RequestValue {
  const id = item.get('call_id');
  return !id.isGiven && item.get('type').value === 'local_shell_call_output' ? item.get('id') : id;
}

function isAssistants(item: RequestValue): boolean {
  return item.get('role').value === 'assistant' || item.get('type').value === 'reasoning' || isCall(item);
}

function startsTurn(item: RequestValue, { parts, calls }: AssistantTurn): boolean {
  return !isCall(item) && (calls.length > 0 || parts.length > 0);
}

function toolCall(item: RequestValue): AssistantTurn['calls'][number] {
  const id = item.get('call_id').string();
  const type = item.get('type').string();
  const given = item.get('name');
  const name = type.startsWith('function') || given.isGiven ? given.string() : type.replace(/_call$/, '');
  const called = { name: functionName(name, item.get('namespace').value), arguments: argumentsOf(item) };
  return { id, type: 'function', function: called };
}

/** Members of calls that are no arguments. */
const NO_ARGUMENTS: ReadonlySet<string> = new Set([
  'type',
  'id',
  'call_id',
  'status',
  'name',
  'namespace',
  'execution',
  'environment',
  'pending_safety_checks',
  'caller',
  'created_by',
]);

function argumentsOf(item: RequestValue): JsonText {
  if (item.get('type').value === 'custom_tool_call') return textArguments(item.get('input').string());
  const given = item.get('arguments');
  // Chat templates parse it.
  if (given.value === '') return '{}';
  if (isObject(given.value)) return given.raw()!.text;
  if (item.get('type').value === 'function_call' || given.isGiven) return given.text();
  return argumentsOfItem(item) ?? writeJson(item.rawMembersExcept(NO_ARGUMENTS));
}

/** What a model thought, in full or, where only that was kept, in summary. */
function reasoningTexts(item: RequestValue): readonly string[] {
  const content = item.get('content');
  const parts = (content.isGiven ? content : item.get('summary')).elements();
  return parts.map((part) => {
    part.object();
    return part.get('text').string();
  });
}

function imagePart(part: RequestValue): ChatPart {
  const detail = part.get('detail');
  const url = part.get('image_url').text();
  return { type: 'image_url', image_url: { url, ...(detail.isGiven && { detail: detail.raw() }) } };
}

function filePart(part: RequestValue): ChatPart {
  const given = ['filename', 'file_data', 'file_id'].filter((name) => part.get(name).isGiven);
  return { type: 'file', file: Object.fromEntries(given.map((name) => [name, part.get(name).raw()])) };
}

function toolChoice(choice: RequestValue, tools: ResponseTools, leftOut: RequestValue[]): object {
  if (!choice.isGiven) return {};
  if (typeof choice.value === 'string') return { tool_choice: choice.value };
  choice.object();
  const type = choice.get('type');
  if (type.value === 'allowed_tools') return allowedTools(choice, tools, leftOut);
  const name = nameIn(choice);
  if (name !== undefined && tools.has(name)) return { tool_choice: { type: 'function', function: { name } } };
  leftOut.push(type);
  return {};
}

/** All tools stay in the prompt, whose prefix would change with them. One that must be called is named. */
function allowedTools(choice: RequestValue, tools: ResponseTools, leftOut: RequestValue[]): object {
  const allowed = choice.get('tools');
  const names = allowed.elements().map(nameIn);
  const [only] = names.filter((name) => name !== undefined && tools.has(name));
  const isRequired = choice.get('mode').value === 'required';
  if (only === undefined) return { tool_choice: 'none' };
  if (isRequired && names.length === 1) return { tool_choice: { type: 'function', function: { name: only } } };
  if (tools.functions.some(({ function: { name } }) => !names.includes(name))) leftOut.push(allowed);
  return { tool_choice: isRequired ? 'required' : 'auto' };
}

/** The function of a tool that a choice names. */
function nameIn(tool: RequestValue): string | undefined {
  const name = tool.get('name');
  return name.isGiven ? functionName(name.string(), tool.get('namespace').value) : itemToolName(tool.get('type').value);
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
