import { readTokenCounts, type TokenCounts } from '@warmpath/core/internal';
import { type AnswerFailure, engineError, isObject, type JsonObject } from './errors.js';
import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, OPEN_BRACE, OPEN_BRACKET, QUOTE } from './request-value.js';

/** Tool calls that an answer may have. */
export const MAX_TOOL_CALLS = 1_024;
/** What an output block takes beside its texts, in characters: many tiny blocks count as much as one long one. */
const BLOCK_OVERHEAD = 512;

/** What an answer begins with. */
export interface AnswerHead {
  readonly id: string;
  readonly model: string;
  /** Seconds since 1970. */
  readonly created: number;
}

/** A part of an answer with a place of its own: reasoning, a text, a refusal, a tool call. */
export interface AnswerBlock {
  readonly kind: 'reasoning' | 'text' | 'refusal' | 'call';
  /** Its place in the answer. */
  readonly index: number;
  /** Of a tool call. */
  readonly callId: string;
  /** Of a tool call: the tool's. */
  readonly name: string;
  /** All of it so far; of a tool call, its arguments as JSON. */
  readonly text: string;
  /** Whether the answer was cut in it. */
  readonly isCut: boolean;
}

/** An answer so far. */
export interface Answer {
  readonly head: AnswerHead;
  /** Those that have begun, in the order in which the client gets them. */
  readonly blocks: readonly AnswerBlock[];
  /** OpenAI's `finish_reason`. */
  readonly reason: string;
  /** The stop string that was met, where the engine names it. */
  readonly stop: string | undefined;
  readonly usage: TokenCounts;
}

/** Writes the events of an API's stream, in SSE. Blocks come one after the other. */
export interface AnswerEvents {
  start(head: AnswerHead): string;
  open(block: AnswerBlock): string;
  append(block: AnswerBlock, text: string): string;
  close(block: AnswerBlock): string;
  end(answer: Answer): string;
  fail(failure: AnswerFailure, answer: Answer): string;
}

/** What an API is written by. */
export interface AnswerWriter extends AnswerEvents {
  /** An answer in one piece, as JSON. */
  whole(answer: Answer): string;
  /** An error in place of an answer, as JSON. */
  error(failure: AnswerFailure, requestId: string | undefined): string;
  /** The same for the body of an engine's answer with an error status. */
  engineError(text: string, status: number, requestId: string | undefined): string;
}

/** For clients that want the answer in one piece. */
export const NO_EVENTS: AnswerEvents = {
  start: () => '',
  open: () => '',
  append: () => '',
  close: () => '',
  end: () => '',
  fail: () => '',
};

/** One step of an answer, from chat completions. */
export type ChatDelta =
  | { readonly kind: 'head'; readonly id: string | undefined; readonly model: string; readonly created: number }
  | TextDelta
  | CallDelta
  | { readonly kind: 'finish'; readonly reason: string; readonly stop: string | undefined }
  | { readonly kind: 'usage'; readonly usage: TokenCounts };

interface TextDelta {
  readonly kind: 'reasoning' | 'text' | 'refusal';
  readonly text: string;
}

interface CallDelta {
  readonly kind: 'call';
  /** Which call of the answer. */
  readonly index: number;
  readonly id: string | undefined;
  readonly name: string | undefined;
  readonly text: string;
}

/** A block under construction. */
interface OpenBlock extends AnswerBlock {
  text: string;
  isCut: boolean;
  /** Of a tool call: reads its arguments along. */
  readonly argumentsEnd: ObjectEnd | undefined;
}

/** Reasons for which an answer ends before it is complete. */
const CUT_REASONS: ReadonlySet<string | undefined> = new Set(['length', 'content_filter']);

/**
 * Puts an answer together from the steps of chat completions, for streams and whole answers alike. The other APIs want
 * one block after the other, but chat completions may continue one tool call while another is open: blocks are given to
 * the client in the order in which they began, and one that began behind an incomplete tool call waits, with its text,
 * until that is complete.
 *
 * Each step is O(its text), amortised: a block is opened once and closed once, however many wait.
 */
export class AnswerAssembly {
  readonly #events: AnswerEvents;
  /** In the order in which they began. */
  readonly #blocks: OpenBlock[] = [];
  /** Blocks that are closed; the one behind them is open, and any further ones wait. */
  #closed = 0;
  /** By the engine's index. */
  readonly #calls = new Map<number, OpenBlock>();
  /** The last block of each kind of text. */
  readonly #texts = new Map<TextDelta['kind'], OpenBlock>();
  #head: AnswerHead | undefined;
  #reason: string | undefined;
  #stop: string | undefined;
  #usage: TokenCounts = {};
  #size = 0;

  constructor(events: AnswerEvents) {
    this.#events = events;
  }

  /** Whether the engine has said how the answer ended. */
  get isFinished(): boolean {
    return this.#reason !== undefined;
  }

  /** Characters that are kept until the answer's end, about. */
  get size(): number {
    return this.#size;
  }

  /**
   * Takes one step; returns events for a stream's client.
   *
   * @throws TranslateError `WARMPATH_UPSTREAM_ERROR` for a tool call too many.
   */
  add(delta: ChatDelta): string {
    switch (delta.kind) {
      case 'head':
        return this.#start(delta);
      case 'finish':
        this.#reason = delta.reason;
        this.#stop = delta.stop;
        return '';
      case 'usage':
        this.#usage = { ...this.#usage, ...delta.usage };
        return '';
      default:
        return this.#addContent(delta);
    }
  }

  /** The answer is complete: closes what is open; returns a stream's last events. */
  end(): string {
    const written = [this.#start(undefined)];
    while (this.#closed < this.#blocks.length) written.push(this.#closeOpenBlock());
    written.push(this.#events.end(this.answer()));
    return written.join('');
  }

  /** The answer broke off; returns a stream's last events. */
  fail(failure: AnswerFailure): string {
    const open = this.#blocks[this.#closed];
    if (open !== undefined) open.isCut = true;
    return this.#start(undefined) + this.#events.fail(failure, this.answer());
  }

  /** What the client has got of the answer; all of it after `end`. */
  answer(): Answer {
    const given = this.#reason ?? 'stop';
    const reason = given === 'stop' && this.#calls.size > 0 ? 'tool_calls' : given;
    const blocks = this.#blocks.slice(0, this.#closed + 1);
    return { head: this.#head!, blocks, reason, stop: this.#stop, usage: this.#usage };
  }

  #start(head: Extract<ChatDelta, { kind: 'head' }> | undefined): string {
    if (this.#head !== undefined) return '';
    this.#head = { id: head?.id ?? crypto.randomUUID(), model: head?.model ?? '', created: head?.created ?? 0 };
    return this.#events.start(this.#head);
  }

  #addContent(delta: TextDelta | CallDelta): string {
    const { text } = delta;
    this.#size += text.length;
    const known = delta.kind === 'call' ? this.#calls.get(delta.index) : this.#texts.get(delta.kind);
    const isClosed = known !== undefined && known.index < this.#closed;
    // White space behind arguments that were complete.
    if (isClosed && delta.kind === 'call') return '';
    if (known !== undefined && !isClosed) return this.#append(known, text);
    const begun = this.#begin(delta);
    const isOnly = begun.index === this.#closed;
    return (isOnly ? this.#events.open(begun) : '') + this.#append(begun, text);
  }

  #begin(delta: TextDelta | CallDelta): OpenBlock {
    const { kind } = delta;
    const index = this.#blocks.length;
    const { id, name } = kind === 'call' ? delta : NO_CALL;
    const callId = id ?? `call_${this.#head?.id}_${index}`;
    const argumentsEnd = kind === 'call' ? new ObjectEnd() : undefined;
    const block: OpenBlock = { kind, index, callId, name: name ?? '', text: '', isCut: false, argumentsEnd };
    if (kind !== 'call') this.#texts.set(kind, block);
    else {
      if (this.#calls.size >= MAX_TOOL_CALLS) {
        throw engineError(`The answer has more than the ${MAX_TOOL_CALLS} tool calls that a translation takes.`);
      }
      this.#calls.set(delta.index, block);
    }
    this.#blocks.push(block);
    this.#size += BLOCK_OVERHEAD + callId.length + block.name.length;
    return block;
  }

  #append(block: OpenBlock, text: string): string {
    block.text += text;
    block.argumentsEnd?.read(text);
    const isOpen = block.index === this.#closed;
    const written = isOpen && text !== '' ? this.#events.append(block, text) : '';
    return this.#blocks.length > this.#closed + 1 ? written + this.#advance() : written;
  }

  /** Closes complete blocks that others wait behind. */
  #advance(): string {
    const written: string[] = [];
    while (this.#closed + 1 < this.#blocks.length && isComplete(this.#blocks[this.#closed]!)) {
      written.push(this.#closeOpenBlock());
    }
    return written.join('');
  }

  /** Closes the open block, and opens the one behind it, if there is one. */
  #closeOpenBlock(): string {
    const block = this.#blocks[this.#closed]!;
    const next = this.#blocks[this.#closed + 1];
    const hasPart = next === undefined || (block.text !== '' && !isComplete(block));
    block.isCut = hasPart && CUT_REASONS.has(this.#reason);
    let written = '';
    // Engines write nothing for a call without arguments; clients parse what is written.
    if (block.kind === 'call' && !block.isCut && block.text.trim() === '') {
      block.text += '{}';
      written = this.#events.append(block, '{}');
    }
    written += this.#events.close(block);
    this.#closed++;
    if (next === undefined) return written;
    written += this.#events.open(next);
    return next.text === '' ? written : written + this.#events.append(next, next.text);
  }
}

const NO_CALL = { id: undefined, name: undefined };

/** Only a tool call can be incomplete: its arguments are a JSON object. */
function isComplete({ argumentsEnd }: OpenBlock): boolean {
  return argumentsEnd?.isReached ?? true;
}

/** Finds the end of a JSON object that comes in pieces. O(length) in all; whether it is valid is not looked at. */
export class ObjectEnd {
  #depth = 0;
  #inString = false;
  #isEscaped = false;
  #isReached = false;

  /** Whether the object has been closed. */
  get isReached(): boolean {
    return this.#isReached;
  }

  read(piece: string): void {
    for (let at = 0; at < piece.length; at++) {
      const code = piece.charCodeAt(at);
      if (this.#inString) this.#readInString(code);
      else if (code === QUOTE) this.#inString = true;
      else if (code === OPEN_BRACE || code === OPEN_BRACKET) this.#depth++;
      else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
        this.#depth--;
        this.#isReached ||= this.#depth === 0;
      }
    }
  }

  #readInString(code: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (code === BACKSLASH) this.#isEscaped = true;
    else if (code === QUOTE) this.#inString = false;
  }
}

/**
 * The steps of one chunk of a stream, or of one whole completion. Only its first choice is read.
 *
 * @throws TranslateError `WARMPATH_UPSTREAM_ERROR` if the engine states an error in it.
 */
export function* chatDeltas(chunk: unknown): Generator<ChatDelta> {
  if (!isObject(chunk)) return;
  const { error, choices, id, model, created } = chunk;
  if (error !== undefined && error !== null) {
    const message = isObject(error) ? error['message'] : error;
    throw engineError(typeof message === 'string' ? message : 'The engine returned an error.');
  }
  yield {
    kind: 'head',
    id: typeof id === 'string' && id !== '' ? id : undefined,
    model: typeof model === 'string' ? model : '',
    created: typeof created === 'number' ? created : 0,
  };
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined;
  if (isObject(choice)) yield* choiceDeltas(choice);
  yield { kind: 'usage', usage: readTokenCounts(chunk) };
}

function* choiceDeltas(choice: JsonObject): Generator<ChatDelta> {
  const { delta, message, finish_reason: reason, stop_reason, matched_stop } = choice;
  const { reasoning_content, reasoning, content, refusal, tool_calls } = isObject(delta)
    ? delta
    : isObject(message)
      ? message
      : ({} as JsonObject);
  // vLLM calls it `reasoning` now, and some engines send both names.
  yield* textDelta('reasoning', reasoning_content ?? reasoning);
  if (Array.isArray(content)) for (const part of content) yield* partDeltas(part);
  else yield* textDelta('text', content);
  yield* textDelta('refusal', refusal);
  if (Array.isArray(tool_calls)) for (const [place, call] of tool_calls.entries()) yield callDelta(call, place);
  if (typeof reason !== 'string') return;
  // vLLM and SGLang name the stop string that was met.
  const stop = [stop_reason, matched_stop].find((name) => typeof name === 'string');
  yield { kind: 'finish', reason, stop };
}

function* textDelta(kind: TextDelta['kind'], text: unknown): Generator<TextDelta> {
  if (typeof text === 'string' && text !== '') yield { kind, text };
}

/** Mistral's models that think write content in parts, some of which hold thoughts: a text, or parts of text. */
function* partDeltas(part: unknown): Generator<TextDelta> {
  if (!isObject(part)) return;
  const { type, text, thinking } = part;
  if (type !== 'thinking') yield* textDelta('text', text);
  else if (Array.isArray(thinking)) {
    for (const thought of thinking) if (isObject(thought)) yield* textDelta('reasoning', thought['text']);
  } else yield* textDelta('reasoning', thinking);
}

function callDelta(call: unknown, place: number): CallDelta {
  const { index, id, function: tool } = isObject(call) ? call : {};
  const { name, arguments: text } = isObject(tool) ? tool : {};
  return {
    kind: 'call',
    index: typeof index === 'number' ? index : place,
    id: typeof id === 'string' && id !== '' ? id : undefined,
    name: typeof name === 'string' && name !== '' ? name : undefined,
    text: typeof text === 'string' ? text : '',
  };
}

/** Writes one server-sent event. */
export function sseEvent(event: string, data: object): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}
