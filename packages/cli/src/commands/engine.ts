import { type EngineOptions, modelLines, parseEngineOptions, spawnEngine } from '@warmpath/engine';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { addAllEngineOptions, announceStart, engineSettings } from '../engine-settings.js';
import { interrupted, withInterruption } from '../interruption.js';
import { requireFreePort } from '../listen-address.js';
import { tcpPort } from '../options.js';

interface EngineCommandOptions {
  readonly host?: string;
  readonly port?: number;
}

/** Adds `warmpath engine`. */
export function addEngineCommand(program: Command, context: CommandContext): void {
  const command = addCommand(program, 'engine', 'start the embedded engine, an OpenAI-compatible server');
  addAllEngineOptions(command)
    .option('--host <address>', 'address to listen on; 0.0.0.0 for every interface')
    .option('--port <number>', 'port to listen on; 0 for any free one (default: 8080)', tcpPort)
    .action((options: EngineCommandOptions) => {
      const settings: EngineOptions = {
        ...engineSettings(options),
        ...(options.host !== undefined && { host: options.host }),
        ...(options.port !== undefined && { port: options.port }),
      };
      return withInterruption((signal) => engine(settings, context, signal));
    });
}

async function engine(settings: EngineOptions, context: CommandContext, signal: AbortSignal): Promise<void> {
  const { terminal } = context;
  const { host, port } = parseEngineOptions(settings);
  await requireFreePort({ host, port, option: '--port' });
  const start = announceStart(terminal);
  const server = await spawnEngine(settings, {
    onProgress: start.onProgress,
    onCrash: ({ message }) => terminal.note(message),
    signal,
  }).finally(() => start.stop());
  terminal.serves();
  const { name, contextTokens } = server.model;
  terminal.data({ url: server.url, model: name, contextTokens, cells: server.cells, metrics: `${server.url}/metrics` });
  terminal.line(`The engine serves ${name} at ${server.url}.`);
  for (const [label, text] of modelLines(server.model)) terminal.line(`  ${label.padEnd(8)}  ${text}`);
  if (server.model.notice !== undefined) terminal.line(server.model.notice);
  const failure = await Promise.race([interrupted(signal), server.failed]);
  await server.stop();
  if (failure !== undefined) throw failure;
}
