import { type ChildMessage, type ParentMessage, type StartMessage, toChildError } from './child-messages.js';
import type { ModelProgress } from './models/download.js';
import { type EngineServer, startEngineServer } from './server.js';

/** The parent may be gone meanwhile; the disconnection then ends this process. */
function tell(message: ChildMessage): void {
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}

/** The worker's entry point: options come and news go over the IPC channel. */
async function runWorker(): Promise<void> {
  const ends = new AbortController();
  process.once('disconnect', () => ends.abort());
  // A terminal's Ctrl+C reaches the whole group; the parent decides when the engine ends.
  process.on('SIGINT', () => undefined);
  let server: EngineServer | undefined;
  const { options, socketPath } = await new Promise<StartMessage>((resolve) => {
    process.on('message', (message: ParentMessage) =>
      message.type === 'start' ? resolve(message) : tell({ type: 'pong', decoding: server?.decoding() }),
    );
  });
  try {
    const onProgress = (event: ModelProgress): void => tell({ type: 'progress', event });
    server = await startEngineServer(options, { onProgress, signal: ends.signal, socketPath });
    const stopped = new Promise<undefined>((resolve) => {
      process.once('SIGTERM', () => resolve(undefined));
      ends.signal.addEventListener('abort', () => resolve(undefined));
      if (ends.signal.aborted) resolve(undefined);
    });
    tell({ type: 'listening', model: server.model, cells: server.cells });
    const failure = await Promise.race([stopped, server.failed]);
    await server.close();
    if (failure !== undefined) throw failure;
  } catch (error) {
    tell({ type: 'failed', error: toChildError(error) });
    process.exitCode = 1;
  }
  if (process.connected) process.disconnect();
}

if (process.send === undefined) throw new Error('This program is started by the engine; run `warmpath engine`');
await runWorker();
