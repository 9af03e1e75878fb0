import type { IncomingMessage } from 'node:http';
import { WarmpathError } from '@warmpath/core';

/** Bodies of the largest size that are held at the same time; usual ones are a hundredth of it. */
const LARGEST_HELD = 8;

/**
 * Bytes of a body that are taken as they come. The system gives up to 2 MiB of each connection at once, which are a
 * tenth of a second of 64 of them; what comes after these is taken in turns with everything else.
 */
const AT_ONCE_BYTES = 262_144;

/** Room for a body of unknown length at first; it doubles. */
const FIRST_BYTES = 16_384;

const NOTHING = Buffer.alloc(0);

/** Why a body is not received: it is too large, or others take all the memory that there is for bodies. */
export const REFUSED_BODIES = ['too_large', 'no_room'] as const;
export type RefusedBody = (typeof REFUSED_BODIES)[number];

/** Receives bodies, and bounds what all of them take until their requests are answered. */
export class ReceivedBodies {
  readonly #limitBytes: () => number;
  readonly #onRefused: (reason: RefusedBody) => void;
  #heldBytes = 0;

  /**
   * @param limitBytes Largest body.
   * @param onRefused Hears of every body that is not received.
   */
  constructor(limitBytes: () => number, onRefused: (reason: RefusedBody) => void) {
    this.#limitBytes = limitBytes;
    this.#onRefused = onRefused;
  }

  /**
   * Receives a body and holds it until `use` has settled; does nothing for a client that leaves before all of it came.
   *
   * @throws WARMPATH_BODY_TOO_LARGE; WARMPATH_OVERLOADED where it does not fit beside the others; what `use` throws.
   */
  async hold(request: IncomingMessage, use: (body: Buffer) => Promise<void>): Promise<void> {
    const limitBytes = this.#limitBytes();
    const announced = Number(request.headers['content-length'] ?? 0);
    let bytes = 0;
    const makeRoom: MakeRoom = (buffer, length) => {
      const isTooLarge = Math.max(length, announced) > limitBytes;
      if (!isTooLarge && length <= buffer.length) return buffer;
      const room = Math.max(length, Math.min(Math.max(FIRST_BYTES, 2 * buffer.length), announced || limitBytes));
      if (isTooLarge || this.#heldBytes - bytes + room > LARGEST_HELD * limitBytes) {
        // It holds nothing from here on, so that others find room.
        this.#heldBytes -= bytes;
        bytes = 0;
        this.#onRefused(isTooLarge ? 'too_large' : 'no_room');
        throw isTooLarge ? tooLarge(limitBytes) : noRoom();
      }
      this.#heldBytes += room - bytes;
      bytes = room;
      const grown = Buffer.allocUnsafeSlow(room);
      buffer.copy(grown);
      return grown;
    };
    try {
      const body = await receive(request, makeRoom);
      if (body !== 'left') {
        await use(body);
      }
    } finally {
      this.#heldBytes -= bytes;
    }
  }
}

function tooLarge(limitBytes: number): WarmpathError {
  return new WarmpathError('WARMPATH_BODY_TOO_LARGE', { detail: `A body has at most ${limitBytes} bytes here.` });
}

function noRoom(): WarmpathError {
  const detail = 'The bodies of other requests take all the memory that there is for them.';
  return new WarmpathError('WARMPATH_OVERLOADED', { detail });
}

/** The buffer, or a larger one with the same bytes, with room for so many. Throws where there is none. */
type MakeRoom = (buffer: Buffer, length: number) => Buffer;

/** @returns The whole body, or that the client went away before it had sent it. */
function receive(request: IncomingMessage, makeRoom: MakeRoom): Promise<Buffer | 'left'> {
  return new Promise((resolve, reject) => {
    let buffer: Buffer = NOTHING;
    let length = 0;
    let refusal: unknown;
    let received = 0;
    request.on('data', (part: Buffer) => {
      received += part.length;
      if (received > AT_ONCE_BYTES) {
        request.pause();
        setImmediate(() => request.resume());
      }
      if (refusal !== undefined) {
        return;
      }
      try {
        buffer = makeRoom(buffer, received);
        length += part.copy(buffer, length);
      } catch (error) {
        // The rest is read and dropped: a client that is still sending would not read why.
        refusal = error;
        buffer = NOTHING;
      }
    });
    request.once('end', () => (refusal === undefined ? resolve(buffer.subarray(0, length)) : reject(refusal)));
    request.once('close', () => resolve('left'));
    request.once('error', () => resolve('left'));
  });
}
