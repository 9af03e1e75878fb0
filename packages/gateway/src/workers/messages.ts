import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import type { ErrorCode } from '@warmpath/core';
import type { SniffedAnswer } from '../answer/response-sniffer.js';
import type { GatewayConfig } from '../config/schema.js';
import type { ExchangeEnd } from '../dispatch/upstream.js';
import type { ErrorSource } from '../observe/exchange.js';

/** What the process that decides and a worker tell each other. */
export const FRAME = {
  // From a worker.
  /** It takes connections. */
  ready: 1,
  /** A client's request has come; its head is a `RequestHead`. Its body follows. */
  request: 2,
  body: 3,
  bodyEnd: 4,
  /** Bytes of the answer that the client took; its head is a `Count`. */
  taken: 5,
  /** Of an exchange that the worker was handed: the engine's answer begins and is no error. */
  accepted: 6,
  /** Of the same: the first part of the answer's body has come. */
  firstData: 7,
  /** That exchange is over; its head is a `SettledExchange`. */
  settled: 8,
  /** The client has its answer, or is gone; its head is a `ClosedAnswer`. The last of an exchange. */
  closed: 9,
  /** What a client sent is not HTTP. */
  malformed: 10,
  /** A client's connection is closed. */
  disconnected: 11,
  /** Its head is a `WorkerUsage`. */
  usage: 12,
  /** A connection has come: the next one may. */
  connected: 13,
  /** Of an exchange that the worker was handed: the first content of a stream has come. */
  firstContent: 14,
  /** An answer was ended because its client took nothing of it. */
  readerStalled: 15,
  // To a worker.
  /** The first of all; its head is a `WorkerSetup`. */
  setup: 32,
  /** Its head is an `AnswerHead`. */
  head: 33,
  data: 34,
  end: 35,
  /** The client's connection is to be broken. */
  destroy: 36,
  /** Bytes of the request's body that were read; its head is a `Count`. */
  read: 37,
  /** The worker sends these bytes to an engine and relays its answer; the head is a `HandedOver`. */
  relay: 38,
  /** No more connections come: what is under way is answered, and the worker ends. */
  drain: 39,
} as const;

export type FrameKind = (typeof FRAME)[keyof typeof FRAME];

/** Bytes of a body, or of an answer, that may be under way between the processes before the other side took them. */
export const WINDOW_BYTES = 131_072;
/** Bytes after which the other side learns at once that they were taken. */
export const ACKNOWLEDGED_BYTES = 32_768;

export interface Count {
  readonly bytes: number;
}

export interface RequestHead {
  readonly method: string;
  readonly url: string;
  readonly httpVersion: string;
  readonly headers: IncomingHttpHeaders;
}

export interface AnswerHead {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
  /** Whether they go out before the first part of the body is there. */
  readonly isFlushed: boolean;
}

export interface ClosedAnswer {
  readonly status: number;
  readonly isFinished: boolean;
}

export interface WorkerSetup {
  readonly upstream: Pick<GatewayConfig['upstream'], 'timeouts' | 'maxConcurrent'>;
}

export interface WorkerUsage {
  /** Since its start. */
  readonly cpuSeconds: number;
  readonly residentBytes: number;
}

/** An exchange with an engine that a worker has, and whose answer goes to the client as it is. */
export interface HandedOver {
  /** The base URL of the engine. */
  readonly engine: string;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly hasBody: boolean;
  readonly reads: 'nothing' | 'usage' | 'answer';
  /** Added to the engine's headers; of an answer that failed, the summary says who did (`withError`). */
  readonly ownHeaders: Readonly<Record<string, string>>;
  /** Headers that were set before; those of the engine and the gateway go before them. */
  readonly setHeaders: OutgoingHttpHeaders;
  readonly leftOut: readonly string[];
  /** Whether `firstData` and `firstContent` are wanted. */
  readonly tellsFirst: { readonly data: boolean; readonly content: boolean };
  /** Whether another engine gets it, by how this one fails; `undefined` where none can. */
  readonly movesOn: { readonly status: boolean; readonly unsent: boolean; readonly begun: boolean } | undefined;
  /** In place of the usual statuses for which that is asked. */
  readonly movesOnAt: readonly number[] | undefined;
}

/** How an exchange that was handed over ended. */
export interface SettledExchange {
  readonly status: number | undefined;
  readonly complete: boolean;
  /** Set where another engine gets it; `cause` is the code of what lies behind an error. */
  readonly failure: { readonly status: number } | { readonly code: ErrorCode; readonly cause?: string } | undefined;
  readonly sniffed: Omit<SniffedAnswer, 'firstContentAt'>;
  /** Milliseconds from the hand-over until the first content: the clocks of processes differ. */
  readonly firstContentMs: number | undefined;
  readonly errorCode: ErrorCode | undefined;
  readonly errorSource: ErrorSource | undefined;
  /** What it says about the engine. */
  readonly end: ExchangeEnd | undefined;
  /** Second tries after a failed connection. */
  readonly retries: number;
}
