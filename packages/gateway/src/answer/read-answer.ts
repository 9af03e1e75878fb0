import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorCode } from '@warmpath/core';
import {
  type AnswerStep,
  AnswerStepReader,
  answerHash,
  bodyStart,
  type CallStep,
  type LabelMap,
  readTokenCounts,
  SseReader,
  type TokenCounts,
} from '@warmpath/core/internal';
import { isStreamHead } from '../apis/prompt-apis.js';
import { isObject } from '../json/json-scanner.js';
import type { Usage } from '../memory/served-histories.js';

/** Bytes of an event or a response body; longer ones are not parsed. */
const MAX_READ_BYTES = 1_048_576;

const OPEN_BRACE = 0x7b;
/** With what the lines of a stream begin: `data`, `event`, `error`, `id`, `retry`, or a comment. */
const EVENT_STARTS: ReadonlySet<number> = new Set(Buffer.from('deir:'));

/** Estimate for an answer in one piece. */
const BYTES_PER_TOKEN = 4;

/** What an event has that says more than the next token. */
const NEWS =
  /"(?:usage|timings|error|detail)"|"finish_reason": ?"|"(?:type|object)": ?"(?:error|message_(?:delta|stop)|response\.(?:completed|incomplete|failed))"|^\[DONE\]/;
const DONE = '[DONE]';

/** The results of reading a response. */
export type SniffedAnswer = Readonly<
  Pick<
    ResponseSniffer,
    'answers' | 'usage' | 'completionTokens' | 'estimatedTokens' | 'firstContentAt' | 'prefilled' | 'failure'
  >
>;

/**
 * Reads a response after it was relayed: the engine's counts, the time of the first content, and whether it is an
 * answer at all. Cannot change or delay the response. Holds one event of a stream, or one body, of at most 1 MiB. Does
 * not read compressed responses, or content that is neither JSON nor events. Never throws: an error ends the reading.
 */
export class ResponseSniffer {
  readonly #now: () => number;
  readonly #answer: AnswerReader | undefined;
  readonly #steps = new AnswerStepReader();
  #mode: 'unknown' | 'json' | 'stream' | 'blind' = 'blind';
  /** What a body is read as that begins with a brace. */
  #braceMode: 'json' | 'blind' = 'blind';
  #body: Buffer[] = [];
  #bodyBytes = 0;
  #events: SseReader | undefined;
  /** What the engine counted, each count as it last reported it. */
  #counts: TokenCounts = {};
  /** Whether generated content came, so that the whole prompt is prefilled. */
  prefilled = false;
  /** When a stream's first content came, on the clock of `now`; `undefined` for a response in one piece. */
  firstContentAt: number | undefined;
  #estimatedTokens = 0;
  /** How a stream ended. */
  #ending: 'none' | 'cut' | 'finished' | 'failed' = 'none';
  /** Whether an event came that could not be read. */
  #hasUnknown = false;

  /**
   * @param now The monotonic clock, in milliseconds.
   * @param readsAnswer Whether `answers` is wanted; it costs parsing every event.
   * @param labels Labels in the answer that its client gets as its own.
   */
  constructor(now: () => number, readsAnswer = false, labels?: LabelMap) {
    this.#now = now;
    this.#answer = readsAnswer ? new AnswerReader(labels) : undefined;
  }

  /** Tokens of the prompt; `undefined` where the engine did not count them. */
  get usage(): Usage | undefined {
    const { promptTokens, cachedTokens, cacheWriteTokens, hourWriteTokens } = this.#counts;
    return promptTokens === undefined ? undefined : { promptTokens, cachedTokens, cacheWriteTokens, hourWriteTokens };
  }

  /** Tokens of the answer. */
  get completionTokens(): number | undefined {
    return this.#counts.completionTokens;
  }

  /** Hashes of the model's answers (`answerHash`), once the response is complete. */
  get answers(): readonly string[] {
    return this.#answer?.hashes() ?? [];
  }

  /** The error that a complete response is, whatever its status; `undefined` for an answer. */
  get failure(): ErrorCode | undefined {
    if (this.#ending === 'failed') return 'WARMPATH_UPSTREAM_ERROR';
    return this.#ending === 'cut' ? 'WARMPATH_UPSTREAM_CUT' : undefined;
  }

  /** Estimated tokens of the answer: one an event, because engines send a stream's tokens one by one. */
  get estimatedTokens(): number {
    return Math.ceil(this.#estimatedTokens);
  }

  /** Whether data is read: not before `head`, nor after `end`. */
  get isReading(): boolean {
    return this.#mode !== 'blind';
  }

  /** Whether the answer has begun, as far as is known: what is not read may be a part of it. */
  get hasBegun(): boolean {
    return this.prefilled || this.#hasUnknown || !this.isReading;
  }

  head(status: number, headers: IncomingHttpHeaders): void {
    const encoding = headers['content-encoding'];
    if (status !== 200 || (encoding !== undefined && encoding !== 'identity')) return;
    const isJson = /^application\/json\b/i.test(headers['content-type'] ?? '');
    this.#mode = 'unknown';
    this.#braceMode = isJson || isStreamHead({ status, headers }) ? 'json' : 'blind';
  }

  data(chunk: Buffer): void {
    try {
      const bytes = this.#mode === 'unknown' ? this.#begin(chunk) : chunk;
      if (this.#mode === 'stream') this.#events!.read(bytes);
      else if (this.#mode === 'json') this.#keep(bytes);
    } catch {
      this.#mode = 'blind';
    }
  }

  /** The response is complete. */
  end(): void {
    try {
      if (this.#mode === 'stream') {
        this.#events!.end();
        if (this.prefilled && this.#ending === 'none') this.#ending = 'cut';
      } else if (this.#body.length > 0) this.#readBody(Buffer.concat(this.#body).toString('utf8'));
    } catch {
      // The results so far stay.
    }
    this.#mode = 'blind';
  }

  /** The content type may be wrong: the first byte tells a stream from an object. */
  #begin(chunk: Buffer): Buffer {
    const bytes = chunk.subarray(bodyStart(chunk));
    if (bytes.length === 0) return bytes;
    if (bytes[0] === OPEN_BRACE) this.#mode = this.#braceMode;
    else if (EVENT_STARTS.has(bytes[0]!)) {
      this.#mode = 'stream';
      this.#events = new SseReader(
        {
          onData: (data, isError) => this.#readEvent(data, isError),
          onTooLong: () => {
            // It may be what ends the answer.
            if (this.#ending === 'none') this.#ending = 'finished';
            this.#hasUnknown = true;
          },
        },
        MAX_READ_BYTES,
      );
    } else this.#mode = 'blind';
    return bytes;
  }

  #keep(chunk: Buffer): void {
    this.prefilled = true;
    this.#estimatedTokens += chunk.length / BYTES_PER_TOKEN;
    this.#bodyBytes += chunk.length;
    if (this.#bodyBytes <= MAX_READ_BYTES) this.#body.push(chunk);
    else this.#body = [];
  }

  #readBody(text: string): void {
    const body = asObject(text);
    if (body === undefined) return;
    this.#counts = readTokenCounts(body);
    for (const step of this.#steps.read(body)) this.#readStep(step);
    if (this.#ending === 'failed') this.prefilled = false;
  }

  #readEvent(bytes: Uint8Array, isError: boolean): void {
    const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    // Most events carry one token of text. After the first content, only an event that may say more is parsed.
    if (this.firstContentAt !== undefined) this.#estimatedTokens++;
    const isNews = this.firstContentAt === undefined || isError || NEWS.test(data.toString('latin1'));
    if (this.#answer === undefined && !isNews) return;
    if (isError) this.#ending = 'failed';
    const object = asObject(data.toString('utf8'));
    if (object === undefined) {
      // Without a finish reason it is an end all the same, which the client gets as it is.
      if (this.#ending === 'none' && data.includes(DONE)) this.#ending = 'finished';
      this.#hasUnknown = true;
      return;
    }
    this.#counts = { ...this.#counts, ...readTokenCounts(object) };
    for (const step of this.#steps.read(object)) {
      if (!this.#readStep(step)) continue;
      this.prefilled = true;
      if (this.firstContentAt !== undefined) continue;
      this.firstContentAt = this.#now();
      this.#estimatedTokens++;
    }
  }

  /** Whether it is content. */
  #readStep(step: AnswerStep): boolean {
    if (step.kind === 'failure' || (step.kind === 'finish' && step.reason === undefined)) this.#ending = 'failed';
    else if (step.kind !== 'finish') {
      this.#answer?.read(step);
      return true;
    } else if (this.#ending === 'none') this.#ending = 'finished';
    return false;
  }
}

/** The JSON object in a text; `undefined` if there is none. O(text). */
export function asObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Characters of one response; a longer one has no hashes. */
const MAX_CHARACTERS = 1_048_576;

interface Call {
  name: string;
  arguments: string;
}

interface Draft {
  text: string;
  readonly calls: Map<number, Call>;
}

/**
 * Collects the model's answers from a response of any API and hashes them: an unnamed conversation is recognised by the
 * hash at its next turn. An answer that cannot be read has no hash.
 */
export class AnswerReader {
  /** By index of the choice. */
  readonly #drafts = new Map<number, Draft>();
  #characters = 0;
  readonly #labels: LabelMap | undefined;

  /** @param labels Labels in the answer that its client gets as its own. */
  constructor(labels: LabelMap | undefined) {
    this.#labels = labels;
  }

  read(step: AnswerStep): void {
    if (step.kind === 'text' && !this.#overflows(step.text)) this.#draftOf(step.choice).text += step.text;
    if (step.kind === 'call') this.#addCall(step);
  }

  /** Hashes of the answers so far, one for each choice with text or calls. */
  hashes(): readonly string[] {
    if (this.#characters > MAX_CHARACTERS) return [];
    return [...this.#drafts.values()].flatMap(({ text, calls }) => {
      const toolCalls = [...calls]
        .sort(([a], [b]) => a - b)
        .map(([, call]) => ({ function: { ...call, arguments: this.#mapped(call.arguments) } }));
      return answerHash({ content: this.#mapped(text), tool_calls: toolCalls }) ?? [];
    });
  }

  /** As the client gets it. */
  #mapped(text: string): string {
    return this.#labels?.inAnswer(text) ?? text;
  }

  #addCall({ choice, index, name = '', text }: CallStep): void {
    const { calls } = this.#draftOf(choice);
    const known = calls.get(index) ?? { name, arguments: '' };
    calls.set(index, known);
    if (known.name === '') known.name = name;
    if (!this.#overflows(name + text)) known.arguments += text;
  }

  #overflows(text: string): boolean {
    this.#characters += text.length;
    return this.#characters > MAX_CHARACTERS;
  }

  #draftOf(choice: number): Draft {
    const known = this.#drafts.get(choice);
    if (known !== undefined) return known;
    const draft: Draft = { text: '', calls: new Map() };
    this.#drafts.set(choice, draft);
    return draft;
  }
}
