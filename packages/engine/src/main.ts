import { Socket } from 'node:net';
import {
  CHILD_ARGUMENT,
  type ChildMessage,
  type ParentMessage,
  type StartMessage,
  toChildError,
  WORKER_ARGUMENT,
} from './child-messages.js';
import type { KvEventPublisher } from './events/kv-event.js';
import type { EngineServer, WorkerHooks } from './server.js';
import { RECORDS_DESCRIPTOR } from './supervisor/answer-records.js';
import { loadLimitMs } from './supervisor/heartbeat.js';
import { type SupervisedEngine, startSupervisedEngine } from './supervisor/supervised-engine.js';

/** What a child runs: the supervised engine for `spawnEngine`, the engine itself for a supervisor. */
type ChildEngine = Pick<SupervisedEngine, 'url' | 'model' | 'cells' | 'failed' | 'close'> &
  Partial<Pick<EngineServer, 'decoding'>>;

/** A parent that goes meanwhile hears no more of it; what then ends the process is the disconnection. */
function tell(message: ChildMessage): void {
  if (process.connected) {
    process.send?.(message, undefined, undefined, () => undefined);
  }
}

/** A worker's way to the publisher of its supervisor, which outlives it. */
const publisherInFront: KvEventPublisher = {
  publish: (batch) => tell({ type: 'kv-events', batch }),
  close: () => Promise.resolve(),
};

/** A worker's pipe to its front. It does not keep the process alive. */
function recordsPipe(): Socket {
  return new Socket({ fd: RECORDS_DESCRIPTOR, readable: false, writable: true }).unref();
}

/** The entry point as a child: options come and news go over the IPC channel. */
async function runChild(start: (message: StartMessage, hooks: WorkerHooks) => Promise<ChildEngine>): Promise<void> {
  const parentGone = new AbortController();
  process.once('disconnect', () => parentGone.abort());
  // A terminal's Ctrl+C reaches the whole group; the parent decides when the engine ends.
  process.on('SIGINT', () => undefined);
  let isEnding = false;
  let server: ChildEngine | undefined;
  let loadLimit: number | undefined;
  let startedMs = performance.now();
  const message = await new Promise<StartMessage>((resolve) => {
    process.on('message', (received: ParentMessage) =>
      received.type === 'start'
        ? resolve(received)
        : tell({
            ...received,
            type: 'pong',
            isEnding,
            decoding: server?.decoding?.(),
            loading: server === undefined ? { limitMs: loadLimit } : undefined,
          }),
    );
  });
  try {
    server = await start(message, {
      onProgress: (event) => tell({ type: 'progress', event }),
      onCrash: (error) => tell({ type: 'crashed', error: toChildError(error) }),
      onModelFile: (bytes) => {
        startedMs = performance.now();
        loadLimit = loadLimitMs(bytes, message.loadedMs);
      },
      signal: parentGone.signal,
    });
    const { url, model, cells } = server;
    void server.failed.then(() => {
      isEnding = true;
    });
    const loadMs = performance.now() - startedMs;
    const stopped = new Promise<void>((resolve) => {
      process.once('SIGTERM', () => resolve());
      parentGone.signal.addEventListener('abort', () => resolve());
      if (parentGone.signal.aborted) resolve();
    });
    tell({ type: 'listening', url, model, cells, loadMs });
    const failure = await Promise.race([stopped, server.failed]);
    await server.close();
    if (failure !== undefined) throw failure;
  } catch (error) {
    tell({ type: 'failed', error: toChildError(error) });
    process.exitCode = 1;
  }
  if (process.connected) {
    process.disconnect();
  }
}

switch (process.argv[2]) {
  case CHILD_ARGUMENT:
    await runChild(({ options }, hooks) => startSupervisedEngine(options, hooks));
    break;
  case WORKER_ARGUMENT:
    await runChild(async ({ options, socketPath }, hooks) => {
      // Loaded by the worker alone: the process in front of it does without the native library and half the memory.
      const { startEngineServer } = await import('./server.js');
      return startEngineServer(options, {
        ...hooks,
        ...(socketPath !== undefined && { front: { socketPath, records: recordsPipe() } }),
        ...(options.kvEvents !== undefined && { kvEvents: publisherInFront }),
      });
    });
    break;
  default:
    throw new Error('This program is started by the engine; run `warmpath engine`');
}
