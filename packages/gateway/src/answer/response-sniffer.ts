import type { IncomingHttpHeaders } from 'node:http';
import { SseReader } from '@warmpath/core/internal';
import { asObject, readCompletionTokens, readStreamEvent, readUsage, type Usage } from '../apis/usage.js';
import { AnswerReader } from './answer-reader.js';

/** An event of a stream or a response body longer than this is not looked into, in bytes. */
const LOOK_LIMIT_BYTES = 1_048_576;

/** What a token of an answer in one piece is taken for. */
const BYTES_PER_TOKEN = 4;

const USAGE = '"usage"';

/** What was read of a response. */
export type SniffedAnswer = Pick<
  ResponseSniffer,
  'answers' | 'usage' | 'completionTokens' | 'estimatedTokens' | 'firstContentAt' | 'prefilled'
>;

/**
 * Reads along while a response is relayed: the engine's `usage`, and when the first content came. It sees chunks after
 * they were handed on, so it can neither change nor delay them, and it holds at most one event of a stream, or one
 * body, of at most 1 MiB. Compressed and foreign responses are not read. It never throws: a defect of its own ends the
 * reading, and nothing else.
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
   * `now`: the monotonic clock, in milliseconds. `readsAnswer`: whether `answers` is wanted, for which every event is
   * parsed.
   */
  constructor(now: () => number, readsAnswer = false) {
    this.#now = now;
    this.#answer = readsAnswer ? new AnswerReader() : undefined;
  }

  /** Hashes of what the model said (`answerHash`), once the response is complete. */
  get answers(): readonly string[] {
    return this.#answer?.hashes() ?? [];
  }

  /** The last usage that the engine stated. */
  get usage(): Usage | undefined {
    return this.#usage;
  }

  /** Tokens of the answer, as the engine last stated them. */
  get completionTokens(): number | undefined {
    return this.#completionTokens;
  }

  /** Tokens of what came, where the engine states none: engines send a stream's tokens one by one. */
  get estimatedTokens(): number {
    return Math.ceil(this.#estimatedTokens);
  }

  /** Whether generated content came: then the engine has prefilled the whole prompt. */
  get prefilled(): boolean {
    return this.#prefilled;
  }

  /** When a stream's first content came, on the clock of `now`; a response in one piece does not tell. */
  get firstContentAt(): number | undefined {
    return this.#firstContentAt;
  }

  /** Whether what comes is read: not before `head`, nor after `end`. */
  get isReading(): boolean {
    return this.#mode !== 'blind';
  }

  head(status: number, headers: IncomingHttpHeaders): void {
    const encoding = headers['content-encoding'];
    if (status !== 200 || (encoding !== undefined && encoding !== 'identity')) return;
    const type = headers['content-type'] ?? '';
    if (type.startsWith('text/event-stream')) {
      this.#mode = 'stream';
      this.#events = new SseReader({ onData: (data) => this.#readEvent(data), onTooLong: () => {} }, LOOK_LIMIT_BYTES);
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
      // What was not read is not known.
    }
    this.#mode = 'blind';
  }

  #keep(chunk: Buffer): void {
    this.#prefilled = true;
    this.#estimatedTokens += chunk.length / BYTES_PER_TOKEN;
    this.#bodyBytes += chunk.length;
    if (this.#bodyBytes <= LOOK_LIMIT_BYTES) this.#body.push(chunk);
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
    // Most events carry one token of text: after the first content only one that states usage is worth parsing.
    if (this.#firstContentAt !== undefined) this.#estimatedTokens++;
    if (this.#answer === undefined && this.#firstContentAt !== undefined && !data.includes(USAGE)) return;
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
