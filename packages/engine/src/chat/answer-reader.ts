import type { AnswerSyntax } from './answer-syntax.js';
import type { ToolDefinition } from './messages.js';
import {
  type CallFormat,
  isOpenJson,
  jsonCalls,
  type ReadCall,
  readCalls,
  type ToolParameters,
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

/** What has come of the answer and was not read yet. */
interface Incoming {
  text: string;
  isEnd: boolean;
}

/** Yields parts, and `undefined` where it needs more text; that it does not do at the end of the answer. */
type Reading<Result = void> = Generator<AnswerPart | undefined, Result, void>;

/**
 * What cannot be read as a call stays text. White space around calls and behind the reasoning is dropped; every other
 * character comes through.
 *
 * @param tools Functions whose calls are read; without any, calls stay text.
 */
export function answerReader(
  syntax: AnswerSyntax,
  tools: readonly ToolDefinition[] = [],
  begins: AnswerBeginning,
): AnswerReader {
  const incoming: Incoming = { text: '', isEnd: false };
  const read = syntax.isHarmony ? readChannels : readTagged;
  const reading = read(incoming, { syntax, tools: toolParameters(tools), begins });
  const partsSoFar = (): AnswerPart[] => {
    const parts: AnswerPart[] = [];
    for (let part = reading.next().value; part !== undefined; part = reading.next().value) {
      if (part.kind === 'call' || part.text !== '') parts.push(part);
    }
    return parts;
  };
  return {
    push(text) {
      incoming.text += text;
      return partsSoFar();
    },
    end() {
      incoming.isEnd = true;
      return partsSoFar();
    },
  };
}

interface AnswerForm {
  readonly syntax: AnswerSyntax;
  readonly tools: ToolParameters;
  readonly begins: AnswerBeginning;
}

/** Reasoning and calls between tags. */
function* readTagged(incoming: Incoming, { syntax, tools, begins }: AnswerForm): Reading {
  const [open, close] = [syntax.reasoning?.open.trim(), syntax.reasoning?.close.trim()];
  const hasOpened = begins === 'anew' && open !== undefined && (yield* takeFirst(incoming, open));
  if (close !== undefined && (hasOpened || begins === 'reasoning')) {
    yield* skipSpace(incoming);
    yield* passUntil(incoming, 'reasoning', [close], true);
    yield* skipSpace(incoming);
  }
  if (begins !== 'content' && tools.size > 0 && (yield* readBareCalls(incoming, tools))) return;
  const formats = tools.size === 0 ? [] : syntax.calls;
  const opens = formats.map((format) => format.open);
  for (;;) {
    const found = yield* passUntil(incoming, 'content', opens, formats.length > 0);
    if (found === undefined) return;
    const calls = yield* readCallsOf(incoming, formats[opens.indexOf(found.mark)]!, tools);
    if (calls === undefined) {
      // It is text, with its tag; what follows may hold calls.
      yield { kind: 'content', text: found.space + found.mark };
    } else {
      yield* asParts(calls);
      yield* skipSpace(incoming);
    }
  }
}

/** Whether an answer begins with a text, which is dropped then with the white space before it. */
function* takeFirst(incoming: Incoming, text: string): Reading<boolean> {
  for (;;) {
    const begin = incoming.text.trimStart();
    if (begin.startsWith(text)) {
      incoming.text = begin.slice(text.length);
      return true;
    }
    if (incoming.isEnd || !text.startsWith(begin)) return false;
    yield;
  }
}

function* skipSpace(incoming: Incoming): Reading {
  for (incoming.text = incoming.text.trimStart(); incoming.text === '' && !incoming.isEnd; ) {
    yield;
    incoming.text = incoming.text.trimStart();
  }
}

/**
 * Passes on what stands before the first of several marks, and takes the mark.
 *
 * @param keepsSpace Do not pass on white space before a mark.
 * @returns `undefined` at the end of the answer.
 */
function* passUntil(
  incoming: Incoming,
  kind: 'content' | 'reasoning',
  marks: readonly string[],
  keepsSpace: boolean,
): Reading<{ readonly mark: string; readonly space: string } | undefined> {
  for (;;) {
    const { at, mark } = firstOf(incoming.text, marks);
    const isLast = mark === undefined && incoming.isEnd;
    const before = incoming.text.slice(0, mark === undefined && !isLast ? safeLength(incoming.text, marks) : at);
    const text = keepsSpace && !isLast ? before.trimEnd() : before;
    incoming.text = incoming.text.slice(mark === undefined ? text.length : at + mark.length);
    yield { kind, text };
    if (mark !== undefined) return { mark, space: before.slice(text.length) };
    if (isLast) return undefined;
    yield;
  }
}

/** Calls without marks of their own: JSON that is the whole answer, as Llama 3 writes it, fenced or not. */
const BARE: Pick<CallFormat, 'readers'> = { readers: [jsonCalls] };
const FENCE = /^\s*```(?:json|tool_call|xml)?\s*|\s*```\s*$/g;
/** What such an answer begins with, without white space. */
const BARE_BEGINNINGS = ['{"name":"', '{"type":"function"', '{"function":', '{"arguments":', '{"parameters":'];
/** Characters of an answer that say whether it begins so. */
const BARE_BEGINNING_LENGTH = 256;

function* readBareCalls(incoming: Incoming, tools: ToolParameters): Reading<boolean> {
  while (!incoming.isEnd) {
    if (!mayBeBareCall(incoming.text.slice(0, BARE_BEGINNING_LENGTH), tools)) return false;
    yield;
  }
  const calls = readCalls(BARE, incoming.text.replace(FENCE, ''), tools);
  if (calls !== undefined) {
    yield* asParts(calls);
    incoming.text = '';
  }
  return calls !== undefined;
}

function mayBeBareCall(beginning: string, tools: ToolParameters): boolean {
  const text = beginning.replace(/^\s*(?:`{1,2}$|```(?:[a-z_]*$|(?:json|tool_call|xml)?\s*))?/, '');
  const begin = text.replace(/\s+/g, '').replace(/^\[/, '');
  const name = /^\{"name":"([^"]*)"/.exec(begin)?.[1];
  if (name !== undefined) return tools.has(name);
  return begin === ''
    ? beginning.trim() !== ''
    : BARE_BEGINNINGS.some((each) => each.startsWith(begin) || begin.startsWith(each));
}

/** The calls behind an opening tag, and their closing tag; `undefined`, and nothing is taken, where there are none. */
function* readCallsOf(
  incoming: Incoming,
  format: CallFormat,
  tools: ToolParameters,
): Reading<readonly ReadCall[] | undefined> {
  const { close } = format;
  for (let from = 0; ; ) {
    const end = close === undefined ? -1 : incoming.text.indexOf(close, from);
    if (end < 0 && !incoming.isEnd) {
      from = Math.max(0, incoming.text.length - (close?.length ?? 0) + 1);
      yield;
      continue;
    }
    // At the end of the answer, the closing tag may be missing, or a part of it.
    const lastLength = close === undefined ? incoming.text.length : safeLength(incoming.text, [close]);
    const body = incoming.text.slice(0, end < 0 ? lastLength : end);
    const calls = readCalls(format, body, tools);
    if (calls !== undefined) {
      incoming.text = end < 0 ? '' : incoming.text.slice(end + close!.length);
      return calls;
    }
    if (end < 0 || !isOpenJson(body)) return undefined;
    from = end + 1;
  }
}

const MESSAGE = '<|message|>';
const CHANNEL_ENDS = ['<|end|>', '<|return|>', '<|call|>', '<|start|>', '<|channel|>'];

/** The channels of gpt-oss: `analysis` is reasoning, one that names a function is a call, all else is content. */
function* readChannels(incoming: Incoming, { tools, begins }: AnswerForm): Reading {
  let header = begins === 'anew' ? yield* readHeader(incoming) : begins;
  for (;;) {
    let mark: string | undefined;
    if (typeof header === 'string') {
      mark = (yield* passUntil(incoming, header, CHANNEL_ENDS, false))?.mark;
    } else {
      while (firstOf(incoming.text, CHANNEL_ENDS).mark === undefined && !incoming.isEnd) yield;
      const { at, mark: end = '' } = firstOf(incoming.text, CHANNEL_ENDS);
      const body = incoming.text.slice(0, at);
      incoming.text = incoming.text.slice(at + end.length);
      mark = end || undefined;
      const call = `{"name": ${JSON.stringify(header.called)}, "arguments": ${body.trim() || '{}'}}`;
      const calls = readCalls(BARE, call, tools);
      yield* calls === undefined ? [{ kind: 'content', text: body } as const] : asParts(calls);
    }
    if (mark === undefined) return;
    // A channel follows at once, or a message with its role.
    incoming.text = (mark === '<|channel|>' || mark === '<|start|>' ? mark : '') + incoming.text;
    header = yield* readHeader(incoming);
  }
}

/** What a message's header says of the text behind it. */
function* readHeader(incoming: Incoming): Reading<'content' | 'reasoning' | { readonly called: string }> {
  while (!incoming.text.includes(MESSAGE)) {
    if (incoming.isEnd || !/^\s*(?:<|$|to=|assistant)/.test(incoming.text)) {
      // No channel was named: all of it is content.
      incoming.text = incoming.text.replace(/^\s*<\|(?:start\|>assistant|channel\|>)[^<]*$/, '');
      return 'content';
    }
    yield;
  }
  const end = incoming.text.indexOf(MESSAGE);
  const header = incoming.text.slice(0, end);
  incoming.text = incoming.text.slice(end + MESSAGE.length);
  const called = /\bto=(?:functions\.)?([\w.-]+)/.exec(header)?.[1];
  return called !== undefined ? { called } : /<\|channel\|>\s*analysis/.test(header) ? 'reasoning' : 'content';
}

function asParts(calls: readonly ReadCall[]): AnswerPart[] {
  return calls.map((call) => ({ kind: 'call', call }));
}

/** The first of several marks in a text, the longest where several begin; `at` is the text's end where none is. */
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

/** How much of a text is no beginning of a mark. */
function safeLength(text: string, marks: readonly string[]): number {
  const longest = Math.max(0, ...marks.map((mark) => mark.length - 1));
  for (let from = Math.max(0, text.length - longest); from < text.length; from++) {
    if (marks.some((mark) => mark.startsWith(text.slice(from)))) return from;
  }
  return text.length;
}
