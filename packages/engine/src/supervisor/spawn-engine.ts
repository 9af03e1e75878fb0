import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import type { Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { WarmpathError } from '@warmpath/core';
import { closeServer } from '../http/slow-clients.js';
import { baseUrl, cannotListen, type ListenAddress } from '../listen-address.js';
import { type EngineOptions, parseEngineOptions } from '../options.js';
import type { EngineHooks, EngineServer } from '../server.js';
import { Front } from './front.js';
import { Supervisor } from './supervisor.js';
import { startWorker, type Worker } from './worker.js';

/** An engine that listens in this process and computes in another, which is started again when it crashes. */
export interface EngineProcess extends Pick<EngineServer, 'url' | 'model' | 'cells'> {
  /** The process that computes, as far as is known; `undefined` while there is none. */
  readonly pid: number | undefined;
  readonly restarts: number;
  /** Settles when the engine is given up, because it could not be started again; stays pending otherwise. */
  readonly failed: Promise<WarmpathError>;
  /** Lets running requests finish within `graceMs` (default: `shutdownGraceMs`) and ends both. Safe to call again. */
  stop(graceMs?: number): Promise<void>;
}

/** What accompanies the start of an engine process and is no configuration. */
export interface SpawnHooks extends EngineHooks {
  /** The key that each request must carry as `Authorization: Bearer …`, except a bare `GET /health`. */
  readonly key?: string;
  /** Gets the reason of every crash of the process that computes; another is started by then, or it was given up. */
  readonly onCrash?: (error: WarmpathError) => void;
}

/**
 * Starts the engine as two processes: this one holds the listening socket and the clients' connections, a child holds
 * llama.cpp. When the child crashes or hangs, another is started and gets the requests that have no answer yet;
 * streams that had begun end with an error. The child ends by itself when this process goes away.
 *
 * @throws Everything that `startEngineServer` throws; WARMPATH_ENGINE_FAILED when the child ends before it listens; the
 *   signal's reason.
 */
export async function spawnEngine(options: EngineOptions = {}, hooks: SpawnHooks = {}): Promise<EngineProcess> {
  const settings = parseEngineOptions(options);
  hooks.signal?.throwIfAborted();
  const sockets = await openSocketPaths();
  const supervisor = new Supervisor<Worker>({
    start: (signal) => startWorker({ type: 'start', options, socketPath: sockets.next() }, { ...hooks, signal }),
    clock: () => performance.now(),
    wait: (ms, signal) => delay(ms, undefined, { signal }),
    onCrash: (error) => hooks.onCrash?.(error),
  });
  const { server } = new Front({
    access: { host: settings.host, key: hooks.key },
    supervisor,
    bodyLimitBytes: settings.bodyLimitBytes,
    heldLimit: settings.queueLimit + settings.maxRunning,
  });
  let stopping: Promise<void> | undefined;
  const stop = (graceMs = settings.shutdownGraceMs): Promise<void> => {
    stopping ??= end(supervisor, server, graceMs).finally(() => sockets.remove());
    return stopping;
  };
  try {
    await listen(server, settings);
    const { model, cells } = await supervisor.start(hooks.signal);
    return {
      url: baseUrl(server.address()),
      model,
      cells,
      failed: supervisor.failed,
      get pid() {
        return supervisor.worker?.pid;
      },
      get restarts() {
        return supervisor.restarts;
      },
      stop,
    };
  } catch (error) {
    await stop(0);
    throw error;
  }
}

function listen(server: Server, address: ListenAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause) => reject(cannotListen(address, cause)));
    server.listen({ host: address.host, port: address.port }, resolve);
  });
}

/** Answers what runs, refuses what comes, then closes every connection. */
async function end(supervisor: Supervisor<Worker>, server: Server, graceMs: number): Promise<void> {
  await supervisor.close(graceMs);
  await closeServer(server, () => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeIdleConnections();
    return closed;
  });
}

/**
 * Where workers listen: Unix domain sockets in a folder that only this user can enter, named pipes on Windows. Each
 * worker has a path of its own: one that is slow to end must not take the next one's connections.
 */
async function openSocketPaths(): Promise<{ next(): string; remove(): Promise<void> }> {
  if (process.platform === 'win32') {
    return { next: () => `\\\\.\\pipe\\warmpath-engine-${randomUUID()}`, remove: () => Promise.resolve() };
  }
  const folder = await mkdtemp(join(tmpdir(), 'warmpath-engine-'));
  let count = 0;
  return {
    next: () => join(folder, `worker-${++count}`),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
