import { randomUUID } from 'node:crypto';
import type { CallDelta, ChatDelta, ChatUsage } from './chat-deltas.js';
import { ObjectEnd } from './object-end.js';

/** What an answer begins with. */
export interface AnswerHead {
  readonly id: string;
  readonly model: string;
  /** Seconds since 1970. */
  readonly created: number;
}

/** A piece of an answer that stands for itself: a text, a thought, a call of a tool. */
export interface AnswerBlock {
  readonly kind: 'reasoning' | 'text' | 'refusal' | 'call';
  /** Its place in the answer. */
  readonly index: number;
  /** Of a call: its id and the name of the tool. */
  readonly callId: string;
  readonly name: string;
  /** All of it so far; of a call, its arguments as JSON. */
  text: string;
  /** Whether the answer broke off in it. */
  isCut: boolean;
}

/** How an answer ended. */
export interface AnswerEnd {
  /** OpenAI's `finish_reason`. */
  readonly reason: string;
  /** The stop string that was met, where the engine says so. */
  readonly stop: string | undefined;
  readonly usage: ChatUsage;
}

/** Why an answer broke off. */
export interface AnswerFailure {
  readonly message: string;
  readonly code: string;
}

/** Writes an answer in the words of an API: as events of a stream while it comes, or whole. */
export interface AnswerWriter {
  start(head: AnswerHead): string;
  open(block: AnswerBlock): string;
  append(block: AnswerBlock, text: string): string;
  close(block: AnswerBlock): string;
  end(end: AnswerEnd): string;
  fail(failure: AnswerFailure): string;
  /** The answer in one piece, as JSON. */
  whole(head: AnswerHead, blocks: readonly AnswerBlock[], end: AnswerEnd): string;
}

/** Reasons for which an answer ends before it is complete. */
const CUT_REASONS: ReadonlySet<string | undefined> = new Set(['length', 'content_filter']);

const NO_USAGE: ChatUsage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };

type ContentDelta = Extract<ChatDelta, { text: string }>;

/**
 * Puts an answer together from the steps of chat completions: one block after the other, as the other APIs want it. Chat
 * completions may go on with one call while another is open; what comes for another block meanwhile is kept back until the
 * arguments of the open call are complete.
 */
export class AnswerAssembly {
  readonly #writer: AnswerWriter;
  readonly #blocks: AnswerBlock[] = [];
  #head: AnswerHead | undefined;
  #open: AnswerBlock | undefined;
  #openCall: number | undefined;
  #argumentsEnd = new ObjectEnd();
  readonly #closedCalls = new Set<number>();
  #kept: ContentDelta[] = [];
  #reason: string | undefined;
  #stop: string | undefined;
  #usage = NO_USAGE;
  #length = 0;

  constructor(writer: AnswerWriter) {
    this.#writer = writer;
  }

  /** Whether the engine has said how the answer ended. */
  get isFinished(): boolean {
    return this.#reason !== undefined;
  }

  /** Characters of the answer so far, which are kept until its end. */
  get length(): number {
    return this.#length;
  }

  /** Takes one step; answers what a stream's client is told of it. */
  take(delta: ChatDelta): string {
    switch (delta.kind) {
      case 'head':
        return this.#start(delta);
      case 'finish':
        this.#reason = delta.reason;
        this.#stop = delta.stop;
        return '';
      case 'usage':
        this.#usage = delta.usage;
        return '';
      case 'error':
        return '';
      default:
        this.#length += delta.text.length;
        // White space behind arguments that were complete.
        return delta.kind === 'call' && this.#closedCalls.has(delta.index) ? '' : this.#content(delta);
    }
  }

  /** The answer is complete; what a stream's client is told last. */
  end(): string {
    return this.#start(undefined) + this.#flush() + this.#writer.end(this.#outcome());
  }

  /** The whole answer, after `end`. */
  whole(): string {
    return this.#writer.whole(this.#head!, this.#blocks, this.#outcome());
  }

  /** The answer broke off. */
  fail(failure: AnswerFailure): string {
    if (this.#open !== undefined) this.#open.isCut = true;
    return this.#start(undefined) + this.#writer.fail(failure);
  }

  #start(head: Extract<ChatDelta, { kind: 'head' }> | undefined): string {
    if (this.#head !== undefined) return '';
    this.#head = { id: head?.id ?? randomUUID(), model: head?.model ?? '', created: head?.created ?? 0 };
    return this.#writer.start(this.#head);
  }

  #outcome(): AnswerEnd {
    const calls = this.#blocks.some(({ kind }) => kind === 'call');
    const given = this.#reason ?? 'stop';
    return { reason: given === 'stop' && calls ? 'tool_calls' : given, stop: this.#stop, usage: this.#usage };
  }

  #content(delta: ContentDelta): string {
    if (this.#kept.length > 0 && !this.#continues(delta)) {
      this.#kept.push(delta);
      return '';
    }
    const written = this.#continues(delta) ? this.#append(delta.text) : this.#next(delta);
    return this.#kept.length > 0 && this.#isComplete() ? written + this.#release() : written;
  }

  /** Goes on with another block, if the open one is complete. */
  #next(delta: ContentDelta): string {
    if (!this.#isComplete()) {
      this.#kept.push(delta);
      return '';
    }
    return this.#close() + this.#begin(delta) + this.#append(delta.text);
  }

  #continues(delta: ContentDelta): boolean {
    if (this.#open === undefined) return false;
    return delta.kind === 'call' ? this.#openCall === delta.index : this.#open.kind === delta.kind;
  }

  /** Only a call can be incomplete: its arguments are a JSON object. */
  #isComplete(): boolean {
    return this.#open?.kind !== 'call' || this.#argumentsEnd.isReached;
  }

  #begin(delta: ContentDelta): string {
    const { id, name, index } = delta.kind === 'call' ? delta : NO_CALL;
    const callId = id ?? `call_${this.#head?.id}_${this.#blocks.length}`;
    const block = { kind: delta.kind, index: this.#blocks.length, callId, name: name ?? '', text: '', isCut: false };
    this.#open = block;
    this.#openCall = delta.kind === 'call' ? index : undefined;
    this.#argumentsEnd = new ObjectEnd();
    this.#blocks.push(block);
    return this.#writer.open(block);
  }

  #append(text: string): string {
    const block = this.#open!;
    if (text === '') return '';
    block.text += text;
    if (block.kind === 'call') this.#argumentsEnd.read(text);
    return this.#writer.append(block, text);
  }

  /** `isLast`: nothing comes behind it. */
  #close(isLast = false): string {
    const block = this.#open;
    if (block !== undefined && isLast) block.isCut = CUT_REASONS.has(this.#reason);
    // Engines write nothing for a call without arguments; clients parse what is written.
    const none = block?.kind === 'call' && !block.isCut && block.text.trim() === '' ? this.#append('{}') : '';
    this.#open = undefined;
    if (this.#openCall !== undefined) this.#closedCalls.add(this.#openCall);
    this.#openCall = undefined;
    return block === undefined ? '' : none + this.#writer.close(block);
  }

  /** Takes up what was kept back, in the order in which it came. */
  #release(): string {
    const kept = this.#kept;
    this.#kept = [];
    return kept.map((delta) => this.#content(delta)).join('');
  }

  /** Nothing more comes: what was kept back follows, each call's pieces together. */
  #flush(): string {
    let written = this.#close(this.#kept.length === 0);
    while (this.#kept.length > 0) {
      const first = this.#kept[0]!;
      const own = this.#kept.filter((delta) => sameBlock(delta, first));
      this.#kept = this.#kept.filter((delta) => !sameBlock(delta, first));
      written += this.#begin(first);
      for (const { text } of own) written += this.#append(text);
      written += this.#close(this.#kept.length === 0);
    }
    return written;
  }
}

const NO_CALL = { id: undefined, name: undefined, index: undefined };

function sameBlock(one: ContentDelta, other: ContentDelta): boolean {
  return one.kind === other.kind && (one as CallDelta).index === (other as CallDelta).index;
}
