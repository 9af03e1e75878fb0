#!/usr/bin/env node
import { WarmpathError } from '@warmpath/core';
import { failureText, runEngineCommand, serveUntil } from './command.js';
import { helpText, parseCommandLine } from './flags.js';
import { CHILD_ARGUMENT, type ChildMessage, type StartMessage, toChildError } from './process.js';
import { startEngineServer } from './server.js';

/** Exit code for a wrong option, as of most commands; 1 is for everything else that goes wrong. */
const EXIT_USAGE = 2;

/** The entry point as the child of `spawnEngine`: options come and news go over the IPC channel. */
async function runChild(): Promise<void> {
  const tell = (message: ChildMessage): void => {
    if (process.connected) {
      process.send?.(message);
    }
  };
  const parentGone = new AbortController();
  process.once('disconnect', () => parentGone.abort());
  // A terminal's Ctrl+C reaches the whole group; the parent decides when the engine ends.
  process.on('SIGINT', () => undefined);
  const { options } = await new Promise<StartMessage>((resolve) => {
    process.once('message', (message: StartMessage) => resolve(message));
  });
  try {
    const server = await startEngineServer(options, {
      onProgress: (event) => tell({ type: 'progress', event }),
      signal: parentGone.signal,
    });
    tell({ type: 'listening', url: server.url, model: server.model, cells: server.cells });
    await serveUntil(server, ['SIGTERM'], parentGone.signal);
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
  try {
    const line = parseCommandLine(args);
    if (line.help) {
      process.stdout.write(helpText());
    } else {
      await runEngineCommand(line.options);
    }
  } catch (error) {
    process.stderr.write(failureText(error, json));
    const isUsage = WarmpathError.isInstance(error) && error.code === 'WARMPATH_CONFIG_INVALID';
    process.exitCode = isUsage ? EXIT_USAGE : 1;
  }
}

if (process.argv[2] === CHILD_ARGUMENT) {
  await runChild();
} else {
  await runCommand(process.argv.slice(2));
}
