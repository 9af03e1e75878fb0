import {
  type AnswerFailure,
  type AnswerStepReader,
  type CallStep,
  type FinishReason,
  ObjectEnd,
  readTokenCounts,
  type TextStep,
  type TokenCounts,
} from '@warmpath/core/internal';
import { engineError, isObject } from './errors.js';

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
  readonly reason: FinishReason;
  /** The stop string that was met, where the engine names it. */
  readonly stop: string | undefined;
  readonly usage: TokenCounts;
}

/** Writes the events of an API's stream, in SSE. Blocks come one after the other. */
export interface AnswerEvents {
  /** @param usage What the engine has counted so far. */
  start(head: AnswerHead, usage: TokenCounts): string;
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
  | { readonly kind: 'finish'; readonly reason: FinishReason; readonly stop: string | undefined }
  | { readonly kind: 'usage'; readonly usage: TokenCounts };

type TextDelta = Omit<TextStep, 'choice'>;
type CallDelta = Omit<CallStep, 'choice'>;

/** A block under construction. */
interface OpenBlock extends AnswerBlock {
  callId: string;
  name: string;
  text: string;
  isCut: boolean;
  /** Whether the client knows of it. */
  isTold: boolean;
  /** Of a tool call: reads its arguments along. */
  readonly argumentsEnd: ObjectEnd | undefined;
}

/** Reasons for which an answer ends before it is complete. */
const CUT_REASONS: ReadonlySet<FinishReason | undefined> = new Set(['length', 'content_filter']);

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
  /** By their number. */
  readonly #calls = new Map<number, OpenBlock>();
  readonly #callIds = new Set<string>();
  /** The last block of each kind of text. */
  readonly #texts = new Map<TextDelta['kind'], OpenBlock>();
  /** As far as the engine has stated it. */
  #head: { id?: string | undefined; model: string; created: number };
  #hasStarted = false;
  #reason: FinishReason | undefined;
  #stop: string | undefined;
  #usage: TokenCounts = {};
  #size = 0;

  /** @param model The model of an answer that does not state it. */
  constructor(events: AnswerEvents, model = '') {
    this.#events = events;
    this.#head = { model, created: 0 };
  }

  /** Whether the engine has said how the answer ended. */
  get isFinished(): boolean {
    return this.#reason !== undefined;
  }

  get hasContent(): boolean {
    return this.#blocks.length > 0;
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
        return this.#readHead(delta);
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
    const written = [this.#start()];
    while (this.#closed < this.#blocks.length) written.push(this.#closeOpenBlock());
    written.push(this.#events.end(this.answer()));
    return written.join('');
  }

  /** The answer broke off; returns a stream's last events. */
  fail(failure: AnswerFailure): string {
    const open = this.#blocks[this.#closed];
    if (open !== undefined) open.isCut = true;
    return this.#start() + this.#events.fail(failure, this.answer());
  }

  /** What the client has got of the answer; all of it after `end`. */
  answer(): Answer {
    const given = this.#reason ?? 'stop';
    const hasCalls = this.#calls.size > 0;
    const reason = given === 'stop' && hasCalls ? 'tool_calls' : given === 'tool_calls' && !hasCalls ? 'stop' : given;
    const blocks = this.#blocks.slice(0, this.#closed + 1).filter(({ isTold }) => isTold);
    return { head: this.#givenHead(), blocks, reason, stop: this.#stop, usage: this.#usage };
  }

  /** Some engines begin with a chunk that states nothing. */
  #readHead({ id, model, created }: Extract<ChatDelta, { kind: 'head' }>): string {
    if (this.#hasStarted) return '';
    const head = this.#head;
    this.#head = { id: head.id ?? id, model: model || head.model, created: created || head.created };
    return model === '' ? '' : this.#start();
  }

  #givenHead(): AnswerHead {
    this.#head.id ??= crypto.randomUUID();
    return this.#head as AnswerHead;
  }

  #start(): string {
    if (this.#hasStarted) return '';
    this.#hasStarted = true;
    return this.#events.start(this.#givenHead(), this.#usage);
  }

  #addContent(delta: TextDelta | CallDelta): string {
    const { text } = delta;
    this.#size += text.length;
    const known = delta.kind === 'call' ? this.#calls.get(delta.index) : this.#texts.get(delta.kind);
    const isClosed = known !== undefined && known.index < this.#closed;
    if (known !== undefined && delta.kind === 'call') return isClosed ? '' : this.#continueCall(known, delta);
    if (known !== undefined && !isClosed) return this.#append(known, text);
    const started = this.#start();
    const begun = this.#begin(delta);
    return started + (begun.index === this.#closed ? this.#tell(begun) : '') + this.#append(begun, text);
  }

  #begin(delta: TextDelta | CallDelta): OpenBlock {
    const { kind } = delta;
    const index = this.#blocks.length;
    const argumentsEnd = kind === 'call' ? new ObjectEnd() : undefined;
    const block: OpenBlock = {
      kind,
      index,
      callId: '',
      name: '',
      text: '',
      isCut: false,
      isTold: false,
      argumentsEnd,
    };
    if (delta.kind !== 'call') this.#texts.set(delta.kind, block);
    else {
      if (this.#calls.size >= MAX_TOOL_CALLS) {
        throw engineError(`The answer has more than the ${MAX_TOOL_CALLS} tool calls that a translation takes.`);
      }
      this.#calls.set(delta.index, block);
      this.#identify(block, delta);
    }
    this.#blocks.push(block);
    this.#size += BLOCK_OVERHEAD + block.callId.length + block.name.length;
    return block;
  }

  #identify(block: OpenBlock, { id = '', name = '' }: Pick<CallDelta, 'id' | 'name'>): void {
    if (block.name === '') block.name = name;
    if (block.callId !== '' || id === '') return;
    // The results of two calls with one id could not be told apart.
    block.callId = this.#callIds.has(id) ? `${id}_${block.index}` : id;
    this.#callIds.add(block.callId);
  }

  #continueCall(block: OpenBlock, delta: CallDelta): string {
    this.#identify(block, delta);
    // What stands behind complete arguments is white space, or the arguments again.
    const text = block.argumentsEnd?.isReached === true ? '' : delta.text;
    const told = block.index === this.#closed ? this.#tell(block) : '';
    return told + this.#append(block, text);
  }

  #append(block: OpenBlock, text: string): string {
    block.text += text;
    block.argumentsEnd?.read(text);
    const written = block.isTold && text !== '' ? this.#events.append(block, text) : '';
    return this.#blocks.length > this.#closed + 1 ? written + this.#advance() : written;
  }

  /** Opens the block for the client, with the text that it has: a call as soon as its id and its name are known. */
  #tell(block: OpenBlock): string {
    if (block.isTold || !isIdentified(block)) return '';
    block.isTold = true;
    const opened = this.#events.open(block);
    return block.text === '' ? opened : opened + this.#events.append(block, block.text);
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
    if (block.kind === 'call') {
      if (block.name === '') throw engineError('The engine called a tool without its name.');
      if (block.callId === '') this.#identify(block, { id: `call_${this.#head.id}_${block.index}`, name: undefined });
      written = this.#tell(block);
    }
    // Engines write nothing for a call without arguments; clients parse what is written.
    if (block.kind === 'call' && !block.isCut && block.text.trim() === '') {
      block.text += '{}';
      written += this.#events.append(block, '{}');
    }
    written += this.#events.close(block);
    this.#closed++;
    return next === undefined ? written : written + this.#tell(next);
  }
}

/** Only a tool call can be incomplete: its arguments are a JSON object. */
function isComplete(block: OpenBlock): boolean {
  return isIdentified(block) && (block.argumentsEnd?.isReached ?? true);
}

function isIdentified({ kind, callId, name }: OpenBlock): boolean {
  return kind !== 'call' || (callId !== '' && name !== '');
}

/** The steps of one chunk of a stream, or of one whole completion. Only its first choice is read. */
export function* chatDeltas(chunk: unknown, reader: AnswerStepReader): Generator<ChatDelta | FailureDelta> {
  if (!isObject(chunk)) return;
  const { id, model, created } = chunk;
  const usage = readTokenCounts(chunk);
  if (Object.keys(usage).length > 0) yield { kind: 'usage', usage };
  yield {
    kind: 'head',
    id: typeof id === 'string' && id !== '' ? id : undefined,
    model: typeof model === 'string' ? model : '',
    created: typeof created === 'number' ? created : 0,
  };
  for (const step of reader.read(chunk)) {
    if (step.kind === 'failure') yield step;
    else if (step.kind === 'other' || step.choice !== 0) continue;
    else if (step.kind !== 'finish') yield step;
    else if (step.reason !== undefined) yield { kind: 'finish', reason: step.reason, stop: step.stop };
    else yield { kind: 'unfinished', reason: step.given };
  }
}

/** What makes an answer an error: what the engine states, or an end that is none. */
export type FailureDelta =
  | { readonly kind: 'failure'; readonly failure: AnswerFailure }
  | { readonly kind: 'unfinished'; readonly reason: string };

/** Writes one server-sent event. */
export function sseEvent(event: string, data: object): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}
