/**
 * How a worker tells its front what it streams. All of its streams share one pipe: what a step has chosen for all of
 * them is one write and one read, however many there are. Both are processes of ours, and nobody else has the pipe; the
 * front strips these headers from what clients send.
 *
 * A record is `<stream> <bytes> <marks>\n` and so many bytes. The first of a stream has the mark `begin` and holds its
 * {@link AnswerOrigin} in JSON. Those after it hold events, marked with the tokens that were chosen since the record
 * before, so that whoever has passed on a record knows the answer's state: text held back, penalties and random numbers
 * follow from the tokens. The last one has the mark `end`.
 */
import type { Readable, Writable } from 'node:stream';

/**
 * Request: the number under which the front wants a stream to be sent. Answer: it was sent, and nothing else is to
 * come.
 */
export const RECORDS_HEADER = 'warmpath-records';

/** Request: the body is a {@link ContinuedBody}. */
export const CONTINUE_HEADER = 'warmpath-continue';

/** The worker's file descriptor of the pipe. */
export const RECORDS_DESCRIPTOR = 4;

/** Most bytes of records that wait for the front. */
const MAX_UNREAD_BYTES = 2 ** 25;

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

/** What a record is: the first, the last, or one with the tokens of its events. */
export type RecordMarks = 'begin' | 'end' | readonly number[];

/** One record. */
export function answerRecord(stream: number, content: string, marks: RecordMarks): string {
  return `${stream} ${Buffer.byteLength(content)} ${typeof marks === 'string' ? marks : marks.join(' ')}\n${content}`;
}

/** A worker's end of the pipe. */
export class RecordWriter {
  readonly #pipe: Writable;
  #waiting = '';

  constructor(pipe: Writable) {
    this.#pipe = pipe;
    // A front that is gone has this process end.
    pipe.on('error', () => undefined);
  }

  /** Whether the front takes what is sent; if not, whoever sends more has to stop. */
  get isRead(): boolean {
    return this.#pipe.writableLength < MAX_UNREAD_BYTES;
  }

  /** Writes a record, together with all others of the step, when the next one is being computed. */
  write(stream: number, content: string, marks: RecordMarks): void {
    if (this.#waiting === '') {
      setImmediate(() => {
        this.#pipe.write(this.#waiting);
        this.#waiting = '';
      });
    }
    this.#waiting += answerRecord(stream, content, marks);
  }
}

/** Hears what is streamed under one number. */
export interface RecordListener {
  /** @param content Bytes that are not copied. */
  onRecord(content: Buffer, marks: RecordMarks): void;
  /** The pipe has closed, and nothing more comes. */
  onRecordsLost(): void;
}

const NEWLINE = 0x0a;

/** The front's end of the pipe. */
export class RecordReader {
  /** Settles when the worker's end has closed. */
  readonly closed: Promise<void>;
  readonly #listeners = new Map<number, RecordListener>();
  #streams = 0;
  #isClosed = false;
  #rest: Buffer | undefined;

  constructor(pipe: Readable) {
    pipe.on('data', (chunk: Buffer) => this.#read(chunk));
    pipe.on('error', () => undefined);
    this.closed = new Promise((resolve) => {
      pipe.once('close', () => {
        this.#isClosed = true;
        resolve();
        for (const listener of [...this.#listeners.values()]) {
          listener.onRecordsLost();
        }
      });
    });
  }

  /** @returns The number of a stream, of which the listener hears until {@link leave} is called. */
  join(listener: RecordListener): number {
    const stream = this.#streams++;
    this.#listeners.set(stream, listener);
    if (this.#isClosed) {
      queueMicrotask(() => this.#listeners.get(stream)?.onRecordsLost());
    }
    return stream;
  }

  /** What still comes under this number is dropped. */
  leave(stream: number): void {
    this.#listeners.delete(stream);
  }

  /** Passes on every record that is whole. */
  #read(chunk: Buffer): void {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    let from = 0;
    for (let end = this.#readRecord(bytes, from); end > 0; end = this.#readRecord(bytes, from)) {
      from = end;
    }
    this.#rest = from < bytes.length ? bytes.subarray(from) : undefined;
  }

  /** @returns Where the record ends; 0 when it is not whole. */
  #readRecord(bytes: Buffer, from: number): number {
    const line = bytes.indexOf(NEWLINE, from);
    if (line < 0) {
      return 0;
    }
    const [stream, length, ...marks] = bytes.toString('latin1', from, line).split(' ');
    const end = line + 1 + Number(length);
    if (end > bytes.length) {
      return 0;
    }
    this.#listeners.get(Number(stream))?.onRecord(bytes.subarray(line + 1, end), readMarks(marks));
    return end;
  }
}

function readMarks(marks: readonly string[]): RecordMarks {
  const [first = ''] = marks;
  if (first === 'begin' || first === 'end') {
    return first;
  }
  return first === '' ? [] : marks.map(Number);
}
