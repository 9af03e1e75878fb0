import { type ErrorCode, WarmpathError } from '@warmpath/core';
import { ERROR_TABLE } from '@warmpath/core/internal';
import type { DecodeInFlight } from './loop/decode-step.js';
import type { ModelProgress } from './models/download.js';
import type { EngineOptions } from './options.js';
import type { ServedModel } from './server.js';

export interface StartMessage {
  readonly type: 'start';
  readonly options: EngineOptions;
  /** Unix domain socket or named pipe to listen on. */
  readonly socketPath: string;
}

/** What a parent sends: how to start, and later a question whether the worker still answers. */
export type ParentMessage = StartMessage | { readonly type: 'ping' };

export type ChildMessage =
  | { readonly type: 'progress'; readonly event: ModelProgress }
  | { readonly type: 'listening'; readonly model: ServedModel; readonly cells: number }
  | { readonly type: 'failed'; readonly error: ChildError }
  | { readonly type: 'pong'; readonly decoding: DecodeInFlight | undefined };

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
