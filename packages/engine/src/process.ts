import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { ERROR_TABLE, type ErrorCode, WarmpathError } from '@warmpath/core';
import type { ModelProgress } from './models/progress.js';
import { type EngineOptions, parseEngineOptions } from './options.js';
import type { EngineHooks, ServedModel } from './server.js';

/** What the parent tells the child, once. */
export interface StartMessage {
  readonly type: 'start';
  readonly options: EngineOptions;
}

/** What the child tells the parent. */
export type ChildMessage =
  | { readonly type: 'progress'; readonly event: ModelProgress }
  | { readonly type: 'listening'; readonly url: string; readonly model: ServedModel; readonly cells: number }
  | { readonly type: 'failed'; readonly error: ChildError };

/** A WarmpathError on its way between processes. */
export interface ChildError {
  readonly code: ErrorCode;
  readonly path?: string;
  /** The message without the path. */
  readonly detail: string;
}

/** How an engine process ended: its exit code, or the signal that ended it. */
export interface EngineExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Why, when the engine could say so before it ended. */
  readonly error?: WarmpathError;
}

/** An engine that runs in a process of its own and listens. */
export interface EngineProcess {
  /** Base URL, without a slash at its end. */
  readonly url: string;
  readonly model: ServedModel;
  /** KV cells in all. */
  readonly cells: number;
  readonly pid: number;
  /** Settles when the process has ended, for whatever reason. Never rejects. */
  readonly exited: Promise<EngineExit>;
  /**
   * Asks the engine to finish what runs and to end, and kills it when it takes longer than `killAfterMs` (default: its
   * own grace for running requests and 5 s more). Safe to call again.
   */
  stop(killAfterMs?: number): Promise<EngineExit>;
}

/** Argument that makes the entry point a child of {@link spawnEngine}. */
export const CHILD_ARGUMENT = '--child';

/** Time for the engine to end after its running requests had theirs. */
const STOP_MARGIN_MS = 5_000;

/**
 * Starts the engine in a child process and waits until it listens. A crash in native code ends the child only. The
 * child ends by itself when this process goes away.
 *
 * @throws Everything that `startEngineServer` throws; WARMPATH_ENGINE_FAILED when the process ends before it listens;
 *   the signal's reason.
 */
export async function spawnEngine(options: EngineOptions = {}, hooks: EngineHooks = {}): Promise<EngineProcess> {
  const settings = parseEngineOptions(options);
  hooks.signal?.throwIfAborted();
  const child = fork(fileURLToPath(new URL('../dist/main.js', import.meta.url)), [CHILD_ARGUMENT], {
    // Output of the child is for people; a parent that prints JSON must not find it in between.
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [],
  });
  const exited = exitOf(child);
  const listening = await waitUntilListening(child, exited, options, hooks);
  return {
    ...listening,
    pid: child.pid!,
    exited,
    stop: (killAfterMs = settings.shutdownGraceMs + STOP_MARGIN_MS) => stop(child, exited, killAfterMs),
  };
}

function exitOf(child: ChildProcess): Promise<EngineExit> {
  let error: WarmpathError | undefined;
  child.on('message', (message: ChildMessage) => {
    if (message.type === 'failed') {
      error = fromChildError(message.error);
    }
  });
  return new Promise((resolve) => {
    const settle = (code: number | null, signal: NodeJS.Signals | null): void =>
      resolve({ code, signal, ...(error !== undefined && { error }) });
    child.once('exit', settle);
    child.once('error', () => settle(null, null));
  });
}

async function waitUntilListening(
  child: ChildProcess,
  exited: Promise<EngineExit>,
  options: EngineOptions,
  hooks: EngineHooks,
): Promise<Pick<EngineProcess, 'url' | 'model' | 'cells'>> {
  const onAbort = (): void => {
    child.kill('SIGKILL');
  };
  hooks.signal?.addEventListener('abort', onAbort, { once: true });
  try {
    return await new Promise((resolve, reject) => {
      child.on('message', (message: ChildMessage) => {
        if (message.type === 'progress') {
          hooks.onProgress?.(message.event);
        } else if (message.type === 'listening') {
          resolve({ url: message.url, model: message.model, cells: message.cells });
        } else {
          reject(fromChildError(message.error));
        }
      });
      void exited.then((exit) => {
        hooks.signal?.aborted === true ? reject(hooks.signal.reason) : reject(endedTooSoon(exit));
      });
      const start: StartMessage = { type: 'start', options };
      child.send(start, (error) => {
        if (error !== null) {
          reject(new WarmpathError('WARMPATH_ENGINE_FAILED', { cause: error }));
        }
      });
    });
  } finally {
    hooks.signal?.removeEventListener('abort', onAbort);
  }
}

async function stop(child: ChildProcess, exited: Promise<EngineExit>, killAfterMs: number): Promise<EngineExit> {
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), killAfterMs);
  const exit = await exited;
  clearTimeout(timer);
  return exit;
}

function endedTooSoon({ code, signal }: EngineExit): WarmpathError {
  const how = signal === null ? `exit code ${code}` : `signal ${signal}`;
  return new WarmpathError('WARMPATH_ENGINE_FAILED', {
    detail: `The engine process ended before it was ready (${how}).`,
  });
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

function fromChildError(error: ChildError): WarmpathError {
  const code = error.code in ERROR_TABLE ? error.code : 'WARMPATH_INTERNAL';
  return new WarmpathError(code, { detail: error.detail, ...(error.path !== undefined && { path: error.path }) });
}
