import type { AnswerFailure, TokenCounts } from '@warmpath/core/internal';
import type { Answer, AnswerBlock, AnswerHead, AnswerWriter } from './answer-assembly.js';
import { sseEvent } from './answer-assembly.js';
import type { CallForm } from './chat-request.js';
import { callItem } from './client-tools.js';
import { isObject, type JsonObject, parseObject, readEngineError } from './errors.js';
import { FreeText, freeTextIn } from './free-text.js';

/** What a response repeats of its request, with the API's own defaults. */
const REPEATED: Readonly<Record<string, unknown>> = {
  instructions: null,
  max_output_tokens: null,
  max_tool_calls: null,
  metadata: {},
  parallel_tool_calls: true,
  reasoning: { effort: null, summary: null },
  service_tier: 'default',
  temperature: 1,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  top_p: 1,
  truncation: 'disabled',
  user: null,
};

/** How a response can be asked for, and what it continues. */
export interface StoredAs {
  /** Its id, without `resp_`; `undefined` if it is not stored. */
  readonly id: string | undefined;
  /** The id of the response that it continues. */
  readonly previousId: string | undefined;
}

/** Writes an answer as OpenAI's Responses. */
export class ResponsesWriter implements AnswerWriter {
  readonly #repeated: JsonObject;
  readonly #callForms: ReadonlyMap<string, CallForm>;
  readonly #stored: StoredAs | undefined;
  #responseId = '';
  #sequence = 0;
  /** Of the open call. */
  #freeText = new FreeText();

  /**
   * @param request The body that the answer is to.
   * @param callForms How calls are written that are no plain functions.
   * @param stored How the response is stored, where it is.
   */
  constructor(request: JsonObject, callForms: ReadonlyMap<string, CallForm>, stored?: StoredAs) {
    this.#callForms = callForms;
    this.#stored = stored;
    const given = Object.keys(REPEATED).map((key) => [key, request[key] ?? REPEATED[key]]);
    this.#repeated = Object.fromEntries(given) as JsonObject;
  }

  start(head: AnswerHead): string {
    const response = this.#response('in_progress', head, []);
    return this.#event('response.created', { response }) + this.#event('response.in_progress', { response });
  }

  open(block: AnswerBlock): string {
    this.#freeText = new FreeText();
    // The form of its item is known once its arguments are complete.
    if (block.kind === 'call') return this.#isStreamed(block) ? this.#added(block) : '';
    return (
      this.#added(block) +
      this.#event('response.content_part.added', { ...this.#place(block), part: partOf(block.kind, '') })
    );
  }

  append(block: AnswerBlock, delta: string): string {
    const { kind } = block;
    if (kind === 'text') {
      return this.#event('response.output_text.delta', { ...this.#place(block), delta, logprobs: [] });
    }
    if (kind !== 'call') return this.#event(`response.${EVENTS[kind]}.delta`, { ...this.#place(block), delta });
    if (this.#formOf(block).kind === 'custom') return this.#inputDelta(block, this.#freeText.read(delta));
    if (!this.#isStreamed(block)) return '';
    const { output_index, item_id } = this.#place(block);
    return this.#event('response.function_call_arguments.delta', { item_id, output_index, delta });
  }

  close(block: AnswerBlock): string {
    const { kind, text } = block;
    const place = this.#place(block);
    const done =
      kind === 'call'
        ? this.#callDone(block)
        : this.#event(`response.${EVENTS[kind]}.done`, { ...place, ...wholeText(kind, text) }) +
          this.#event('response.content_part.done', { ...place, part: partOf(kind, text) });
    const { output_index } = place;
    return done + this.#event('response.output_item.done', { output_index, item: this.#item(block, 'completed') });
  }

  #added(block: AnswerBlock, stage: 'in_progress' | 'completed' = 'in_progress'): string {
    const item = this.#item(block, stage);
    return this.#event('response.output_item.added', { output_index: block.index, item });
  }

  #inputDelta(block: AnswerBlock, delta: string): string {
    if (delta === '') return '';
    const { item_id, output_index } = this.#place(block);
    return this.#event('response.custom_tool_call_input.delta', { item_id, output_index, delta });
  }

  #callDone(block: AnswerBlock): string {
    const { kind, name } = this.#formOf(block);
    const { item_id, output_index } = this.#place(block);
    const place = { item_id, output_index };
    if (!this.#isStreamed(block)) return this.#added(block, 'completed');
    if (kind === 'function')
      return this.#event('response.function_call_arguments.done', { ...place, name, arguments: block.text });
    const rest = this.#inputDelta(block, this.#freeText.end());
    return rest + this.#event('response.custom_tool_call_input.done', { ...place, input: this.#freeText.text });
  }

  #formOf({ name }: AnswerBlock): CallForm {
    return this.#callForms.get(name) ?? { kind: 'function', name, namespace: undefined, type: undefined };
  }

  /** Whether the client gets the call in pieces. */
  #isStreamed(block: AnswerBlock): boolean {
    const { kind } = this.#formOf(block);
    return kind === 'function' || kind === 'custom';
  }

  end(answer: Answer): string {
    return this.#event(`response.${statusOf(answer).status}`, { response: this.#complete(answer) });
  }

  fail(failure: AnswerFailure, { head, blocks }: Answer): string {
    const { message, code, param } = errorOf(failure);
    const response = { ...this.#response('failed', head, blocks), error: { code, message } };
    // OpenAI's clients throw at the `error` member of an event; `response.failed` alone tells them nothing.
    const event = { code, message, param, error: errorOf(failure) };
    return this.#event('response.failed', { response }) + this.#event('error', event);
  }

  whole(answer: Answer): string {
    return JSON.stringify(this.#complete(answer));
  }

  error(failure: AnswerFailure): string {
    return JSON.stringify({ error: errorOf(failure) });
  }

  /** An error in OpenAI's shape is one of Responses, too. */
  engineError(text: string, status: number): string {
    return isObject(parseObject(text)?.['error']) ? text : this.error(readEngineError(text, status));
  }

  #event(type: string, members: object): string {
    return sseEvent(type, { type, sequence_number: this.#sequence++, ...members });
  }

  #complete(answer: Answer): object {
    const { status, reason } = statusOf(answer);
    return {
      ...this.#response(status, answer.head, answer.blocks),
      incomplete_details: reason === undefined ? null : { reason },
      usage: usageOf(answer.usage),
    };
  }

  #response(status: string, { id, created, model }: AnswerHead, blocks: readonly AnswerBlock[]): object {
    this.#responseId = this.#stored?.id ?? id;
    return {
      id: `resp_${this.#responseId}`,
      object: 'response',
      created_at: created,
      status,
      background: false,
      error: null,
      incomplete_details: null,
      model,
      output: blocks.map((block) => this.#item(block, 'completed')),
      previous_response_id: this.#stored?.previousId ?? null,
      store: this.#stored?.id !== undefined,
      ...this.#repeated,
      usage: null,
    };
  }

  #place({ kind, index }: AnswerBlock) {
    return { item_id: this.#itemId(kind, index), output_index: index, content_index: 0 };
  }

  #itemId(kind: AnswerBlock['kind'], index: number): string {
    return `${PREFIXES[kind]}_${this.#responseId}_${index}`;
  }

  #item(block: AnswerBlock, stage: 'in_progress' | 'completed'): object {
    const { kind, index, text, isCut } = block;
    const id = this.#itemId(kind, index);
    const isOpen = stage === 'in_progress';
    const status = isCut ? 'incomplete' : stage;
    if (kind === 'call') return { id, status, ...this.#call(block, isOpen ? '' : text) };
    const content = isOpen ? [] : [partOf(kind, text)];
    if (kind === 'reasoning') return { type: 'reasoning', id, summary: [], content, status };
    return { type: 'message', id, role: 'assistant', status, content };
  }

  /** Arguments that a tool cannot have reach the client as they are: as a function's. */
  #call(block: AnswerBlock, text: string): object {
    const { kind, name, namespace, type } = this.#formOf(block);
    const { callId: call_id } = block;
    const named = { call_id, name, ...(namespace && { namespace }) };
    if (kind === 'custom') return { type: 'custom_tool_call', ...named, input: freeTextIn(text) };
    const item = type === undefined ? searchItem(kind, text) : callItem(type, text);
    return item === undefined ? { type: 'function_call', ...named, arguments: text } : { call_id, ...item };
  }
}

const EVENTS = { text: 'output_text', refusal: 'refusal', reasoning: 'reasoning_text' } as const;
const PREFIXES = { text: 'msg', refusal: 'msg', reasoning: 'rs', call: 'fc' } as const;

function searchItem(kind: CallForm['kind'], text: string): JsonObject | undefined {
  const given = kind === 'search' ? parseObject(text) : undefined;
  return given && { type: 'tool_search_call', execution: 'client', arguments: given };
}

function errorOf({ message, type = 'upstream_error', param = null, code }: AnswerFailure) {
  return { message, type, param, code };
}

function partOf(kind: AnswerBlock['kind'], text: string): object {
  if (kind === 'refusal') return { type: 'refusal', refusal: text };
  if (kind === 'reasoning') return { type: 'reasoning_text', text };
  return { type: 'output_text', text, annotations: [], logprobs: [] };
}

function wholeText(kind: AnswerBlock['kind'], text: string): object {
  if (kind === 'refusal') return { refusal: text };
  return kind === 'text' ? { text, logprobs: [] } : { text };
}

function statusOf({ reason }: Answer): { readonly status: string; readonly reason?: string } {
  if (reason === 'length') return { status: 'incomplete', reason: 'max_output_tokens' };
  if (reason === 'content_filter') return { status: 'incomplete', reason };
  return { status: 'completed' };
}

/** Counts that the engine does not state are 0. */
function usageOf(counts: TokenCounts): object {
  const { promptTokens = 0, cachedTokens = 0, cacheWriteTokens, completionTokens = 0, reasoningTokens = 0 } = counts;
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens, cache_write_tokens: cacheWriteTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
  };
}
