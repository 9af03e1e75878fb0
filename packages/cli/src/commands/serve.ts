import { WarmpathError } from '@warmpath/core';
import { resolveConfig, startGateway } from '@warmpath/gateway';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { addGatewayOptions, type GatewayOptions, gatewaySettings } from '../gateway-settings.js';
import { interrupted, withInterruption } from '../interruption.js';
import { describeListenError } from '../listen-address.js';

interface ServeOptions extends GatewayOptions {
  readonly engine?: string;
}

/** Adds `warmpath serve`. */
export function addServeCommand(program: Command, context: CommandContext): void {
  const command = addCommand(program, 'serve', 'the gateway alone, in front of an engine that runs already');
  addGatewayOptions(command, '8700, or what the file says')
    .option('--engine <url>', "base URL of the engine's OpenAI API; goes before the file's upstream.url")
    .action((options: ServeOptions) => withInterruption((signal) => serve(options, context, signal)));
}

async function serve(
  options: ServeOptions,
  { terminal, environment }: CommandContext,
  signal: AbortSignal,
): Promise<void> {
  if (options.engine === undefined && options.config === undefined) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: '--engine',
      detail: 'name the engine with --engine or --config',
    });
  }
  const config = resolveConfig(await gatewaySettings(options, options.engine, { environment }));
  const gateway = await startGateway(config).catch((error: unknown) => {
    throw describeListenError(error, { ...config.server, option: '--port' });
  });
  terminal.data({ url: gateway.url, engine: config.upstream.url, metrics: `${gateway.url}/metrics` });
  terminal.line(`The gateway listens at ${gateway.url} in front of ${config.upstream.url}.`);
  terminal.line(`Dashboard: ${gateway.url}/ui`);
  await interrupted(signal);
  await gateway.close();
}
