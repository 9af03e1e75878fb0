import type { JsonObject, JsonPath } from '../intake/apis/request-texts.js';
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
  type ToolCall,
} from './chat-request.js';
import { isGiven, notTranslatable, objectAt, type RequestSource, stringAt, wrongType } from './request-source.js';
import { inputParts, reasoningTexts } from './responses-parts.js';

/** Members that are said in other words; all others mean the same, or are the engine's own. */
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
/** Wishes about how the answer comes about, or what comes along with it. */
const LEFT_OUT = ['include', 'max_tool_calls', 'top_logprobs', 'context_management'];

/**
 * A request of OpenAI's Responses in the words of chat completions. Every text, image, file, call and result of a tool of the
 * input is in the output, once and in its order; calls that follow a message or each other are one turn of the assistant.
 *
 * Errors: `WARMPATH_NOT_TRANSLATABLE` for what has no equivalent, `WARMPATH_INVALID_REQUEST`, both with the path in the
 * client's body. O(body).
 */
export function responsesToChat(source: RequestSource): ChatRequest {
  const { body } = source;
  for (const key of REFUSED) source.refuseIfGiven(key);
  for (const key of LEFT_OUT) source.leaveOutIfGiven(key);
  if (body['truncation'] === 'auto') source.leaveOut(['truncation']);
  const { max_output_tokens: limit } = body;
  return chatRequest(source, {
    messages: [...systemMessages(source), ...readInput(source)],
    tool: (tool, place) => chatTool(source, tool, place),
    fields: {
      ...toolChoice(body['tool_choice']),
      ...textFields(source),
      ...reasoningFields(source),
      ...(isGiven(limit) && { max_tokens: source.raw(['max_output_tokens']) }),
    },
    translated: TRANSLATED,
  });
}

function systemMessages(source: RequestSource): readonly ChatMessage[] {
  const { instructions } = source.body;
  return isGiven(instructions) ? [{ role: 'system', content: source.text(instructions, ['instructions']) }] : [];
}

/** One turn of the assistant under construction. */
interface OpenTurn extends AssistantTurn {
  readonly parts: ChatPart[];
  readonly calls: ToolCall[];
  readonly reasoning: string[];
}

function readInput(source: RequestSource): readonly ChatMessage[] {
  const { input } = source.body;
  if (typeof input === 'string') return [{ role: 'user', content: source.text(input, ['input']) }];
  if (!Array.isArray(input)) throw wrongType(['input'], 'a string or an array of items');
  const messages: ChatMessage[] = [];
  let turn: OpenTurn | undefined;
  const close = (): void => {
    if (turn !== undefined) messages.push(assistantMessage(turn));
    turn = undefined;
  };
  for (const [position, given] of input.entries()) {
    const place = ['input', position];
    const item = objectAt(given, place);
    if (isAssistants(item)) {
      // Text behind a call is a turn of its own: in one turn, chat completions have the text first.
      if (turn !== undefined && startsTurn(item, turn)) close();
      turn ??= { parts: [], calls: [], reasoning: [] };
      addToTurn(source, turn, { item, place });
      continue;
    }
    close();
    messages.push(readItem(source, item, place));
  }
  close();
  return messages;
}

function isAssistants({ type, role }: JsonObject): boolean {
  return role === 'assistant' || (role === undefined && (type === 'function_call' || type === 'reasoning'));
}

function startsTurn({ type }: JsonObject, { parts, calls }: OpenTurn): boolean {
  if (type === 'function_call') return false;
  return calls.length > 0 || parts.length > 0;
}

function addToTurn(
  source: RequestSource,
  turn: OpenTurn,
  { item, place }: { readonly item: JsonObject; readonly place: JsonPath },
): void {
  if (item['type'] === 'reasoning') turn.reasoning.push(...reasoningTexts(item, place));
  else if (item['type'] === 'function_call') {
    const id = stringAt(item['call_id'], [...place, 'call_id']);
    const name = stringAt(item['name'], [...place, 'name']);
    // Chat templates parse it.
    const text = item['arguments'] === '' ? '{}' : source.text(item['arguments'], [...place, 'arguments']);
    turn.calls.push({ id, type: 'function', function: { name, arguments: text } });
  } else turn.parts.push(...inputParts(source, item['content'], [...place, 'content']));
}

function readItem(source: RequestSource, item: JsonObject, place: JsonPath): ChatMessage {
  const { type, role } = item;
  if (type === 'function_call_output') {
    const id = stringAt(item['call_id'], [...place, 'call_id']);
    return {
      role: 'tool',
      tool_call_id: id,
      content: contentOf(inputParts(source, item['output'], [...place, 'output'])),
    };
  }
  if (type === 'item_reference') {
    throw notTranslatable([...place, 'type'], 'The gateway keeps no items (send them whole, with `store: false`)');
  }
  if (type !== undefined && type !== null && type !== 'message') throw notTranslatable([...place, 'type']);
  if (role !== 'user' && role !== 'system' && role !== 'developer') {
    throw wrongType([...place, 'role'], '`user`, `assistant`, `system` or `developer`');
  }
  // Most chat templates know no `developer`.
  const said = role === 'developer' ? 'system' : role;
  return { role: said, content: contentOf(inputParts(source, item['content'], [...place, 'content'])) };
}

function chatTool(source: RequestSource, given: unknown, place: JsonPath): ChatTool {
  const tool = objectAt(given, place);
  if (tool['type'] !== 'function') throw notTranslatable([...place, 'type'], 'This tool runs at OpenAI');
  return functionTool(source, tool, place, 'parameters');
}

function toolChoice(given: unknown): object {
  if (!isGiven(given)) return {};
  if (typeof given === 'string') return { tool_choice: given };
  const { type, name } = objectAt(given, ['tool_choice']);
  if (type !== 'function') throw notTranslatable(['tool_choice', 'type']);
  return { tool_choice: { type, function: { name: stringAt(name, ['tool_choice', 'name']) } } };
}

function textFields(source: RequestSource): object {
  const { text } = source.body;
  if (!isGiven(text)) return {};
  const { format, verbosity } = objectAt(text, ['text']);
  return {
    ...(isGiven(format) && responseFormat(source, objectAt(format, ['text', 'format']))),
    ...(isGiven(verbosity) && { verbosity }),
  };
}

function responseFormat(source: RequestSource, { type, name, description, strict }: JsonObject): object {
  if (type === 'text') return {};
  if (type === 'json_object') return { response_format: { type } };
  if (type !== 'json_schema') throw notTranslatable(['text', 'format', 'type']);
  const schema = source.raw(['text', 'format', 'schema']);
  return { response_format: { type, json_schema: { name, description, schema, strict } } };
}

function reasoningFields(source: RequestSource): object {
  const { reasoning } = source.body;
  if (!isGiven(reasoning)) return {};
  const { effort, summary, generate_summary: summaryBefore } = objectAt(reasoning, ['reasoning']);
  if (isGiven(summary) || isGiven(summaryBefore)) source.leaveOut(['reasoning', 'summary']);
  return isGiven(effort) ? { reasoning_effort: effort } : {};
}
