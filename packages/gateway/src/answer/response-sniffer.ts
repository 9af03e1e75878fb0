import type { IncomingHttpHeaders } from 'node:http';
import { type LabelMap, SseReader } from '@warmpath/core/internal';
import { asObject, readCompletionTokens, readStreamEvent, readUsage, type Usage } from '../apis/usage.js';
import { AnswerReader } from './answer-reader.js';

/** Bytes of an event or a response body; longer ones are not parsed. */
const MAX_READ_BYTES = 1_048_576;

/** Estimate for an answer in one piece. */
const BYTES_PER_TOKEN = 4;

const USAGE = '"usage"';
const TIMINGS = '"timings"';

/** The results of reading a response. */
export type SniffedAnswer = Pick<
  ResponseSniffer,
  'answers' | 'usage' | 'completionTokens' | 'estimatedTokens' | 'firstContentAt' | 'prefilled'
>;

/**
 * Reads a response after it was relayed: the engine's `usage` and the time of the first content. Cannot change or delay
 * the response. Holds one event of a stream, or one body, of at most 1 MiB. Does not read compressed responses or other
 * content types. Never throws: an error ends the reading only.
 */
export class ResponseSniffer {
  readonly #now: () => number;
  readonly #answer: AnswerReader | undefined;
  #mode: 'json' | 'stream' | 'blind' = 'blind';
  #body: Buffer[] = [];
  #bodyBytes = 0;
  #events: SseReader | undefined;
  #usage: Usage | undefined;
  #completionTokens: number | undefined;
  #estimatedTokens = 0;
  #firstContentAt: number | undefined;
  #prefilled = false;

  /**
   * @param now The monotonic clock, in milliseconds.
   * @param readsAnswer Whether `answers` is wanted; it costs parsing every event.
   * @param labels Labels in the answer that its client gets as its own.
   */
  constructor(now: () => number, readsAnswer = false, labels?: LabelMap) {
    this.#now = now;
    this.#answer = readsAnswer ? new AnswerReader(labels) : undefined;
  }

  /** Hashes of the model's answers (`answerHash`), once the response is complete. */
  get answers(): readonly string[] {
    return this.#answer?.hashes() ?? [];
  }

  /** The last usage that the engine reported. */
  get usage(): Usage | undefined {
    return this.#usage;
  }

  /** Tokens of the answer, as the engine last reported them. */
  get completionTokens(): number | undefined {
    return this.#completionTokens;
  }

  /** Estimated tokens of the answer: one an event, because engines send a stream's tokens one by one. */
  get estimatedTokens(): number {
    return Math.ceil(this.#estimatedTokens);
  }

  /** Whether generated content came, so that the whole prompt is prefilled. */
  get prefilled(): boolean {
    return this.#prefilled;
  }

  /** When a stream's first content came, on the clock of `now`; `undefined` for a response in one piece. */
  get firstContentAt(): number | undefined {
    return this.#firstContentAt;
  }

  /** Whether data is read: not before `head`, nor after `end`. */
  get isReading(): boolean {
    return this.#mode !== 'blind';
  }

  head(status: number, headers: IncomingHttpHeaders): void {
    const encoding = headers['content-encoding'];
    if (status !== 200 || (encoding !== undefined && encoding !== 'identity')) return;
    const type = headers['content-type'] ?? '';
    if (type.startsWith('text/event-stream')) {
      this.#mode = 'stream';
      this.#events = new SseReader({ onData: (data) => this.#readEvent(data), onTooLong: () => {} }, MAX_READ_BYTES);
    } else if (type.startsWith('application/json')) this.#mode = 'json';
  }

  data(chunk: Buffer): void {
    try {
      if (this.#mode === 'stream') this.#events!.read(chunk);
      else if (this.#mode === 'json') this.#keep(chunk);
    } catch {
      this.#mode = 'blind';
    }
  }

  /** The response is complete. */
  end(): void {
    try {
      if (this.#mode === 'stream') this.#events!.end();
      else if (this.#body.length > 0) this.#readBody(Buffer.concat(this.#body).toString('utf8'));
    } catch {
      // The results so far stay.
    }
    this.#mode = 'blind';
  }

  #keep(chunk: Buffer): void {
    this.#prefilled = true;
    this.#estimatedTokens += chunk.length / BYTES_PER_TOKEN;
    this.#bodyBytes += chunk.length;
    if (this.#bodyBytes <= MAX_READ_BYTES) this.#body.push(chunk);
    else this.#body = [];
  }

  #readBody(text: string): void {
    const body = asObject(text);
    if (body === undefined) return;
    this.#usage = readUsage(body['usage']);
    this.#completionTokens = readCompletionTokens(body['usage']);
    this.#answer?.response(body);
  }

  #readEvent(bytes: Uint8Array): void {
    const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    // Most events carry one token of text. After the first content, only an event with usage is parsed.
    if (this.#firstContentAt !== undefined) this.#estimatedTokens++;
    const isNews = this.#firstContentAt === undefined || data.includes(USAGE) || data.includes(TIMINGS);
    if (this.#answer === undefined && !isNews) return;
    const object = asObject(data.toString('utf8'));
    if (object !== undefined) this.#answer?.event(object);
    const event = readStreamEvent(object);
    this.#usage = event.usage ?? this.#usage;
    this.#completionTokens = event.completionTokens ?? this.#completionTokens;
    if (!event.content) return;
    this.#prefilled = true;
    if (this.#firstContentAt !== undefined) return;
    this.#firstContentAt = this.#now();
    this.#estimatedTokens++;
  }
}
