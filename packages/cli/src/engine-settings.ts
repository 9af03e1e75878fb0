import {
  type EngineOptions,
  engineOptionsSchema,
  type ModelProgress,
  type ModelProgressListener,
} from '@warmpath/engine';
import { type Command, Option } from 'commander';
import { wholeNumber } from './options.js';
import type { Terminal } from './terminal.js';

/** The engine's options that the command line knows, and what they are called there. */
const FLAGS = {
  model: '--model <name>',
  cacheDir: '--cache-dir <folder>',
  contextTokens: '--context <tokens>',
  hostTier: '--host-tier <bytes>',
  diskTier: '--disk-tier <folder>',
  diskTierBytes: '--disk-tier-bytes <bytes>',
  policy: '--policy <name>',
  cachedDocuments: '--cached-documents <number>',
  threads: '--threads <number>',
  batchTokens: '--batch <tokens>',
  maxRunning: '--max-running <requests>',
  nativeLog: '--native-log',
} as const satisfies Partial<Record<keyof EngineOptions, string>>;

type EngineFlag = keyof typeof FLAGS;

/** Adds the options that shape the embedded engine; descriptions and defaults come from the engine's own schema. */
export function addEngineOptions(command: Command): Command {
  for (const key of Object.keys(FLAGS) as EngineFlag[]) command.addOption(engineOption(key));
  return command;
}

function engineOption(key: EngineFlag): Option {
  const schema = engineOptionsSchema.shape[key];
  const fallback: unknown = schema.safeParse(undefined).data;
  const shown = fallback === undefined || typeof fallback === 'boolean' ? '' : ` (default: ${fallback})`;
  const option = new Option(FLAGS[key], `${schema.description}${shown}`);
  const isNumber = typeof fallback === 'number' || schema.safeParse(1).success;
  if (!isNumber) return option;
  return option.argParser(wholeNumber(schema.safeParse(0).success ? 0 : 1));
}

/** The engine options among a command's options; the engine checks them. */
export function engineSettings(values: object): EngineOptions {
  const given = values as Readonly<Record<string, unknown>>;
  const entries = (Object.keys(FLAGS) as EngineFlag[])
    .map((key) => [key, given[new Option(FLAGS[key]).attributeName()]] as const)
    .filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as EngineOptions;
}

/** Milliseconds between two lines about the same work. */
const LINE_INTERVAL_MS = 200;

/** Says on standard error how a download or another wait for the model goes; one line that is rewritten, on a terminal only. */
export function modelProgress(terminal: Terminal): ModelProgressListener {
  let shownAt = 0;
  return (event) => {
    const now = performance.now();
    const done = 'totalBytes' in event && event.bytes === event.totalBytes;
    if (now - shownAt < LINE_INTERVAL_MS && !done) return;
    shownAt = now;
    terminal.status(done ? '' : describe(event));
  };
}

function describe(event: ModelProgress): string {
  switch (event.kind) {
    case 'retry':
      return `${event.name}: trying again in ${Math.ceil(event.delayMs / 1_000)} s (${event.reason})`;
    case 'wait':
      return `${event.name}: waiting for another process that downloads it`;
    default: {
      const of = event.totalBytes === undefined ? '' : ` of ${megabytes(event.totalBytes)}`;
      return `${event.name}: ${event.kind} ${megabytes(event.bytes)}${of}`;
    }
  }
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_048_576).toFixed(1)} MiB`;
}
