import type { AnswerSyntax } from './answer-syntax.js';
import type { ToolDefinition } from './messages.js';
import {
  type CallFormat,
  isOpenJson,
  jsonCalls,
  type ReadCall,
  readCalls,
  toolParameters,
} from './tool-call-formats.js';

/** A part of an answer, in the order in which the model wrote it. Texts come in pieces, calls whole. */
export type AnswerPart =
  | { readonly kind: 'content' | 'reasoning'; readonly text: string }
  | { readonly kind: 'call'; readonly call: ReadCall };

/** What the answer's first token belongs to. `anew`: it may begin with reasoning, or with a call. */
export type AnswerBeginning = 'anew' | 'reasoning' | 'content';

/** Reads an answer as it comes, in pieces of any size. */
export interface AnswerReader {
  /** The parts that are certain by now. */
  push(text: string): AnswerPart[];
  /** The rest, when nothing more comes. */
  end(): AnswerPart[];
}

/** @param tools Functions whose calls are read; without any, calls stay text. */
export function answerReader(
  syntax: AnswerSyntax,
  tools: readonly ToolDefinition[] | undefined,
  begins: AnswerBeginning,
): AnswerReader {
  return syntax.isHarmony ? new ChannelReader(tools ?? [], begins) : new TaggedReader(syntax, tools ?? [], begins);
}

/** Reads on until a step says that it needs more text. */
function readSteps(step: (parts: AnswerPart[]) => boolean): AnswerPart[] {
  const parts: AnswerPart[] = [];
  let goesOn = true;
  while (goesOn) {
    goesOn = step(parts);
  }
  return parts;
}

/** Calls without marks of their own: JSON that is the whole answer, as Llama 3 writes it, fenced or not. */
const BARE: Pick<CallFormat, 'readers'> = { readers: [jsonCalls] };
const FENCE = /^\s*```(?:json|tool_call|xml)?\s*|\s*```\s*$/g;
/** What such an answer begins with, without white space. */
const BARE_BEGINNINGS = ['{"name":"', '{"type":"function"', '{"function":', '{"arguments":', '{"parameters":'];

/**
 * Reads reasoning and calls between tags. What cannot be read as a call stays text. White space around calls and behind
 * the reasoning is dropped; every other character comes through.
 */
class TaggedReader implements AnswerReader {
  readonly #reasoning: { readonly open: string; readonly close: string } | undefined;
  readonly #formats: readonly CallFormat[];
  readonly #tools: ReturnType<typeof toolParameters>;
  #state: 'content' | 'reasoning' | 'call';
  /** Text that is not decided yet; in a call, what stands behind its opening tag. */
  #held = '';
  /** The call that is read, and the white space before it. */
  #format: CallFormat | undefined;
  #space = '';
  /** Where the next closing tag of the call is looked for. */
  #searched = 0;
  /** Whether white space that comes next is dropped. */
  #trims: boolean;
  /** Whether nothing but white space has come. */
  #isFirst: boolean;

  constructor({ reasoning, calls }: AnswerSyntax, tools: readonly ToolDefinition[], begins: AnswerBeginning) {
    this.#reasoning =
      reasoning === undefined ? undefined : { open: reasoning.open.trim(), close: reasoning.close.trim() };
    this.#tools = toolParameters(tools);
    this.#formats = tools.length === 0 ? [] : calls;
    this.#state = begins === 'reasoning' && reasoning !== undefined ? 'reasoning' : 'content';
    this.#trims = this.#state === 'reasoning';
    this.#isFirst = begins !== 'content';
  }

  push(text: string): AnswerPart[] {
    this.#held += text;
    return this.#read(false);
  }

  end(): AnswerPart[] {
    return this.#read(true);
  }

  #read(isEnd: boolean): AnswerPart[] {
    return readSteps((parts) => {
      if (this.#state === 'reasoning') {
        return this.#readReasoning(parts, isEnd);
      }
      return this.#state === 'call' ? this.#readCall(parts, isEnd) : this.#readContent(parts, isEnd);
    });
  }

  #readReasoning(parts: AnswerPart[], isEnd: boolean): boolean {
    const { close } = this.#reasoning!;
    this.#trimHeld();
    const end = this.#held.indexOf(close);
    if (end < 0) {
      this.#passOn(parts, 'reasoning', isEnd ? this.#held.length : safeLength(this.#held, [close], true));
      return false;
    }
    const text = this.#held.slice(0, end).trimEnd();
    this.#held = this.#held.slice(end + close.length);
    push(parts, 'reasoning', text);
    this.#state = 'content';
    this.#trims = true;
    return true;
  }

  #readContent(parts: AnswerPart[], isEnd: boolean): boolean {
    this.#trimHeld();
    const bare = this.#isFirst && this.#tools.size > 0 ? this.#bareCall() : 'no';
    if (bare === 'possible' && !isEnd) {
      return false;
    }
    if (bare !== 'no' && isEnd) {
      const calls = readCalls(BARE, this.#held.replace(FENCE, ''), this.#tools);
      if (calls !== undefined) {
        this.#held = '';
        parts.push(...calls.map((call) => ({ kind: 'call', call }) as const));
        return false;
      }
    }
    const opensReasoning = this.#isFirst && this.#reasoning !== undefined;
    const marks = [...(opensReasoning ? [this.#reasoning!.open] : []), ...this.#formats.map(({ open }) => open)];
    const { at, mark } = firstOf(this.#held, marks);
    if (opensReasoning && mark === this.#reasoning!.open && this.#held.slice(0, at).trim() === '') {
      this.#held = this.#held.slice(at + mark.length);
      this.#state = 'reasoning';
      this.#trims = true;
      this.#isFirst = false;
      return true;
    }
    if (mark !== undefined && mark === this.#reasoning?.open && opensReasoning) {
      // Reasoning stands first or not at all.
      this.#passOn(parts, 'content', at + mark.length);
      return true;
    }
    if (mark === undefined) {
      const keepsSpace = this.#formats.length > 0 || (opensReasoning && this.#held.trim() === '');
      this.#passOn(parts, 'content', isEnd ? this.#held.length : safeLength(this.#held, marks, keepsSpace));
      return false;
    }
    const before = this.#held.slice(0, at);
    const text = before.trimEnd();
    this.#space = before.slice(text.length);
    this.#format = this.#formats.find(({ open }) => open === mark);
    this.#held = this.#held.slice(at + mark.length);
    this.#searched = 0;
    this.#state = 'call';
    push(parts, 'content', text);
    this.#isFirst &&= text === '';
    return true;
  }

  #readCall(parts: AnswerPart[], isEnd: boolean): boolean {
    const { open, close } = this.#format!;
    let isBroken = isEnd;
    if (close !== undefined) {
      for (let end = this.#held.indexOf(close, this.#searched); end >= 0; end = this.#held.indexOf(close, end + 1)) {
        const body = this.#held.slice(0, end);
        if (this.#endCall(parts, body, end + close.length)) {
          return true;
        }
        if (!isOpenJson(body)) {
          isBroken = true;
          break;
        }
      }
      this.#searched = Math.max(0, this.#held.length - close.length + 1);
    }
    if (!isBroken) {
      return false;
    }
    if (isEnd && this.#endCall(parts, withoutPartOf(this.#held, close), this.#held.length)) {
      return true;
    }
    // It is text, with its tag; what follows may hold calls.
    push(parts, 'content', this.#space + open);
    this.#state = 'content';
    this.#trims = false;
    this.#isFirst = false;
    return true;
  }

  /** @returns Whether the body was read as calls. */
  #endCall(parts: AnswerPart[], body: string, length: number): boolean {
    const calls = readCalls(this.#format!, body, this.#tools);
    if (calls === undefined) {
      return false;
    }
    parts.push(...calls.map((call) => ({ kind: 'call', call }) as const));
    this.#held = this.#held.slice(length);
    this.#state = 'content';
    this.#trims = true;
    this.#isFirst = false;
    return true;
  }

  #bareCall(): 'possible' | 'no' {
    const text = this.#held.replace(/^\s*(?:`{1,2}$|```(?:[a-z_]*$|(?:json|tool_call|xml)?\s*))?/, '');
    const begin = text.replace(/\s+/g, '').replace(/^\[/, '');
    const name = /^\{"name":"([^"]*)"/.exec(begin)?.[1];
    if (name !== undefined) {
      return this.#tools.has(name) ? 'possible' : 'no';
    }
    const isFenced = begin === '' && this.#held.trim() !== '';
    const isBegun = begin !== '' && BARE_BEGINNINGS.some((each) => each.startsWith(begin) || begin.startsWith(each));
    return isFenced || isBegun ? 'possible' : 'no';
  }

  #trimHeld(): void {
    if (this.#trims) {
      this.#held = this.#held.trimStart();
      this.#trims = this.#held === '';
    }
  }

  #passOn(parts: AnswerPart[], kind: 'content' | 'reasoning', length: number): void {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    if (kind === 'content' && text.trim() !== '') {
      this.#isFirst = false;
    }
    push(parts, kind, text);
  }
}

const CHANNEL_ENDS = ['<|end|>', '<|return|>', '<|call|>', '<|start|>', '<|channel|>'];
const MESSAGE = '<|message|>';

/** Reads the channels of gpt-oss: `analysis` is reasoning, what names a function is a call, all else is content. */
class ChannelReader implements AnswerReader {
  readonly #tools: ReturnType<typeof toolParameters>;
  #state: 'header' | 'content' | 'reasoning' | 'call';
  #held = '';
  #called = '';

  constructor(tools: readonly ToolDefinition[], begins: AnswerBeginning) {
    this.#tools = toolParameters(tools);
    this.#state = begins === 'anew' ? 'header' : begins;
  }

  push(text: string): AnswerPart[] {
    this.#held += text;
    return this.#read(false);
  }

  end(): AnswerPart[] {
    return this.#read(true);
  }

  #read(isEnd: boolean): AnswerPart[] {
    return readSteps((parts) => (this.#state === 'header' ? this.#readHeader(isEnd) : this.#readBody(parts, isEnd)));
  }

  #readHeader(isEnd: boolean): boolean {
    const end = this.#held.indexOf(MESSAGE);
    if (end >= 0) {
      const header = this.#held.slice(0, end);
      const called = /\bto=(?:functions\.)?([\w.-]+)/.exec(header)?.[1];
      this.#held = this.#held.slice(end + MESSAGE.length);
      this.#called = called ?? '';
      const isCall = called !== undefined && this.#tools.has(called);
      this.#state = isCall ? 'call' : /<\|channel\|>\s*analysis/.test(header) ? 'reasoning' : 'content';
      return true;
    }
    const isHeader = /^\s*(?:<|$|to=|assistant)/.test(this.#held) && !isEnd;
    if (!isHeader) {
      // No channel was named: all of it is content.
      const rest = this.#held.replace(/^\s*<\|(?:start\|>assistant|channel\|>)[^<]*$/, '');
      this.#held = rest;
      this.#state = 'content';
      return rest !== '';
    }
    return false;
  }

  #readBody(parts: AnswerPart[], isEnd: boolean): boolean {
    const { at, mark } = firstOf(this.#held, CHANNEL_ENDS);
    const length = mark !== undefined ? at : isEnd ? this.#held.length : safeLength(this.#held, CHANNEL_ENDS, false);
    if (this.#state === 'call') {
      if (mark === undefined && !isEnd) {
        return false;
      }
      const body = this.#held.slice(0, length);
      const calls = readCalls(
        BARE,
        `{"name": ${JSON.stringify(this.#called)}, "arguments": ${body.trim() || '{}'}}`,
        this.#tools,
      );
      if (calls === undefined) {
        push(parts, 'content', body);
      } else {
        parts.push({ kind: 'call', call: calls[0]! });
      }
    } else {
      push(parts, this.#state as 'content' | 'reasoning', this.#held.slice(0, length));
    }
    this.#held = this.#held.slice(length);
    if (mark === undefined) {
      return false;
    }
    // A channel follows at once, or a message with its role.
    this.#held = this.#held.slice(mark === '<|channel|>' || mark === '<|start|>' ? 0 : mark.length);
    this.#state = 'header';
    return this.#held !== '';
  }
}

function push(parts: AnswerPart[], kind: 'content' | 'reasoning', text: string): void {
  if (text !== '') {
    parts.push({ kind, text });
  }
}

/** The first of several marks in a text, the longest where several begin. */
function firstOf(text: string, marks: readonly string[]): { readonly at: number; readonly mark: string | undefined } {
  let at = text.length;
  let mark: string | undefined;
  for (const each of marks) {
    const place = text.indexOf(each);
    if (place >= 0 && (place < at || (place === at && each.length > (mark?.length ?? 0)))) {
      at = place;
      mark = each;
    }
  }
  return { at, mark };
}

/** How much of a text is no beginning of a mark, nor white space before one where that is kept. */
function safeLength(text: string, marks: readonly string[], keepsSpace: boolean): number {
  const longest = Math.max(0, ...marks.map((mark) => mark.length - 1));
  let length = text.length;
  for (let from = Math.max(0, text.length - longest); from < text.length; from++) {
    const rest = text.slice(from);
    if (marks.some((mark) => mark.startsWith(rest))) {
      length = from;
      break;
    }
  }
  return keepsSpace ? text.slice(0, length).trimEnd().length : length;
}

/** A text without the beginning of a closing tag at its end. */
function withoutPartOf(text: string, close: string | undefined): string {
  return close === undefined ? text : text.slice(0, safeLength(text, [close], true));
}
