/** One event of a stream in SSE. */
export function sseEvent(event: string, data: unknown): string {
  return `event: ${event}\ndata: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
}

const NEWLINE = 0x0a;

/**
 * Cuts the bytes of a stream in SSE into events, wherever the chunks are cut; hands on the data of each, and comments. Lines end
 * with LF or CRLF. Holds no more than one event.
 */
export class SseReader {
  readonly #onData: (data: string) => void;
  readonly #onComment: () => void;
  #rest: Buffer[] = [];
  #restBytes = 0;
  #data: string[] = [];
  #dataLength = 0;

  constructor(onData: (data: string) => void, onComment: () => void) {
    this.#onData = onData;
    this.#onComment = onComment;
  }

  /** Bytes of the event that has not ended, as far as they are kept. */
  get heldBytes(): number {
    return this.#restBytes + this.#dataLength;
  }

  read(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      this.#line(this.#take(chunk.subarray(start, end)));
      start = end + 1;
    }
    if (start < chunk.length) this.#hold(chunk.subarray(start));
  }

  /** The stream is over: what was begun is an event as well, though strictly it is none. */
  end(): void {
    if (this.#restBytes > 0) this.#line(this.#take(Buffer.alloc(0)));
    this.#line('');
  }

  #hold(bytes: Buffer): void {
    this.#rest.push(bytes);
    this.#restBytes += bytes.length;
  }

  #take(bytes: Buffer): string {
    const whole = this.#restBytes === 0 ? bytes : Buffer.concat([...this.#rest, bytes]);
    this.#rest = [];
    this.#restBytes = 0;
    const text = whole.toString('utf8');
    return text.endsWith('\r') ? text.slice(0, -1) : text;
  }

  #line(line: string): void {
    if (line === '') {
      if (this.#data.length > 0) this.#onData(this.#data.join('\n'));
      this.#data = [];
      this.#dataLength = 0;
    } else if (line.startsWith('data:')) {
      this.#data.push(line.slice(line[5] === ' ' ? 6 : 5));
      this.#dataLength += line.length;
    } else if (line.startsWith(':')) this.#onComment();
  }
}
