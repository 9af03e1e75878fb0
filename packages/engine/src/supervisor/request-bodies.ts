import type { IncomingMessage } from 'node:http';
import { WarmpathError } from '@warmpath/core';

/** Bodies of the largest size that are held at the same time; usual ones are a hundredth of it. */
const MAX_LARGEST_BODIES = 8;

/** Bytes of the first buffer for a body of unknown length; it doubles. */
const FIRST_BYTES = 16_384;

/** Receives bodies, and bounds the memory of all of them until their requests are answered. */
export class RequestBodies {
  readonly #limitBytes: () => number;
  #heldBytes = 0;

  /** Bodies that were refused before all of them had come, by reason. */
  readonly refused = { too_large: 0, no_room: 0 };

  constructor(limitBytes: () => number) {
    this.#limitBytes = limitBytes;
  }

  /**
   * Receives a body and holds it until `use` has settled. A refused body is read to its end and dropped: a client that
   * is still sending would not read the reason.
   *
   * @throws WARMPATH_BODY_TOO_LARGE; WARMPATH_OVERLOADED where it does not fit beside the others; what `use` throws;
   *   the stream's error when the client leaves.
   */
  async hold(request: IncomingMessage, use: (body: Buffer) => Promise<void>): Promise<void> {
    const limitBytes = this.#limitBytes();
    const announced = Number(request.headers['content-length'] ?? 0);
    let buffer: Buffer = Buffer.alloc(0);
    let length = 0;
    let refusal: WarmpathError | undefined;
    try {
      for await (const part of request as AsyncIterable<Buffer>) {
        const end = length + part.length;
        if (refusal === undefined && end > buffer.length) {
          const room = Math.max(end, announced || Math.min(Math.max(FIRST_BYTES, 2 * buffer.length), limitBytes));
          refusal = this.#refusal(room, this.#heldBytes - buffer.length, limitBytes);
          const grown = refusal === undefined ? Buffer.allocUnsafeSlow(room) : Buffer.alloc(0);
          buffer.copy(grown);
          this.#heldBytes += grown.length - buffer.length;
          buffer = grown;
        }
        if (refusal === undefined) length += part.copy(buffer, length);
      }
      if (refusal !== undefined) throw refusal;
      await use(buffer.subarray(0, length));
    } finally {
      this.#heldBytes -= buffer.length;
    }
  }

  #refusal(room: number, othersBytes: number, limitBytes: number): WarmpathError | undefined {
    if (room > limitBytes) {
      this.refused.too_large++;
      return new WarmpathError('WARMPATH_BODY_TOO_LARGE', { detail: `A body has at most ${limitBytes} bytes here.` });
    }
    if (othersBytes + room > MAX_LARGEST_BODIES * limitBytes) {
      this.refused.no_room++;
      const detail = 'The bodies of other requests take all the memory that there is for them.';
      return new WarmpathError('WARMPATH_OVERLOADED', { detail });
    }
    return undefined;
  }
}
