import {
  buildLibraries,
  type EngineOptions,
  modelLines,
  parseEngineOptions,
  profileEngine,
  profileLines,
  startSupervisedEngine,
} from '@warmpath/engine';
import { timeLeft } from '@warmpath/lab';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { addAllEngineOptions, announceStart, engineNotes, engineSettings } from '../engine-settings.js';
import { interrupted, withInterruption } from '../interruption.js';
import { requireFreePort } from '../listen-address.js';
import { tcpPort } from '../options.js';
import { percent } from '../terminal.js';

interface EngineCommandOptions {
  readonly host?: string;
  readonly port?: number;
  readonly profile?: boolean;
  readonly buildLibraries?: boolean;
}

/** Adds `warmpath engine`. */
export function addEngineCommand(program: Command, context: CommandContext): void {
  const command = addCommand(program, 'engine', 'start the embedded engine, an OpenAI-compatible server');
  addAllEngineOptions(command)
    .option('--host <address>', 'address to listen on; 0.0.0.0 for every interface')
    .option('--port <number>', 'port to listen on; 0 for any free one (default: 8080)', tcpPort)
    .option('--profile', 'measure prefill and copies on this machine, keep the figures for later starts, and end')
    .option('--build-libraries', 'build llama.cpp for this processor, keep it for later starts, and end')
    .action((options: EngineCommandOptions) => {
      const settings: EngineOptions = {
        ...engineSettings(options),
        ...(options.host !== undefined && { host: options.host }),
        ...(options.port !== undefined && { port: options.port }),
      };
      const work = options.buildLibraries === true ? build : options.profile === true ? profile : engine;
      return withInterruption((signal) => work(settings, context, signal));
    });
}

async function engine(settings: EngineOptions, context: CommandContext, signal: AbortSignal): Promise<void> {
  const { terminal } = context;
  const { host, port } = parseEngineOptions(settings);
  await requireFreePort({ host, port, option: '--port' });
  const start = announceStart(terminal);
  const server = await startSupervisedEngine(settings, {
    onProgress: start.onProgress,
    onCrash: ({ message }) => terminal.note(message),
    signal,
  }).finally(() => start.stop());
  terminal.serves();
  const { name, contextTokens } = server.model;
  terminal.data({ url: server.url, model: name, contextTokens, cells: server.cells, metrics: `${server.url}/metrics` });
  terminal.line(`The engine serves ${name} at ${server.url}.`);
  for (const [label, text] of modelLines(server.model)) terminal.line(`  ${label.padEnd(8)}  ${text}`);
  for (const note of engineNotes(server.model, settings, context)) terminal.line(note);
  const failure = await Promise.race([interrupted(signal), server.failed]);
  await server.close();
  if (failure !== undefined) throw failure;
}

async function build(settings: EngineOptions, { terminal }: CommandContext, signal: AbortSignal): Promise<void> {
  const directory = await buildLibraries(settings.cacheDir, { onStep: (what) => terminal.status(what), signal });
  terminal.status('');
  terminal.data({ directory });
  terminal.line(`Later starts on this machine take llama.cpp from ${directory}.`);
}

async function profile(settings: EngineOptions, { terminal }: CommandContext, signal: AbortSignal): Promise<void> {
  const start = announceStart(terminal);
  let startedAt: number | undefined;
  const stored = await profileEngine(settings, {
    onProgress: start.onProgress,
    onMeasured: ({ tokens, totalTokens }) => {
      if (startedAt === undefined) start.stop();
      startedAt ??= performance.now();
      const left = timeLeft(performance.now() - startedAt, tokens, totalTokens);
      terminal.status(`measuring ${percent(tokens / totalTokens, 0)}  ${left}`);
    },
    signal,
  }).finally(() => start.stop());
  terminal.status('');
  terminal.data(stored);
  for (const line of profileLines(stored)) terminal.line(line);
}
