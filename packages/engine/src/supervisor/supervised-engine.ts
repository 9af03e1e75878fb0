import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import type { Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { KvEventPublisher } from '../events/kv-event.js';
import { openKvEvents } from '../events/open-publisher.js';
import { closeServer } from '../http/slow-clients.js';
import { baseUrl, cannotListen, type ListenAddress } from '../listen-address.js';
import { type EngineOptions, parseEngineOptions } from '../options.js';
import type { EngineHooks, EngineServer } from '../server.js';
import { Front } from './front.js';
import { FrontMetrics } from './front-metrics.js';
import { Supervisor } from './supervisor.js';
import { startWorker, type Worker } from './worker.js';

/** An engine that listens in this process and computes in another, which is started again when it crashes. */
export interface SupervisedEngine extends Omit<EngineServer, 'stats' | 'decoding'> {
  /** The process that computes, as far as is known; `undefined` while there is none. */
  readonly workerPid: number | undefined;
  /** Restarts since the start. */
  readonly restarts: number;
}

/** What accompanies the start of a supervised engine. */
export interface SupervisedHooks extends EngineHooks {
  /** The key that each request must carry as `Authorization: Bearer …`, except a bare `GET /health`. */
  readonly key?: string;
}

/**
 * Starts the engine as two processes: this one holds the listening socket and the clients' connections, a child holds
 * llama.cpp. When the child crashes or hangs, another is started and gets the requests that have no answer yet; streams
 * go on behind what their clients have.
 *
 * @throws Everything that `startEngineServer` throws; WARMPATH_ENGINE_FAILED when the child ends before it listens.
 */
export async function startSupervisedEngine(
  options: EngineOptions = {},
  hooks: SupervisedHooks = {},
): Promise<SupervisedEngine> {
  const settings = parseEngineOptions(options);
  hooks.signal?.throwIfAborted();
  const kvEvents = await openKvEvents(settings);
  const sockets = await openSocketPaths();
  let loadedMs: number | undefined;
  const supervisor = new Supervisor<Worker>({
    start: async (signal) => {
      const worker = await startWorker(
        { options, socketPath: sockets.next(), loadedMs },
        {
          signal,
          ...(hooks.onProgress !== undefined && { onProgress: hooks.onProgress }),
          ...(kvEvents !== undefined && { kvEvents }),
        },
      );
      loadedMs = Math.max(loadedMs ?? 0, worker.loadMs);
      return worker;
    },
    clock: () => performance.now(),
    wait: (ms, signal) => delay(ms, undefined, { signal }),
    onCrash: (error) => {
      cacheIsGone(kvEvents);
      hooks.onCrash?.(error);
    },
  });
  const metrics = new FrontMetrics(
    () => supervisor.worker !== undefined,
    () => supervisor.restarts,
  );
  if (kvEvents !== undefined) {
    metrics.watchEvents(() => kvEvents.stats);
  }
  const { server } = new Front({
    access: { host: settings.host, key: hooks.key },
    supervisor,
    metrics,
    bodyLimitBytes: settings.bodyLimitBytes,
    heldLimit: settings.queueLimit + settings.maxRunning,
    clock: () => performance.now(),
  });
  let closing: Promise<void> | undefined;
  const close = (graceMs = settings.shutdownGraceMs): Promise<void> => {
    closing ??= end(supervisor, server, graceMs).finally(async () => {
      cacheIsGone(kvEvents);
      await Promise.all([kvEvents?.close(), sockets.remove()]);
    });
    return closing;
  };
  try {
    await listen(server, settings);
    const worker = await supervisor.start(hooks.signal);
    metrics.name(worker.model.name);
    return {
      url: baseUrl(server.address()),
      model: worker.model,
      cells: worker.cells,
      failed: supervisor.failed,
      get workerPid() {
        return supervisor.worker?.pid;
      },
      get restarts() {
        return supervisor.restarts;
      },
      close: () => close(),
    };
  } catch (error) {
    await close(0);
    throw error;
  }
}

/** The worker may not have been able to say so itself. */
function cacheIsGone(kvEvents: KvEventPublisher | undefined): void {
  kvEvents?.publish({ timestamp: Date.now() / 1000, events: [{ type: 'cleared' }] });
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
 * path is of one worker alone: one that is slow to go must not take the next one's connections.
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
