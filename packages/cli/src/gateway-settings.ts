import { type Environment, type GatewayConfigInput, loadConfig } from '@warmpath/gateway';
import type { Command } from 'commander';
import { tcpPort } from './options.js';

/** The options of commands that start a gateway. */
export interface GatewayOptions {
  readonly config?: string;
  readonly host?: string;
  readonly port?: number;
}

/** Adds `--config`, `--host` and `--port`. */
export function addGatewayOptions(command: Command, defaultPort: string): Command {
  return command
    .option('--config <file>', 'configuration of the gateway, YAML or JSON (see `warmpath check-config`)')
    .option('--host <address>', 'address to listen on; 0.0.0.0 for every interface')
    .option('--port <number>', `port to listen on; 0 for any free one (default: ${defaultPort})`, tcpPort);
}

/** What a command would have where neither the file nor the command line says anything. */
export interface GatewayDefaults {
  readonly port?: number;
  /** Whether the engine is one that wants to know where documents end. */
  readonly segments?: boolean;
  readonly logLevel?: NonNullable<GatewayConfigInput['log']>['level'];
}

/**
 * The gateway's configuration: the file's, with what the command line says on top. An engine URL given here goes before
 * the file's `upstream.url`. Errors: those of `loadConfig`.
 */
export async function gatewaySettings(
  options: GatewayOptions,
  engineUrl: string | undefined,
  { environment, defaults = {} }: { readonly environment: Environment; readonly defaults?: GatewayDefaults },
): Promise<GatewayConfigInput> {
  const file = options.config === undefined ? undefined : await loadConfig(options.config, environment);
  const server = {
    ...(file?.server ?? (defaults.port !== undefined && { port: defaults.port })),
    ...(options.host !== undefined && { host: options.host }),
    ...(options.port !== undefined && { port: options.port }),
  };
  const log = file?.log ?? (defaults.logLevel !== undefined ? { level: defaults.logLevel } : {});
  const url = engineUrl ?? file?.upstream.url ?? '';
  const segments = defaults.segments === undefined ? {} : { segments: defaults.segments };
  return { ...file, server, log, upstream: { ...file?.upstream, ...segments, url } };
}
