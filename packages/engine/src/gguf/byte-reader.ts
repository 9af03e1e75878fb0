import type { FileHandle } from 'node:fs/promises';

const WINDOW_BYTES = 256 * 1024;

/** Raised by {@link ByteReader} when the file ends before what is asked for. */
export class EndOfFile extends Error {
  override readonly name = 'EndOfFile';
}

/**
 * Reads little-endian values from the front of a file through a sliding window, so that memory stays at the window
 * (256 KiB) or the longest single value, whatever the size of the file.
 */
export class ByteReader {
  readonly fileBytes: number;
  readonly #handle: FileHandle;
  #window: Buffer = Buffer.alloc(0);
  /** Offset in the file of the window's first byte. */
  #windowStart = 0;
  /** Offset in the window of the next byte to read. */
  #next = 0;

  constructor(handle: FileHandle, fileBytes: number) {
    this.#handle = handle;
    this.fileBytes = fileBytes;
  }

  /** Offset in the file of the next byte to read. */
  get position(): number {
    return this.#windowStart + this.#next;
  }

  /** Bytes between the next one and the end of the file. */
  get remaining(): number {
    return this.fileBytes - this.position;
  }

  /**
   * Makes the next `length` bytes readable without waiting. Checks the file's length first: a count that lies
   * allocates nothing. Throws {@link EndOfFile}.
   */
  async need(length: number): Promise<void> {
    if (this.#window.length - this.#next >= length) return;
    if (length > this.remaining) throw new EndOfFile(`the file ends at byte ${this.fileBytes}`);
    const kept = this.#window.subarray(this.#next);
    const window = Buffer.allocUnsafe(Math.max(length, Math.min(WINDOW_BYTES, this.remaining)));
    kept.copy(window);
    let filled = kept.length;
    const start = this.position;
    while (filled < window.length) {
      const { bytesRead } = await this.#handle.read(window, filled, window.length - filled, start + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    this.#window = window.subarray(0, filled);
    this.#windowStart = start;
    this.#next = 0;
    if (filled < length) throw new EndOfFile(`the file ends at byte ${start + filled}`);
  }

  /** Takes `length` bytes that {@link need} has made readable. */
  take(length: number): Buffer {
    const bytes = this.#window.subarray(this.#next, this.#next + length);
    this.#next += length;
    return bytes;
  }

  async uint32(): Promise<number> {
    await this.need(4);
    return this.take(4).readUInt32LE();
  }

  async uint64(): Promise<bigint> {
    await this.need(8);
    return this.take(8).readBigUInt64LE();
  }
}
