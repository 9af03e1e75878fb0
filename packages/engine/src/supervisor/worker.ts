import type { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import { Pool } from 'undici';
import { type ChildMessage, type ParentMessage, WORKER_ARGUMENT } from '../child-messages.js';
import {
  type ChildHooks,
  type EngineExit,
  type ListeningChild,
  STOP_MARGIN_MS,
  startChild,
  stopChild,
} from '../child-process.js';
import type { EngineOptions } from '../options.js';
import type { ServedModel } from '../server.js';
import { RECORDS_DESCRIPTOR, RecordReader } from './answer-records.js';
import { type WatchedChild, watchHeartbeat } from './heartbeat.js';

/** Idle connections to the worker are closed from this side: Fastify would close them after 72 s. */
const KEEP_ALIVE_MS = 60_000;

/** What the front and the supervisor need of a worker. */
export interface Worker {
  readonly pid: number;
  readonly model: ServedModel;
  readonly cells: number;
  /** Milliseconds that loading its model took. */
  readonly loadMs: number;
  /** Connections to it. */
  readonly pool: Pool;
  /** What it streams. */
  readonly records: RecordReader;
  /** Settles when the process has ended. Never rejects. */
  readonly exited: Promise<EngineExit>;
  /**
   * Whether the process still answers. A process that has just crashed may not be known to be gone yet; this waits
   * until it is known.
   */
  isAlive(): Promise<boolean>;
  /** Asks it to finish what runs and to end, and kills it when it takes longer than `graceMs` and a margin. */
  stop(graceMs: number): Promise<EngineExit>;
}

/** What a worker is started with. */
export interface WorkerStart {
  readonly options: EngineOptions;
  /** Unix domain socket or named pipe to listen on; no other worker may have had it. */
  readonly socketPath: string;
  /** The longest that loading has taken one before it. */
  readonly loadedMs: number | undefined;
}

/**
 * Starts the process that holds llama.cpp and the loop, on a socket of its own. One that hangs is ended, also while it
 * loads its model.
 *
 * @throws What `startEngineServer` throws; WARMPATH_ENGINE_FAILED when it ends before it listens; the signal's reason.
 */
export async function startWorker(start: WorkerStart, hooks: ChildHooks): Promise<Worker> {
  const { options, socketPath, loadedMs } = start;
  const message = {
    type: 'start',
    options,
    socketPath,
    ...(loadedMs !== undefined && { loadedMs }),
  } as const;
  let hang: WarmpathError | undefined;
  let endWatch = (): void => undefined;
  const onFork = (forked: WatchedChild): void => {
    endWatch = watchHeartbeat(forked, (detail) => {
      hang = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail });
      forked.process.kill('SIGKILL');
    });
  };
  const child = await startChild(WORKER_ARGUMENT, message, { ...hooks, onFork }).catch((error: unknown) => {
    endWatch();
    throw hang ?? error;
  });
  const pool = new Pool('http://worker', {
    socketPath,
    connections: null,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    // A long queue or prompt is no failure; a worker that is gone closes its connections.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  const records = new RecordReader(child.process.stdio[RECORDS_DESCRIPTOR] as Readable);
  // Without it nothing can be streamed.
  void records.closed.then(() => child.process.kill('SIGKILL'));
  // What is in flight hears of it through its own connection.
  void child.exited.then(() => pool.destroy());
  return {
    pid: child.process.pid!,
    model: child.model,
    cells: child.cells,
    loadMs: child.loadMs,
    pool,
    records,
    exited: child.exited.then((exit) => (hang === undefined ? exit : { ...exit, error: hang })),
    isAlive: questionTo(child),
    stop: (graceMs) => {
      endWatch();
      return stopChild(child, graceMs + STOP_MARGIN_MS);
    },
  };
}

/**
 * What asks a process whether it still answers. One whose loop has failed says so before it answers anything else, and
 * ends as soon as everybody knows. Listens once for all questions: a worker may live for ever, and each of its failures
 * is a question.
 */
export function questionTo({
  process: child,
  exited,
}: Pick<ListeningChild, 'process' | 'exited'>): () => Promise<boolean> {
  /** The number of the latest question: the heartbeat's have none. */
  let number = 0;
  let asked: Promise<boolean> | undefined;
  let answer: ((isAlive: boolean) => void) | undefined;
  let isGone = false;
  const settle = (isAlive: boolean): void => {
    answer?.(isAlive);
    answer = undefined;
    asked = undefined;
  };
  child.on('message', (message: ChildMessage) => {
    if (message.type === 'pong' && message.id === number && !message.isEnding) settle(true);
  });
  void exited.then(() => {
    isGone = true;
    settle(false);
  });
  return () => {
    if (isGone) return Promise.resolve(false);
    // After a crash, everything that was in flight asks at once.
    asked ??= new Promise((resolve) => {
      answer = resolve;
      const ping: ParentMessage = { type: 'ping', id: ++number };
      // A closed channel means that the process is about to be gone.
      child.send(ping, () => undefined);
    });
    return asked;
  };
}
