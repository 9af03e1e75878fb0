import type { Duplex } from 'node:stream';
import type { FrameKind } from './messages.js';

/** A message: its kind, the exchange it belongs to (0: none), plain data and bytes, each of which may be missing. */
export interface Frame {
  readonly kind: FrameKind;
  readonly exchange: number;
  readonly head: unknown;
  readonly bytes: Buffer;
}

/** Bytes before the head: length of head and bytes, kind, exchange, length of the head. */
const PREFIX_BYTES = 13;
/** Frames that together are no larger are written as one piece. */
const ONE_WRITE_BYTES = 262_144;

const NOTHING = Buffer.alloc(0);

/**
 * Frames over a stream of bytes between two processes of ours. What one turn of the event loop says goes out together,
 * at its end or with `flush`. It bounds nothing: whoever sends has a window for each exchange.
 */
export class Channel {
  readonly #stream: Duplex;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #isScheduled = false;

  /** `closed` is called once, when the other side is gone. Frames come in the order in which they were sent. */
  constructor(stream: Duplex, listener: { frame(frame: Frame): void; closed(): void }) {
    this.#stream = stream;
    const frames = new FrameReader(listener.frame);
    stream.on('data', (chunk: Buffer) => frames.read(chunk));
    stream.on('error', () => {});
    stream.once('close', () => listener.closed());
    stream.once('end', () => stream.destroy());
  }

  send(kind: FrameKind, exchange = 0, head?: object, bytes: Buffer = NOTHING): void {
    const text = head === undefined ? '' : JSON.stringify(head);
    const headBytes = Buffer.byteLength(text);
    const prefix = Buffer.allocUnsafe(PREFIX_BYTES + headBytes);
    prefix.writeUInt32LE(headBytes + bytes.length, 0);
    prefix[4] = kind;
    prefix.writeUInt32LE(exchange, 5);
    prefix.writeUInt32LE(headBytes, 9);
    prefix.write(text, PREFIX_BYTES);
    this.#waiting.push(prefix);
    if (bytes.length > 0) this.#waiting.push(bytes);
    this.#waitingBytes += prefix.length + bytes.length;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.flush();
    });
  }

  /** Writes at once what was sent. */
  flush(): void {
    const [parts, bytes] = [this.#waiting, this.#waitingBytes];
    if (parts.length === 0) return;
    this.#waiting = [];
    this.#waitingBytes = 0;
    if (this.#stream.destroyed) return;
    if (bytes <= ONE_WRITE_BYTES) {
      this.#stream.write(parts.length === 1 ? parts[0]! : Buffer.concat(parts, bytes));
      return;
    }
    this.#stream.cork();
    for (const part of parts) this.#stream.write(part);
    this.#stream.uncork();
  }

  /** Breaks it off. */
  destroy(): void {
    this.#stream.destroy();
  }
}

/** Cuts a stream of bytes into frames; the bytes of each are copied once at most. */
class FrameReader {
  readonly #frame: (frame: Frame) => void;
  /** The beginning of a frame that has not come completely: its bytes so far, in a buffer of what it needs. */
  #partial: Buffer = NOTHING;
  #partialBytes = 0;

  constructor(frame: (frame: Frame) => void) {
    this.#frame = frame;
  }

  read(chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#partialBytes === 0 && rest.length >= PREFIX_BYTES) {
        const length = PREFIX_BYTES + rest.readUInt32LE(0);
        if (rest.length >= length) {
          this.#tell(rest.subarray(0, length));
          rest = rest.subarray(length);
          continue;
        }
      }
      rest = this.#fill(rest);
    }
  }

  /** Adds to the frame that is incomplete; answers what is beyond it. */
  #fill(rest: Buffer): Buffer {
    if (this.#partialBytes === 0) this.#partial = Buffer.allocUnsafe(lengthOf(rest));
    const taken = rest.copy(this.#partial, this.#partialBytes);
    this.#partialBytes += taken;
    if (this.#partialBytes < this.#partial.length) return NOTHING;
    const length = lengthOf(this.#partial);
    if (this.#partial.length < length) {
      const grown = Buffer.allocUnsafe(length);
      this.#partial.copy(grown);
      this.#partial = grown;
    } else {
      const frame = this.#partial;
      this.#partial = NOTHING;
      this.#partialBytes = 0;
      this.#tell(frame);
    }
    return rest.subarray(taken);
  }

  #tell(frame: Buffer): void {
    const headEnd = PREFIX_BYTES + frame.readUInt32LE(9);
    const head: unknown =
      headEnd === PREFIX_BYTES ? undefined : JSON.parse(frame.toString('utf8', PREFIX_BYTES, headEnd));
    this.#frame({
      kind: frame[4] as FrameKind,
      exchange: frame.readUInt32LE(5),
      head,
      bytes: frame.subarray(headEnd),
    });
  }
}

/** Bytes of a frame as far as that is known: its prefix tells. */
function lengthOf(start: Buffer): number {
  return start.length < PREFIX_BYTES ? PREFIX_BYTES : PREFIX_BYTES + start.readUInt32LE(0);
}
