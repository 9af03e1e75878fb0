import { type AnswerFailure, readFailure } from './answer-failure.js';
import { isRecord } from './document.js';

const QUOTE = 0x22;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Why an answer ended, in OpenAI's words. */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter';

/** A step of an answer: a piece of it, or how it ended. `choice`: which of the answers that were asked for. */
export type AnswerStep =
  | TextStep
  | CallStep
  /** Something was generated that no one translates. */
  | { readonly kind: 'other' }
  | {
      readonly kind: 'finish';
      readonly choice: number;
      /** `undefined` for an end that is an error, or that is not known. */
      readonly reason: FinishReason | undefined;
      /** As the engine writes it. */
      readonly given: string;
      /** The stop string that was met, where the engine names it. */
      readonly stop: string | undefined;
    }
  | { readonly kind: 'failure'; readonly failure: AnswerFailure };

export interface TextStep {
  readonly kind: 'reasoning' | 'text' | 'refusal';
  readonly choice: number;
  readonly text: string;
}

export interface CallStep {
  readonly kind: 'call';
  readonly choice: number;
  /** Which call of the choice, in the order in which they began. */
  readonly index: number;
  readonly id: string | undefined;
  readonly name: string | undefined;
  /** The next piece of its arguments. */
  readonly text: string;
}

type JsonObject = Readonly<Record<string, unknown>>;

/** Reads answers of any API, whole ones and events of streams, from JSON. One reader reads one answer. */
export class AnswerStepReader {
  /** By choice. */
  readonly #calls = new Map<number, ToolCalls>();

  /** The steps of one event, or of one whole answer. O(value). */
  *read(value: unknown): Generator<AnswerStep> {
    if (!isRecord(value)) return;
    const { choices, type } = value;
    if (Array.isArray(choices))
      for (const choice of choices) {
        if (isRecord(choice)) yield* this.#choice(choice);
      }
    else if (typeof type === 'string') yield* typedSteps(type, value);
    else yield* outputSteps(value['output']);
    const failure = readFailure(value);
    if (failure !== undefined) yield { kind: 'failure', failure };
  }

  *#choice(given: JsonObject): Generator<AnswerStep> {
    const { index, delta, message, text, finish_reason: reason, stop_reason, matched_stop } = given;
    const choice = typeof index === 'number' ? index : 0;
    if (typeof text === 'string' && text !== '') yield { kind: 'other' };
    if (isRecord(delta)) yield* this.#message(choice, delta, false);
    else if (isRecord(message)) yield* this.#message(choice, message, true);
    if (typeof reason !== 'string' || reason === '') return;
    // vLLM and SGLang name the stop string that was met.
    const stop = [stop_reason, matched_stop].find((name) => typeof name === 'string');
    yield { kind: 'finish', choice, reason: FINISH_REASONS.get(reason.toLowerCase()), given: reason, stop };
  }

  *#message(choice: number, message: JsonObject, isWhole: boolean): Generator<AnswerStep> {
    const { content, refusal, tool_calls: calls, function_call: call, role: _, ...others } = message;
    yield* textStep('reasoning', choice, reasoningOf(message));
    if (Array.isArray(content)) for (const part of content) yield* partSteps(choice, part);
    else yield* textStep('text', choice, content);
    yield* textStep('refusal', choice, refusal);
    if (Array.isArray(calls) && calls.length > 0) {
      // Calls that come together without numbers are told apart by their order.
      for (const [place, each] of calls.entries())
        yield this.#callsOf(choice).read(pieceOf(each, calls.length > 1 ? place : undefined), isWhole);
    } else if (isRecord(call)) yield this.#callsOf(choice).read(pieceOf({ function: call }, undefined), isWhole);
    else if (Object.values(others).some(isSaid)) yield { kind: 'other' };
  }

  #callsOf(choice: number): ToolCalls {
    const calls = this.#calls.get(choice) ?? new ToolCalls(choice);
    this.#calls.set(choice, calls);
    return calls;
  }
}

/** Engines' names of how an answer ended, in lower case. All others are errors. */
const FINISH_REASONS: ReadonlyMap<string, FinishReason> = new Map(
  (
    [
      ['stop', ['stop', 'stop_sequence', 'eos', 'eos_token', 'end_turn', 'complete', 'completed']],
      ['length', ['length', 'max_tokens', 'max_output_tokens', 'max_output', 'model_length', 'repetition']],
      ['tool_calls', ['tool_calls', 'tool_call', 'tool_use', 'function_call']],
      [
        'content_filter',
        ['content_filter', 'safety', 'recitation', 'refusal', 'sensitive', 'blocklist', 'prohibited_content'],
      ],
    ] as const
  ).flatMap(([reason, names]) => names.map((name) => [name, reason] as const)),
);

/** Engines use different names, some of them two at a time, one of which may be empty. */
function reasoningOf({ reasoning_content, reasoning, reasoning_text, reasoning_details }: JsonObject): unknown {
  const named = [reasoning_content, reasoning, reasoning_text].find((each) => typeof each === 'string' && each !== '');
  if (named !== undefined || !Array.isArray(reasoning_details)) return named;
  return reasoning_details
    .map((each) => (isRecord(each) && typeof each['text'] === 'string' ? each['text'] : ''))
    .join('');
}

function isSaid(value: unknown): boolean {
  return typeof value === 'object' && value !== null ? Object.keys(value).length > 0 : value !== null && value !== '';
}

function* textStep(kind: TextStep['kind'], choice: number, text: unknown): Generator<TextStep> {
  if (typeof text === 'string' && text !== '') yield { kind, choice, text };
}

/** Mistral's models that think write content in parts, some of which hold thoughts: a text, or parts of text. */
function* partSteps(choice: number, part: unknown): Generator<TextStep> {
  if (!isRecord(part)) return;
  const { type, text, thinking } = part;
  if (type !== 'thinking') yield* textStep('text', choice, text);
  else if (Array.isArray(thinking)) {
    for (const thought of thinking) if (isRecord(thought)) yield* textStep('reasoning', choice, thought['text']);
  } else yield* textStep('reasoning', choice, thinking);
}

/** Messages and Responses: what is generated, of which only the text is read, and the end. */
function* typedSteps(type: string, value: JsonObject): Generator<AnswerStep> {
  const { delta } = value;
  if (type === 'message') {
    if (Array.isArray(value['content'])) for (const part of value['content']) yield* partSteps(0, part);
    yield* endStep(value['stop_reason']);
  } else if (type === 'content_block_delta') {
    const text = isRecord(delta) ? delta['text'] : undefined;
    if (typeof text === 'string' && text !== '') yield { kind: 'text', choice: 0, text };
    else yield { kind: 'other' };
  } else if (type === 'message_delta') yield* endStep(isRecord(delta) ? delta['stop_reason'] : undefined);
  else if (type === 'response.output_text.delta') yield* textStep('text', 0, delta);
  else if (/^response\..*\.delta$/.test(type)) yield { kind: 'other' };
  else if (type === 'message_stop' || type === 'response.completed' || type === 'response.incomplete')
    yield* endStep(type);
}

/** A whole answer of Responses. */
function* outputSteps(output: unknown): Generator<AnswerStep> {
  if (!Array.isArray(output)) return;
  for (const item of output) {
    if (!isRecord(item) || item['type'] !== 'message' || !Array.isArray(item['content'])) continue;
    for (const part of item['content']) yield* partSteps(0, part);
  }
}

/** These APIs name errors otherwise: every reason is an end. */
function* endStep(given: unknown): Generator<AnswerStep> {
  if (typeof given === 'string') yield { kind: 'finish', choice: 0, reason: 'stop', given, stop: undefined };
}

/** What one element of `tool_calls` says. */
interface CallPiece {
  /** The engine's number of the call. */
  readonly number: number | undefined;
  readonly id: string | undefined;
  readonly name: string | undefined;
  readonly text: string;
}

interface KnownCall {
  readonly index: number;
  /** What it began with. */
  readonly number: number | undefined;
  id: string | undefined;
  name: string | undefined;
  readonly end: ObjectEnd;
}

/**
 * Tells the tool calls of one choice apart. Engines number them, or give each an id, or both, or neither; some number
 * all of them 0, and some tell the id or the name later. O(piece).
 */
class ToolCalls {
  readonly #choice: number;
  readonly #byId = new Map<string, KnownCall>();
  readonly #byNumber = new Map<number, KnownCall>();
  #count = 0;
  #last: KnownCall | undefined;

  constructor(choice: number) {
    this.#choice = choice;
  }

  /** @param isWhole Whether the call is told in one piece. */
  read(piece: CallPiece, isWhole: boolean): CallStep {
    const { number, id, name, text } = piece;
    const found = isWhole ? undefined : this.#find(piece);
    const call = found ?? { index: this.#count++, number, id, name, end: new ObjectEnd() };
    this.#last = call;
    call.id ??= id;
    call.name ??= name;
    if (id !== undefined) this.#byId.set(id, call);
    if (number !== undefined) this.#byNumber.set(number, call);
    call.end.read(text);
    return { kind: 'call', choice: this.#choice, index: call.index, id: call.id, name: call.name, text };
  }

  /** The call that a piece continues. */
  #find(piece: CallPiece): KnownCall | undefined {
    const { number, id } = piece;
    const named = id === undefined ? undefined : this.#byId.get(id);
    const isOfNumber = number === undefined || named?.number === undefined || named.number === number;
    if (named !== undefined && isOfNumber) return named;
    const candidate = number === undefined ? this.#last : this.#byNumber.get(number);
    return candidate !== undefined && continues(candidate, piece) ? candidate : undefined;
  }
}

/** Whether a piece may belong to a call: it says nothing else of the call than what is known, and the call goes on. */
function continues({ id, name, end }: KnownCall, piece: CallPiece): boolean {
  const isNamed = piece.name !== undefined && name !== undefined;
  if (isNamed && (piece.name !== name || end.isReached)) return false;
  // Some engines draw a new id for every piece; a new call has a name.
  if (piece.id !== undefined && id !== undefined && piece.id !== id) return piece.name === undefined && !end.isReached;
  return true;
}

function pieceOf(call: unknown, place: number | undefined): CallPiece {
  const { index = place, id, function: named, custom } = isRecord(call) ? call : {};
  const given = isRecord(named) ? named : isRecord(custom) ? custom : {};
  const { name } = given;
  const number = typeof index === 'string' ? Number.parseInt(index, 10) : index;
  return {
    number: Number.isSafeInteger(number) ? (number as number) : undefined,
    id: typeof id === 'string' && id !== '' ? id : undefined,
    name: typeof name === 'string' && name !== '' ? name : undefined,
    text: argumentsOf(given['arguments'] ?? given['input']),
  };
}

/** Some engines write the arguments as an object, not as its JSON. */
function argumentsOf(given: unknown): string {
  if (typeof given === 'string') return given;
  return given === undefined || given === null ? '' : JSON.stringify(given);
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
