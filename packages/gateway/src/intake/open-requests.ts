import type { Socket } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import { RESPONSE_HEADERS } from './headers.js';

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

/** A request whose headers have come, as far as its connection matters. */
export interface OpenRequest {
  readonly socket: unknown;
  /** Whether its body has come, too. */
  readonly complete: boolean;
}

/** As much of an answer as says how its client takes it. */
export interface WrittenAnswer {
  /** Bytes that were written and that the client's connection has not taken. */
  readonly writableLength: number;
  destroy(): unknown;
}

interface OpenExchange {
  readonly request: OpenRequest;
  readonly answer: WrittenAnswer;
  /** Bytes of the answer that waited at the last look. */
  waiting: number;
}

/**
 * The requests of clients whose answer is not over, for what goes wrong on their connections:
 *
 * - What is not HTTP is answered with the table's error, and its connection closed. Where an answer is owed or under
 *   way on it, that happens without a word: bytes written there would be taken for a part of that answer.
 * - Answers of which a client takes nothing any more are ended: they would hold a place in the engine, and memory, for
 *   as long as it likes. One look at all of them in turn; an answer of which as much waits as at the look before is
 *   ended. One on which nothing waits, because the engine is not that far, is none of these.
 */
export class OpenRequests {
  readonly #stallMs: () => number;
  readonly #stalled: () => void;
  readonly #open = new Map<number, OpenExchange>();
  #began = 0;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param stallMs Milliseconds between two looks.
   * @param stalled An answer is ended.
   */
  constructor(stallMs: () => number, stalled: () => void) {
    this.#stallMs = stallMs;
    this.#stalled = stalled;
  }

  /** A request's headers have come, and it is open until `ended` gets the number that this returns. O(1). */
  began(request: OpenRequest, answer: WrittenAnswer): number {
    const number = this.#began++;
    this.#open.set(number, { request, answer, waiting: 0 });
    // One timer for all, and none while there is nothing to look at.
    this.#timer ??= setTimeout(this.#look, this.#stallMs()).unref();
    return number;
  }

  /** Its answer is over. O(1). */
  ended(number: number): void {
    this.#open.delete(number);
  }

  /**
   * What came on a connection is not HTTP. Answers it and says whether it did; an answer is for a connection with no
   * request on it but the malformed one. O(open requests).
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
