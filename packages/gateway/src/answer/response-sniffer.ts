import type { IncomingHttpHeaders } from 'node:http';
import { AnswerReader } from './answer-reader.js';
import { asObject, readCompletionTokens, readStreamEvent, readUsage, type Usage } from './usage.js';

/** A stream's line or a response body longer than this is not looked into, in bytes. */
const LOOK_LIMIT_BYTES = 1_048_576;

/** What a token of an answer in one piece is taken for. */
const BYTES_PER_TOKEN = 4;

const NEWLINE = 0x0a;
const USAGE = '"usage"';

/**
 * Reads along while a response is relayed: the engine's `usage`, and when the first content came. It sees chunks after
 * they were handed on, so it can neither change nor delay them, and it holds at most one line of a stream, or one body,
 * of at most 1 MiB. Compressed and foreign responses are not read.
 */
export class ResponseSniffer {
  readonly #now: () => number;
  readonly #answer: AnswerReader | undefined;
  #mode: 'json' | 'stream' | 'blind' = 'blind';
  #held: Buffer[] = [];
  #heldBytes = 0;
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

  /** Prints of what the model said (`answerPrint`), once the response is complete. */
  get answers(): readonly string[] {
    return this.#answer?.prints() ?? [];
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

  head(status: number, headers: IncomingHttpHeaders): void {
    const encoding = headers['content-encoding'];
    if (status !== 200 || (encoding !== undefined && encoding !== 'identity')) return;
    const type = headers['content-type'] ?? '';
    if (type.startsWith('text/event-stream')) this.#mode = 'stream';
    else if (type.startsWith('application/json')) this.#mode = 'json';
  }

  data(chunk: Buffer): void {
    if (this.#mode === 'stream') this.#readLines(chunk);
    else if (this.#mode === 'json') {
      this.#prefilled = true;
      this.#estimatedTokens += chunk.length / BYTES_PER_TOKEN;
      this.#hold(chunk);
    }
  }

  /** The response is complete. */
  end(): void {
    const rest = this.#release();
    if (this.#mode === 'json' && rest !== undefined) this.#readBody(rest.toString('utf8'));
    else if (this.#mode === 'stream' && rest !== undefined) this.#readLine(rest);
    this.#mode = 'blind';
  }

  #readBody(text: string): void {
    const body = asObject(text);
    if (body === undefined) return;
    this.#usage = readUsage(body['usage']);
    this.#completionTokens = readCompletionTokens(body['usage']);
    this.#answer?.response(body);
  }

  #readLines(chunk: Buffer): void {
    let start = 0;
    for (;;) {
      const newline = chunk.indexOf(NEWLINE, start);
      if (newline < 0) break;
      const tail = chunk.subarray(start, newline);
      start = newline + 1;
      if (this.#heldBytes > 0) {
        this.#hold(tail);
        const line = this.#release();
        if (line !== undefined) this.#readLine(line);
      } else this.#readLine(tail);
    }
    if (start < chunk.length) this.#hold(chunk.subarray(start));
  }

  #readLine(line: Buffer): void {
    // Most lines carry one token of text: after the first content only a line that states usage is worth parsing.
    if (line.length < 6 || line.length > LOOK_LIMIT_BYTES || line.toString('latin1', 0, 5) !== 'data:') return;
    if (this.#firstContentAt !== undefined) this.#estimatedTokens++;
    if (this.#answer === undefined && this.#firstContentAt !== undefined && !line.includes(USAGE)) return;
    const object = asObject(line.toString('utf8', 5));
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

  /** Keeps bytes until the line or body is whole; past the limit only counts them. */
  #hold(bytes: Buffer): void {
    this.#heldBytes += bytes.length;
    if (this.#heldBytes <= LOOK_LIMIT_BYTES) this.#held.push(bytes);
    else this.#held = [];
  }

  #release(): Buffer | undefined {
    const { length } = this.#held;
    const whole = length === 0 ? undefined : length === 1 ? this.#held[0] : Buffer.concat(this.#held);
    this.#held = [];
    this.#heldBytes = 0;
    return whole;
  }
}
