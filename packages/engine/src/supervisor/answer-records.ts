/**
 * How a worker tells its front what it streams, so that the next worker can go on where it died. Both are processes of
 * ours on a private socket; the front strips these headers from what clients send.
 *
 * A stream in records is a row of `<bytes> <token> <token> …\n` and so many bytes of events. The tokens are those that
 * were chosen since the last record, so that whoever has passed on a record knows the answer's state: text held back,
 * penalties and random numbers follow from the tokens. The last record has `end` in place of tokens.
 */

/** Request: the front understands records. Answer: it is in records, and this is its {@link AnswerOrigin} in JSON. */
export const RECORDS_HEADER = 'warmpath-records';

/** Request: the body is a {@link ContinuedBody}. */
export const CONTINUE_HEADER = 'warmpath-continue';

/** What an answer has from its beginning, and keeps when another worker goes on with it. */
export interface AnswerOrigin {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly seed: number;
}

/** An answer that another worker has begun. */
export interface BegunAnswer extends AnswerOrigin {
  /** The tokens whose text its client has. */
  readonly tokens: readonly number[];
}

/** A request as it is sent to the worker that goes on with its answer. */
export interface ContinuedBody {
  readonly begun: BegunAnswer;
  /** What the client sent. */
  readonly body: unknown;
}

/** Wraps a client's body, which a worker has parsed before, without parsing it again. */
export function continuedBody(body: Buffer, origin: string, tokens: readonly number[]): Buffer {
  const begun = `${origin.slice(0, -1)},"tokens":[${tokens.join()}]}`;
  return Buffer.concat([Buffer.from(`{"begun":${begun},"body":`), body, Buffer.from('}')]);
}

/** One record. */
export function answerRecord(events: string, tokens: readonly number[] | 'end'): string {
  const mark = tokens === 'end' ? 'end' : tokens.join(' ');
  return `${Buffer.byteLength(events)} ${mark}\n${events}`;
}

const SPACE = 0x20;
const NEWLINE = 0x0a;
const ZERO = 0x30;
const NINE = 0x39;

/**
 * What a client has of a stream: read from records, of which only whole ones are passed on. It outlives the worker.
 * Keeps a number for each token, so at most the request's own limit of them, and a part of one record.
 */
export class RelayedAnswer {
  /** The answer's {@link AnswerOrigin} in JSON. */
  readonly origin: string;
  /** Tokens whose text was passed on. */
  readonly tokens: number[] = [];
  #isEnded = false;
  #rest: Buffer | undefined;

  constructor(origin: string) {
    this.origin = origin;
  }

  /** Whether the last record was passed on. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Another worker goes on: what the last one did not finish is dropped. */
  beginAgain(): void {
    this.#rest = undefined;
  }

  /**
   * Reads what has come and passes on the events of every record that is whole. Cost: O(digits of the tokens).
   *
   * @param pass Gets events as bytes that are not copied.
   */
  read(chunk: Buffer, pass: (events: Buffer) => void): void {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    let from = 0;
    for (let end = this.#readRecord(bytes, from, pass); end > 0; end = this.#readRecord(bytes, from, pass)) {
      from = end;
    }
    this.#rest = from < bytes.length ? bytes.subarray(from) : undefined;
  }

  /** @returns Where the record ends; 0 when it is not whole. */
  #readRecord(bytes: Buffer, from: number, pass: (events: Buffer) => void): number {
    let at = from;
    let length = 0;
    for (; at < bytes.length && bytes[at] !== SPACE; at++) {
      length = 10 * length + bytes[at]! - ZERO;
    }
    const marks = at;
    while (at < bytes.length && bytes[at] !== NEWLINE) {
      at++;
    }
    const end = at + 1 + length;
    if (at >= bytes.length || end > bytes.length) {
      return 0;
    }
    this.#readMarks(bytes, marks, at);
    pass(bytes.subarray(at + 1, end));
    return end;
  }

  #readMarks(bytes: Buffer, from: number, end: number): void {
    let token = -1;
    for (let at = from + 1; at <= end; at++) {
      const byte = bytes[at]!;
      if (byte >= ZERO && byte <= NINE) {
        token = 10 * Math.max(token, 0) + byte - ZERO;
      } else if (token >= 0) {
        this.tokens.push(token);
        token = -1;
      } else if (byte > NINE) {
        this.#isEnded = true;
        return;
      }
    }
  }
}
