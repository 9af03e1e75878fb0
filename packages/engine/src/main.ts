#!/usr/bin/env node
import { parseArgs } from 'node:util';
import { WarmpathError } from '@warmpath/core';
import { z } from 'zod';
import { failureText, runEngineCommand, stopSignal } from './command.js';
import { type EngineOptions, engineOptionsSchema } from './options.js';
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
    await stopSignal(['SIGTERM'], parentGone.signal);
    await server.close();
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
    await runEngineCommand(optionsFromFlags(args));
  } catch (error) {
    process.stderr.write(failureText(error, json));
    const isUsage = WarmpathError.isInstance(error) && error.code === 'WARMPATH_CONFIG_INVALID';
    process.exitCode = isUsage ? EXIT_USAGE : 1;
  }
}

function optionsFromFlags(args: string[]): EngineOptions {
  const shape = engineOptionsSchema.shape;
  const names = Object.keys(shape) as (keyof typeof shape)[];
  const isBoolean = (name: keyof typeof shape): boolean => name === 'nativeLog';
  const flagOf = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  let values: Record<string, unknown>;
  try {
    values = parseArgs({
      args,
      options: Object.fromEntries(
        names.map((name) => [flagOf(name), { type: isBoolean(name) ? 'boolean' : 'string' } as const]),
      ),
    }).values;
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', { detail: (cause as Error).message, cause });
  }
  const given = names.flatMap((name) => {
    const value = values[flagOf(name)];
    const isNumber = typeof value === 'string' && !z.safeParse(shape[name], value).success;
    return value === undefined ? [] : [[name, isNumber ? Number(value) : value] as const];
  });
  return Object.fromEntries(given) as EngineOptions;
}

if (process.argv[2] === CHILD_ARGUMENT) {
  await runChild();
} else {
  await runCommand(process.argv.slice(2));
}
