import { WarmpathError } from '@warmpath/core';
import {
  type EngineFlag,
  type EngineOptions,
  engineFlags,
  type ModelProgress,
  type ModelProgressListener,
  readFlag,
} from '@warmpath/engine';
import { timeLeft } from '@warmpath/lab';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { startWaiting } from './progress.js';
import type { Terminal } from './terminal.js';

const ENGINE_HEADING = 'The embedded engine:';
/** Every flag but the address, where the command itself decides. Read from the schema once for all commands. */
const FLAGS = engineFlags().filter(({ name }) => name !== 'host' && name !== 'port');
/** The flags of commands that start an engine beside other work. */
const MAIN_FLAGS: ReadonlySet<string> = new Set(['model', 'contextTokens', 'threads', 'gpuLayers']);
const MORE_FLAGS = '\nAn engine with other settings: `warmpath engine --help`, and `warmpath serve` in front of it.';

/** Adds the main options of the embedded engine, and where the others are. */
export function addEngineOptions(command: Command): Command {
  return addFlags(
    command,
    FLAGS.filter(({ name }) => MAIN_FLAGS.has(name)),
  ).addHelpText('after', MORE_FLAGS);
}

/** Adds the folder of downloaded models. */
export function addModelFolderOption(command: Command): Command {
  return addFlags(
    command,
    FLAGS.filter(({ name }) => name === 'cacheDir'),
  );
}

/** Adds every option of the embedded engine but its address. */
export function addAllEngineOptions(command: Command): Command {
  return addFlags(command, FLAGS);
}

function addFlags(command: Command, flags: readonly EngineFlag[]): Command {
  for (const flag of flags) command.addOption(engineOption(flag));
  return command;
}

function engineOption(flag: EngineFlag): Option {
  const { kind, description, fallback } = flag;
  const shown = fallback === undefined ? '' : ` (default: ${fallback})`;
  const option = new Option(kind === 'switch' ? flag.flag : `${flag.flag} <${kind}>`, `${description}${shown}`);
  return option.helpGroup(ENGINE_HEADING).argParser((text: string) => read(flag, text));
}

function read(flag: EngineFlag, text: string): string | number {
  try {
    return readFlag(flag, text);
  } catch (error) {
    if (!WarmpathError.isInstance(error)) throw error;
    // The flag is named already.
    throw new InvalidArgumentError(error.message.replace(`${flag.flag}: `, ''));
  }
}

/** The engine options among a command's options; the engine checks them. */
export function engineSettings(values: object): EngineOptions {
  const given = values as Readonly<Record<string, unknown>>;
  const entries = FLAGS.filter(({ name }) => given[name] !== undefined).map(({ name }) => [name, given[name]] as const);
  return Object.fromEntries(entries) as EngineOptions;
}

/** Milliseconds between two texts about the same work, where the next replaces the one before. */
const STATUS_INTERVAL_MS = 200;
/** The same where each is a line of a log. */
const LINE_INTERVAL_MS = 10_000;

/** The start of an embedded engine, or the download of a model, as a person follows it. */
export interface EngineStart {
  readonly onProgress: ModelProgressListener;
  /** It is done, or has failed. */
  stop(): void;
}

/** Says on standard error what starts, how long that takes, and how a download for it goes. */
export function announceStart(terminal: Terminal, text = 'Starting the embedded engine …'): EngineStart {
  const waiting = startWaiting(terminal, text);
  const intervalMs = terminal.showsProgress ? STATUS_INTERVAL_MS : LINE_INTERVAL_MS;
  let shownAt = Number.NEGATIVE_INFINITY;
  let pace = startPace('', 0);
  const onProgress: ModelProgressListener = (event) => {
    const now = performance.now();
    const done = 'totalBytes' in event && event.bytes === event.totalBytes;
    if (now - shownAt < intervalMs && !done) return;
    shownAt = now;
    const work = `${event.kind} ${event.name}`;
    if ('bytes' in event && pace.work !== work) pace = startPace(work, event.bytes);
    // A log has the text already.
    waiting.say(done && terminal.showsProgress ? text : `${describe(event)}  ${pace.left(event)}`.trimEnd());
  };
  return { onProgress, stop: () => waiting.stop() };
}

/** How long the rest of some work takes, at the pace since now: what an earlier try left behind took no time. */
function startPace(work: string, before: number) {
  const startedAt = performance.now();
  const left = (event: ModelProgress): string => {
    if (!('bytes' in event) || event.totalBytes === undefined) return '';
    return timeLeft(performance.now() - startedAt, event.bytes - before, event.totalBytes - before);
  };
  return { work, left };
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

/** A size for a person. */
export function megabytes(bytes: number): string {
  return `${(bytes / 1_048_576).toFixed(1)} MiB`;
}
