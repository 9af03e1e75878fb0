import type { Socket } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import { RESPONSE_HEADERS } from './headers.js';

/** Milliseconds in which a client must send a whole request, and for which an idle connection stays open. */
export const CLIENT_TIMEOUTS = { requestTimeout: 300_000, keepAliveTimeout: 72_000 };

/** Status and reason by the HTTP parser's error; 400 for all others. */
const REFUSALS: Readonly<Record<string, readonly [status: string, detail: string]>> = {
  HPE_HEADER_OVERFLOW: ['431 Request Header Fields Too Large', 'The headers are larger than this server accepts.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['408 Request Timeout', 'The request did not come completely in time.'],
};
const NOT_HTTP = ['400 Bad Request', 'This is not HTTP/1.1.'] as const;

/** A request whose headers have come. */
export interface OpenRequest {
  readonly socket: unknown;
  /** Whether its body has come. */
  readonly complete: boolean;
}

/** An answer under way. */
export interface WrittenAnswer {
  /** Written bytes that the client has not read. */
  readonly writableLength: number;
  destroy(): unknown;
}

interface OpenExchange {
  readonly request: OpenRequest;
  readonly answer: WrittenAnswer;
  /** Unread bytes at the last check. */
  waiting: number;
}

/**
 * The open requests of clients.
 *
 * - Answers malformed HTTP with the table's error and closes the connection; without an answer where another answer is
 *   due on the connection, because the client would read the error as a part of it.
 * - Ends answers whose client reads nothing between two checks: they would hold memory and room in the engine.
 */
export class OpenRequests {
  readonly #stallMs: () => number;
  readonly #stalled: () => void;
  readonly #open = new Map<number, OpenExchange>();
  #began = 0;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param stallMs Milliseconds between two checks.
   * @param stalled Called when an answer is ended.
   */
  constructor(stallMs: () => number, stalled: () => void) {
    this.#stallMs = stallMs;
    this.#stalled = stalled;
  }

  /** Adds a request whose headers have come. @returns Its number for `ended`. O(1). */
  began(request: OpenRequest, answer: WrittenAnswer): number {
    const number = this.#began++;
    this.#open.set(number, { request, answer, waiting: 0 });
    // One timer for all requests, and none without requests.
    this.#timer ??= setTimeout(this.#look, this.#stallMs()).unref();
    return number;
  }

  /** Removes a request whose answer is over. O(1). */
  ended(number: number): void {
    this.#open.delete(number);
  }

  /**
   * Answers malformed HTTP, if the connection has no other request, and closes the connection. O(open requests).
   *
   * @returns Whether it was answered.
   */
  refuse(error: NodeJS.ErrnoException, socket: Socket): boolean {
    const open = [...this.#open.values()].filter(({ request }) => request.socket === socket);
    const isUnanswered = open.length === 0 || (open.length === 1 && !open[0]!.request.complete);
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

  readonly #look = (): void => {
    this.#timer = undefined;
    for (const open of this.#open.values()) {
      const waiting = open.answer.writableLength;
      if (open.waiting > 0 && waiting >= open.waiting) {
        open.answer.destroy();
        this.#stalled();
      } else open.waiting = waiting;
    }
    if (this.#open.size > 0) this.#timer = setTimeout(this.#look, this.#stallMs()).unref();
  };
}
