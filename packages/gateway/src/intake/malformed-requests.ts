import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';

/**
 * Milliseconds that a client gets to send a whole request, and that a connection stays open between two; beyond the
 * first, it is refused here.
 */
export const CLIENT_TIMEOUTS = { requestTimeout: 300_000, keepAliveTimeout: 72_000 };

/** Status and reason for what the HTTP parser refuses; anything else is 400. */
const REFUSALS: Readonly<Record<string, readonly [status: string, detail: string]>> = {
  HPE_HEADER_OVERFLOW: ['431 Request Header Fields Too Large', 'The headers are larger than this server accepts.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['408 Request Timeout', 'The request did not come completely in time.'],
};
const NOT_HTTP = ['400 Bad Request', 'This is not HTTP/1.1.'] as const;

/**
 * Answers what is not HTTP with the table's error and closes the connection. A connection on which an answer is owed or
 * under way is closed without a word: bytes written there would be taken for a part of that answer.
 */
export class MalformedRequests {
  /** Few of each; arrays for the reason that `OpenTable` has. */
  readonly #open = new WeakMap<Socket, IncomingMessage[]>();

  /** A request's headers have come. */
  began(request: IncomingMessage): void {
    const open = this.#open.get(request.socket);
    if (open === undefined) this.#open.set(request.socket, [request]);
    else open.push(request);
  }

  /** Its answer is over. */
  ended(request: IncomingMessage): void {
    const open = this.#open.get(request.socket);
    const place = open?.indexOf(request) ?? -1;
    if (place >= 0) open!.splice(place, 1);
  }

  /** Answers and says whether it did; an answer is for a connection with no request on it but the malformed one. */
  refuse(error: NodeJS.ErrnoException, socket: Socket): boolean {
    const open = this.#open.get(socket) ?? [];
    const isUnanswered = open.length === 0 || (open.length === 1 && !open[0]!.complete);
    if (error.code === 'ECONNRESET' || !socket.writable || !isUnanswered) {
      socket.destroy();
      return false;
    }
    const [status, detail] = REFUSALS[error.code ?? ''] ?? NOT_HTTP;
    const body = JSON.stringify(new WarmpathError('WARMPATH_INVALID_REQUEST', { detail }).toOpenAI());
    const head = [
      `HTTP/1.1 ${status}`,
      'content-type: application/json; charset=utf-8',
      `content-length: ${Buffer.byteLength(body)}`,
      `${RESPONSE_HEADERS.summary}: error=gateway`,
      'connection: close',
    ];
    socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
    return true;
  }
}
