import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { WarmpathError } from '@warmpath/core';
import {
  CHILD_ARGUMENT,
  type ChildMessage,
  fromChildError,
  type StartMessage,
  WORKER_ARGUMENT,
} from './child-messages.js';
import type { KvEventPublisher } from './events/kv-event.js';
import { type EngineOptions, parseEngineOptions } from './options.js';
import type { EngineHooks, ServedModel } from './server.js';

/** Time for an engine to end after its running requests had theirs. */
export const STOP_MARGIN_MS = 5_000;

/** How an engine process ended: its exit code, or the signal that ended it. */
export interface EngineExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Why, when the engine could say so before it ended. */
  readonly error?: WarmpathError;
}

/** What a child says when it listens. */
type Listening = Omit<Extract<ChildMessage, { readonly type: 'listening' }>, 'type'>;

/** What a parent hears of its child. */
export interface ChildHooks extends EngineHooks {
  /** Gets the KV events of a worker, until it has ended. */
  readonly kvEvents?: Pick<KvEventPublisher, 'publish'>;
  /** Gets the process before it listens. */
  readonly onFork?: (child: Pick<ListeningChild, 'process' | 'exited'>) => void;
}

/** An engine in a child process that listens. */
export interface ListeningChild extends Listening {
  readonly process: ChildProcess;
  /** Settles when the process has ended, for whatever reason. Never rejects. */
  readonly exited: Promise<EngineExit>;
}

/** An engine that runs in a process of its own and listens. */
export interface EngineProcess {
  /** Base URL, without a slash at its end. */
  readonly url: string;
  readonly model: ServedModel;
  /** KV cells in all. */
  readonly cells: number;
  /** The supervisor, which listens; what computes is a child of it. */
  readonly pid: number;
  /** Settles when the process has ended, for whatever reason. Never rejects. */
  readonly exited: Promise<EngineExit>;
  /**
   * Asks the engine to finish what runs and to end, and kills it when it takes longer than `killAfterMs` (default: its
   * own grace for running requests and 10 s more). Safe to call again.
   */
  stop(killAfterMs?: number): Promise<EngineExit>;
}

/**
 * Starts the engine, supervised, in a child process and waits until it listens. A crash in native code ends a process
 * below that child only, which starts another. Both end by themselves when this process goes away.
 *
 * @throws Everything that `startEngineServer` throws; WARMPATH_ENGINE_FAILED when the process ends before it listens;
 *   the signal's reason.
 */
export async function spawnEngine(options: EngineOptions = {}, hooks: EngineHooks = {}): Promise<EngineProcess> {
  const settings = parseEngineOptions(options);
  const child = await startChild(CHILD_ARGUMENT, { type: 'start', options }, hooks);
  return {
    url: child.url,
    model: child.model,
    cells: child.cells,
    pid: child.process.pid!,
    exited: child.exited,
    // The supervisor gives its worker the one margin, and gets another to end itself.
    stop: (killAfterMs = settings.shutdownGraceMs + 2 * STOP_MARGIN_MS) => stopChild(child, killAfterMs),
  };
}

/**
 * Runs the engine's entry point in a child process and waits until it listens.
 *
 * @param argument Which part it plays.
 * @throws What the child says it failed with; WARMPATH_ENGINE_FAILED when it ends before it listens; the signal's
 *   reason.
 */
export async function startChild(argument: string, start: StartMessage, hooks: ChildHooks): Promise<ListeningChild> {
  hooks.signal?.throwIfAborted();
  const child = fork(fileURLToPath(new URL('../dist/main.js', import.meta.url)), [argument], {
    // Output of the child is for people; a parent that prints JSON must not find it in between.
    stdio: ['ignore', 'ignore', 'inherit', 'ipc', argument === WORKER_ARGUMENT ? 'pipe' : 'ignore'],
    execArgv: [],
  });
  const exited = exitOf(child);
  hooks.onFork?.({ process: child, exited });
  const listening = await waitUntilListening(child, exited, start, hooks);
  return { ...listening, process: child, exited };
}

/** Asks a child to finish what runs and to end, and kills it when it takes longer. */
export async function stopChild(
  child: Pick<ListeningChild, 'process' | 'exited'>,
  killAfterMs: number,
): Promise<EngineExit> {
  child.process.kill('SIGTERM');
  const timer = setTimeout(() => child.process.kill('SIGKILL'), killAfterMs);
  const exit = await child.exited;
  clearTimeout(timer);
  return exit;
}

/** @returns In words for an error's detail. */
export function describeExit({ code, signal, error }: EngineExit): string {
  if (error !== undefined) {
    return error.message;
  }
  return signal === null ? `exit code ${code}` : `signal ${signal}`;
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
  start: StartMessage,
  hooks: ChildHooks,
): Promise<Listening> {
  const onAbort = (): void => {
    child.kill('SIGKILL');
  };
  let isGone = false;
  void exited.then(() => {
    isGone = true;
  });
  hooks.signal?.addEventListener('abort', onAbort, { once: true });
  try {
    return await new Promise((resolve, reject) => {
      child.on('message', (message: ChildMessage) => {
        if (message.type === 'progress') {
          hooks.onProgress?.(message.event);
        } else if (message.type === 'listening') {
          resolve(message);
        } else if (message.type === 'kv-events') {
          // What comes after its end is of a cache that is known to be gone.
          isGone || hooks.kvEvents?.publish(message.batch);
        } else if (message.type === 'crashed') {
          hooks.onCrash?.(fromChildError(message.error));
        } else if (message.type === 'failed') {
          reject(fromChildError(message.error));
        }
      });
      void exited.then((exit) => {
        hooks.signal?.aborted === true ? reject(hooks.signal.reason) : reject(endedTooSoon(exit));
      });
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

function endedTooSoon(exit: EngineExit): WarmpathError {
  return new WarmpathError('WARMPATH_ENGINE_FAILED', {
    detail: `The engine process ended before it was ready (${describeExit(exit)}).`,
  });
}
