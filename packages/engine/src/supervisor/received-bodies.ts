import type { IncomingMessage } from 'node:http';
import { WarmpathError } from '@warmpath/core';

/** Bodies of the largest size that are held at the same time; usual ones are a hundredth of it. */
const LARGEST_HELD = 8;

/** Receives bodies, and bounds what all of them take until their requests are answered. */
export class ReceivedBodies {
  readonly #limitBytes: number;
  #heldBytes = 0;

  /** @param limitBytes Largest body. */
  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /**
   * Receives a body and holds it until `use` has settled; does nothing for a client that leaves before all of it came.
   *
   * @throws WARMPATH_BODY_TOO_LARGE; WARMPATH_OVERLOADED where it does not fit beside the others; what `use` throws.
   */
  async hold(request: IncomingMessage, use: (body: Buffer) => Promise<void>): Promise<void> {
    let bytes = 0;
    const count = (more: number): void => {
      bytes += more;
      this.#heldBytes += more;
      if (bytes > this.#limitBytes) {
        throw new WarmpathError('WARMPATH_BODY_TOO_LARGE');
      }
      if (this.#heldBytes > LARGEST_HELD * this.#limitBytes) {
        const detail = 'The bodies of other requests take all the memory that there is for them.';
        throw new WarmpathError('WARMPATH_OVERLOADED', { detail });
      }
    };
    try {
      const body = await receive(request, count);
      if (body !== 'left') {
        await use(body);
      }
    } finally {
      this.#heldBytes -= bytes;
    }
  }
}

/** @returns The whole body, or that the client went away before it had sent it. */
function receive(request: IncomingMessage, count: (bytes: number) => void): Promise<Buffer | 'left'> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let isRefused = false;
    request.on('data', (part: Buffer) => {
      if (isRefused) {
        // The rest is read and dropped, so that the client gets to read why.
        return;
      }
      try {
        count(part.length);
        parts.push(part);
      } catch (error) {
        isRefused = true;
        parts.length = 0;
        reject(error);
      }
    });
    request.once('end', () => resolve(parts.length === 1 ? parts[0]! : Buffer.concat(parts)));
    request.once('close', () => resolve('left'));
    request.once('error', () => resolve('left'));
  });
}
