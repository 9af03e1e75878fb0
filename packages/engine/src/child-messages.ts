import { type ErrorCode, WarmpathError } from '@warmpath/core';
import { ERROR_TABLE } from '@warmpath/core/internal';
import type { KvEventBatch } from './events/kv-event.js';
import type { DecodeInFlight } from './loop/decode-step.js';
import type { ModelProgress } from './models/download.js';
import type { EngineOptions } from './options.js';
import type { ServedModel } from './server.js';

/** Argument that makes the entry point a supervised engine whose parent is `spawnEngine`. */
export const CHILD_ARGUMENT = '--child';

/** Argument that makes the entry point the worker of a supervised engine. */
export const WORKER_ARGUMENT = '--worker';

/** How a child is to start; a parent says it once. */
export interface StartMessage {
  readonly type: 'start';
  readonly options: EngineOptions;
  /** For a worker: the Unix domain socket or named pipe to listen on. */
  readonly socketPath?: string;
  /** For a worker: the longest that loading has taken one before it, in milliseconds. */
  readonly loadedMs?: number;
}

/** What a parent tells its child: how to start, and later a question whether it is still there. */
export type ParentMessage =
  | StartMessage
  | { readonly type: 'ping' /** Comes back with the answer. */; readonly id?: number };

/** What a child tells its parent. */
export type ChildMessage =
  | { readonly type: 'progress'; readonly event: ModelProgress }
  | {
      readonly type: 'listening';
      readonly url: string;
      readonly model: ServedModel;
      readonly cells: number;
      /** Milliseconds from when the model's file was there. */
      readonly loadMs: number;
    }
  /** A worker's cache has changed. */
  | { readonly type: 'kv-events'; readonly batch: KvEventBatch }
  /** The worker of a supervised engine has ended; another is started. */
  | { readonly type: 'crashed'; readonly error: ChildError }
  | { readonly type: 'failed'; readonly error: ChildError }
  | {
      readonly type: 'pong';
      /** The question's. */
      readonly id?: number;
      /** Whether it has failed for good and is about to end. */
      readonly isEnding: boolean;
      /** Of a worker: the decode in flight, if there is one. */
      readonly decoding: DecodeInFlight | undefined;
      /** Of one that does not listen yet: how long it may load its model, once it has the file. */
      readonly loading: { readonly limitMs: number | undefined } | undefined;
    };

/** A WarmpathError on its way between processes. */
export interface ChildError {
  readonly code: ErrorCode;
  readonly path?: string;
  /** The message without the path. */
  readonly detail: string;
}

/** @returns An error as plain data; anything unexpected becomes WARMPATH_INTERNAL with its message. */
export function toChildError(error: unknown): ChildError {
  if (!WarmpathError.isInstance(error)) {
    return { code: 'WARMPATH_INTERNAL', detail: error instanceof Error ? error.message : String(error) };
  }
  const prefix = error.path === undefined ? '' : `${error.path}: `;
  return {
    code: error.code,
    detail: error.message.slice(prefix.length),
    ...(error.path !== undefined && { path: error.path }),
  };
}

export function fromChildError(error: ChildError): WarmpathError {
  const code = error.code in ERROR_TABLE ? error.code : 'WARMPATH_INTERNAL';
  return new WarmpathError(code, { detail: error.detail, ...(error.path !== undefined && { path: error.path }) });
}
