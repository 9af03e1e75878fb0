import { Socket } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import {
  CHILD_ARGUMENT,
  type ChildMessage,
  type ParentMessage,
  type StartMessage,
  toChildError,
  WORKER_ARGUMENT,
} from './child-messages.js';
import { failureText, runEngineCommand, serveUntil } from './command.js';
import type { KvEventPublisher } from './events/kv-event.js';
import { helpText, parseCommandLine } from './flags.js';
import type { EngineServer, WorkerHooks } from './server.js';
import { RECORDS_DESCRIPTOR } from './supervisor/answer-records.js';
import { loadLimitMs } from './supervisor/heartbeat.js';
import { type SupervisedEngine, startSupervisedEngine } from './supervisor/supervised-engine.js';

/** Exit code for a wrong option, as of most commands; 1 is for everything else that goes wrong. */
const EXIT_USAGE = 2;

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
    const announce = (): void => tell({ type: 'listening', url, model, cells, loadMs });
    await serveUntil(server, announce, ['SIGTERM'], parentGone.signal);
  } catch (error) {
    tell({ type: 'failed', error: toChildError(error) });
    process.exitCode = 1;
  }
  if (process.connected) {
    process.disconnect();
  }
}

/** The entry point as the command `warmpath-engine`: every option of the schema is a flag. */
async function runCommand(args: string[]): Promise<void> {
  const json = process.stdout.isTTY !== true;
  let isServer = false;
  // An engine serves on where nobody reads what it says, or a disk is full; a result that is lost is a failure.
  process.stdout.on('error', () => {
    if (!isServer) process.exitCode = 1;
  });
  process.stderr.on('error', () => undefined);
  try {
    const line = parseCommandLine(args);
    if (line.help) {
      process.stdout.write(helpText());
    } else {
      isServer = true;
      await runEngineCommand(line.options);
    }
  } catch (error) {
    process.stderr.write(failureText(error, json));
    const isUsage = WarmpathError.isInstance(error) && error.code === 'WARMPATH_CONFIG_INVALID';
    process.exitCode = isUsage ? EXIT_USAGE : 1;
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
    await runCommand(process.argv.slice(2));
}
