import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { WarmpathError } from '@warmpath/core';
import { Pool } from 'undici';
import { type ChildMessage, fromChildError, type StartMessage } from '../child-messages.js';
import type { EngineHooks, ServedModel } from '../server.js';
import { watchHeartbeat } from './heartbeat.js';

/** Time for a worker to end after its running requests had theirs. */
const STOP_MARGIN_MS = 5_000;

/** The front closes idle connections to the worker: Fastify would close them after 72 s. */
const KEEP_ALIVE_MS = 60_000;

/** A process that holds llama.cpp and the loop, and listens. */
export interface Worker {
  readonly pid: number;
  readonly model: ServedModel;
  readonly cells: number;
  readonly pool: Pool;
  /** Settles with the reason when the process has ended. Never rejects. */
  readonly exited: Promise<WarmpathError>;
  /** Asks it to finish what runs and to end, and kills it when it takes longer than `graceMs` and a margin. */
  stop(graceMs: number): Promise<void>;
}

/**
 * Starts a worker and waits until it listens. One that hangs later is killed.
 *
 * @throws What `startEngineServer` throws; WARMPATH_ENGINE_FAILED when it ends before it listens; the signal's reason.
 */
export async function startWorker(start: StartMessage, hooks: EngineHooks): Promise<Worker> {
  const { signal } = hooks;
  signal?.throwIfAborted();
  const child = fork(fileURLToPath(new URL('../../dist/main.js', import.meta.url)), [], {
    // The parent may print JSON to standard output; the worker must not write in between.
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [],
  });
  let reason: WarmpathError | undefined;
  const exited = new Promise<WarmpathError>((resolve) => {
    child.once('exit', (code, by) => resolve(reason ?? ended(by === null ? `exit code ${code}` : `signal ${by}`)));
    child.once('error', (error) => resolve(ended(error.message)));
  });
  const kill = (): boolean => child.kill('SIGKILL');
  signal?.addEventListener('abort', kill, { once: true });
  let listening: Extract<ChildMessage, { type: 'listening' }>;
  try {
    listening = await new Promise((resolve, reject) => {
      child.on('message', (message: ChildMessage) => {
        if (message.type === 'progress') {
          hooks.onProgress?.(message.event);
        } else if (message.type === 'listening') {
          resolve(message);
        } else if (message.type === 'failed') {
          reason = fromChildError(message.error);
        }
      });
      void exited.then((error) => reject(signal?.aborted === true ? (signal.reason as Error) : error));
      // A process that cannot be reached is about to exit.
      child.send(start, () => undefined);
    });
  } finally {
    signal?.removeEventListener('abort', kill);
  }
  const endWatch = watchHeartbeat(child, (detail) => {
    reason = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail });
    kill();
  });
  const pool = poolTo(start.socketPath);
  void exited.then(() => {
    endWatch();
    return pool.destroy();
  });
  const stop = async (graceMs: number): Promise<void> => {
    endWatch();
    await stopProcess(child, graceMs + STOP_MARGIN_MS, exited);
  };
  return { pid: child.pid!, model: listening.model, cells: listening.cells, pool, exited, stop };
}

function poolTo(socketPath: string): Pool {
  return new Pool('http://worker', {
    socketPath,
    connections: null,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    // A long queue or prompt is no failure; a worker that is gone closes its connections.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
}

async function stopProcess(child: ChildProcess, killAfterMs: number, exited: Promise<unknown>): Promise<void> {
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), killAfterMs);
  await exited;
  clearTimeout(timer);
}

function ended(how: string): WarmpathError {
  return new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: `The engine process ended: ${how}.` });
}
