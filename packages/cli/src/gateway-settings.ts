import type { RecognitionMode } from '@warmpath/core';
import {
  API_NAMES,
  describeNotice,
  type Environment,
  type GatewayConfigInput,
  type GatewayParts,
  loadConfig,
  resolveConfig,
} from '@warmpath/gateway';
import type { Command } from 'commander';
import { tcpPort } from './options.js';
import { requestPrinter } from './request-lines.js';
import type { Terminal } from './terminal.js';

/** The options of commands that start a gateway. */
export interface GatewayOptions {
  readonly config?: string;
  readonly host?: string;
  readonly port?: number;
  readonly live?: boolean;
}

/** The gateway's own, wherever nothing else is said. */
const DEFAULT_PORT = resolveConfig({ upstream: { url: 'http://127.0.0.1' } }).server.port;

/** Adds `--config`, `--host`, `--port` and `--live`. */
export function addGatewayOptions(command: Command): Command {
  return command
    .option('--config <file>', 'configuration of the gateway, YAML or JSON (see `warmpath check-config`)')
    .option('--host <address>', 'address to listen on; 0.0.0.0 for every interface')
    .option(
      '--port <number>',
      `port to listen on; 0 for any free one (default: ${DEFAULT_PORT}, or what the file says)`,
      tcpPort,
    )
    .option('--live', 'print a line for each request also where standard output is no terminal');
}

/** What a command would have where neither the file nor the command line says anything. */
export interface GatewayDefaults {
  /** Whether the engine is one that wants to know where documents end. */
  readonly segments?: boolean;
  readonly logLevel?: NonNullable<GatewayConfigInput['log']>['level'];
  /** How documents in prompts are looked for. */
  readonly recognise?: RecognitionMode;
}

/**
 * The gateway's configuration: the file's, with what the command line says on top. An engine URL given here goes before
 * the file's `upstream.url` or its `engines`, which may then be left out. Errors: those of `loadConfig`.
 */
export async function gatewaySettings(
  options: GatewayOptions,
  engineUrl: string | undefined,
  { environment, defaults = {} }: { readonly environment: Environment; readonly defaults?: GatewayDefaults },
): Promise<GatewayConfigInput> {
  const file = options.config === undefined ? undefined : await loadConfig(options.config, environment, engineUrl);
  const server = {
    ...file?.server,
    ...(options.host !== undefined && { host: options.host }),
    ...(options.port !== undefined && { port: options.port }),
  };
  const log = file?.log ?? (defaults.logLevel !== undefined ? { level: defaults.logLevel } : {});
  const url = engineUrl ?? file?.upstream.url;
  // One engine that is named goes before all that the file lists.
  const engines = engineUrl === undefined ? file?.engines : undefined;
  const segments = defaults.segments === undefined ? {} : { segments: defaults.segments };
  const recognise = file?.recognise ?? (defaults.recognise === undefined ? {} : everywhere(defaults.recognise));
  const upstream = { ...file?.upstream, ...segments, ...(url !== undefined && { url }) };
  return {
    ...file,
    server,
    log,
    recognise,
    upstream,
    engines,
  };
}

function everywhere(mode: RecognitionMode): NonNullable<GatewayConfigInput['recognise']> {
  return Object.fromEntries(API_NAMES.map((name) => [name, mode]));
}

/** Whether each request gets a line: where a person reads along, or asked for it. */
export function showsRequests(terminal: Terminal, { live }: GatewayOptions): boolean {
  return terminal.isWatched || (live === true && !terminal.json);
}

/** What a gateway tells a person: a line for each request, where that is wanted, and why documents stay as they are. */
export function listeners(
  terminal: Terminal,
  options: GatewayOptions,
): Pick<GatewayParts, 'onRequest' | 'onUnrecognised'> {
  return {
    onUnrecognised: (notice) => terminal.note(describeNotice(notice)),
    ...(showsRequests(terminal, options) && { onRequest: requestPrinter(terminal) }),
  };
}
