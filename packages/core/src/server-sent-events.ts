const NEWLINE = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;
const LETTER_E = 0x65;
const ERROR_FIELD = 'error:';
/** Bytes of a line by which an error is known. */
const MAX_ERROR_FIELD = 16;
/** A larger buffer is released once it was read. */
const MAX_KEPT_BYTES = 65_536;

/** Receives what an `SseReader` reads. What its methods throw comes out of `read` or `end`. */
export interface SseHandler {
  /**
   * The data of one event, never empty. The bytes are valid during the call only. `isError`: it is called an error, as
   * an event, or as a field (older llama-server).
   */
  onData(data: Uint8Array, isError: boolean): void;
  /** A comment, by which servers keep a connection alive. */
  onComment?(): void;
  /** An event is longer than the limit. It is skipped; reading goes on with the next one. */
  onTooLong(): void;
}

/**
 * Reads a stream of server-sent events, wherever its chunks are cut. Lines end with LF or CRLF. Only the data of an
 * event is read. Holds at most one event of at most `limitBytes`. O(bytes).
 */
export class SseReader {
  readonly #handler: SseHandler;
  readonly #limitBytes: number;
  /** The start of a line that continues in the next chunk. */
  readonly #line = new ByteBuffer();
  /** Data of the event so far. */
  readonly #data = new ByteBuffer();
  #hasData = false;
  #isError = false;
  #isTooLong = false;

  constructor(handler: SseHandler, limitBytes: number) {
    this.#handler = handler;
    this.#limitBytes = limitBytes;
  }

  read(chunk: Uint8Array): void {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      if (this.#line.length === 0) this.#readLine(chunk, start, end);
      else {
        this.#hold(chunk, start, end);
        this.#readHeldLine();
      }
      start = end + 1;
    }
    if (start < chunk.length) this.#hold(chunk, start, chunk.length);
  }

  /** The stream is over. An event without a blank line behind it is delivered too. */
  end(): void {
    if (this.#line.length > 0) this.#readHeldLine();
    this.#endEvent();
  }

  #readHeldLine(): void {
    const line = this.#line.bytes;
    this.#readLine(line, 0, line.length);
    this.#line.clear();
  }

  #readLine(bytes: Uint8Array, start: number, lineEnd: number): void {
    const end = lineEnd > start && bytes[lineEnd - 1] === CARRIAGE_RETURN ? lineEnd - 1 : lineEnd;
    if (end === start) this.#endEvent();
    else if (bytes[start] === COLON) this.#handler.onComment?.();
    else if (isDataField(bytes, start, end)) {
      // `data` without a colon is an empty line of data.
      this.#addData(bytes, valueStart(bytes, Math.min(end, start + 'data:'.length), end), end);
    } else if (bytes[start] === LETTER_E) this.#readErrorLine(bytes, start, end);
  }

  #readErrorLine(bytes: Uint8Array, start: number, end: number): void {
    const line = String.fromCharCode(...bytes.subarray(start, Math.min(end, start + MAX_ERROR_FIELD)));
    if (/^event: ?error *$/.test(line)) this.#isError = true;
    else if (line.startsWith(ERROR_FIELD)) {
      this.#isError = true;
      this.#addData(bytes, valueStart(bytes, start + ERROR_FIELD.length, end), end);
    }
  }

  #addData(bytes: Uint8Array, start: number, end: number): void {
    if (this.#isTooLong) return;
    const separator = this.#hasData ? 1 : 0;
    if (this.#data.length + separator + end - start > this.#limitBytes) {
      this.#skipEvent();
      return;
    }
    if (this.#hasData) this.#data.append(LINE_BREAK, 0, 1);
    this.#data.append(bytes, start, end);
    this.#hasData = true;
  }

  #endEvent(): void {
    const data = this.#data.bytes;
    const isComplete = data.length > 0 && !this.#isTooLong;
    const isError = this.#isError;
    this.#hasData = false;
    this.#isError = false;
    this.#isTooLong = false;
    // Cleared first, because the handler may throw. The bytes stay valid until the next append.
    this.#data.clear();
    if (isComplete) this.#handler.onData(data, isError);
  }

  #hold(bytes: Uint8Array, start: number, end: number): void {
    // The first bytes of a line that is too long are kept: only a data line makes its event too long.
    const room = this.#limitBytes + FIELD_BYTES - this.#line.length;
    this.#line.append(bytes, start, Math.min(end, start + room));
    if (end - start > room && isDataField(this.#line.bytes, 0, this.#line.length)) this.#skipEvent();
  }

  #skipEvent(): void {
    if (this.#isTooLong) return;
    this.#isTooLong = true;
    this.#data.clear();
    this.#handler.onTooLong();
  }
}

const LINE_BREAK = Uint8Array.of(NEWLINE);
/** Bytes of a data line beside its data. */
const FIELD_BYTES = 'data: \r'.length;

function valueStart(bytes: Uint8Array, at: number, end: number): number {
  return at < end && bytes[at] === SPACE ? at + 1 : at;
}

function isDataField(bytes: Uint8Array, start: number, end: number): boolean {
  const nameEnd = start + 'data'.length;
  if (nameEnd > end || (nameEnd < end && bytes[nameEnd] !== COLON)) return false;
  // The bytes of `data`.
  return bytes[start] === 0x64 && bytes[start + 1] === 0x61 && bytes[start + 2] === 0x74 && bytes[start + 3] === 0x61;
}

/**
 * Where a body begins behind white space and a byte order mark, which mean nothing in JSON and in events alike; its
 * length where nothing else has come.
 */
export function bodyStart(bytes: Uint8Array): number {
  const at = bytes.findIndex((byte) => !MEANINGLESS.has(byte));
  return at < 0 ? bytes.length : at;
}

/** Space, tab, line ends, and the bytes of U+FEFF. */
const MEANINGLESS: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d, 0xef, 0xbb, 0xbf]);

/** A buffer that bytes are appended to, in amortised O(bytes appended). */
export class ByteBuffer {
  #buffer: Uint8Array = new Uint8Array(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Valid until something is appended. */
  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }

  append(from: Uint8Array, start: number, end: number): void {
    const length = this.#length + end - start;
    if (length > this.#buffer.length) {
      const grown = new Uint8Array(Math.max(length, 2 * this.#buffer.length, 256));
      grown.set(this.bytes);
      this.#buffer = grown;
    }
    this.#buffer.set(from.subarray(start, end), this.#length);
    this.#length = length;
  }

  clear(): void {
    this.#length = 0;
    if (this.#buffer.length > MAX_KEPT_BYTES) this.#buffer = new Uint8Array(0);
  }
}
