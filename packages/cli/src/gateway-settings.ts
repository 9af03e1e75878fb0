import { join } from 'node:path';
import {
  type Environment,
  type GatewayConfigInput,
  type GatewayParts,
  loadConfig,
  type Report,
  resolveConfig,
} from '@warmpath/gateway';
import type { Command } from 'commander';
import type { CommandContext } from './command-context.js';
import { dataFolder } from './data-folder.js';
import { tcpPort } from './options.js';
import { percent, type Style, type Terminal } from './terminal.js';

/** From this share of reused tokens on, the gain is shown as one. */
const MUCH = 0.5;

/**
 * Prints a line for each request that is over: when, status, route, documents, reused tokens, time to the first token.
 * Counts and times alone; what a request says is nobody's business.
 */
function requestPrinter(terminal: Terminal, now: () => Date = () => new Date()): (request: Report) => void {
  return (request) => terminal.line(describeRequest(request, terminal.style, now()));
}

/** What the line of a request tells. */
type ShownReport = Pick<
  Report,
  | 'route'
  | 'status'
  | 'durationMs'
  | 'documents'
  | 'documentsMoved'
  | 'promptTokens'
  | 'cachedTokens'
  | 'ttftMs'
  | 'errorCode'
>;

/** One request in a line of fewer than 100 columns. */
export function describeRequest(request: ShownReport, style: Style, at: Date): string {
  const { status, route, documents, ttftMs, durationMs, errorCode } = request;
  const colour = status < 400 ? style.green : status < 500 ? style.yellow : style.red;
  const parts = [style.dim(clock(at)), colour(String(status)), nameOf(route).padEnd(16)];
  if (errorCode !== undefined) parts.push(colour(errorCode));
  if (documents !== undefined) parts.push(`${documents} ${documents === 1 ? 'document' : 'documents'}`.padEnd(12));
  const reused = reusedTokens(request, style);
  if (reused !== undefined) parts.push(reused);
  parts.push(ttftMs === undefined ? style.dim(`${durationMs.toFixed(0)} ms`) : `TTFT ${ttftMs.toFixed(0)} ms`);
  return parts.join('  ');
}

/** A route as a person knows it; what only passes through has no name here, for a path is the client's. */
function nameOf(route: string): string {
  return route === '/v1/*' ? 'passed on' : route.replace(/^\/v1\//, '');
}

function reusedTokens({ promptTokens, cachedTokens }: ShownReport, style: Style): string | undefined {
  if (promptTokens === undefined) return undefined;
  const all = promptTokens.toLocaleString('en-US');
  if (cachedTokens === undefined) return style.dim(`${all} tokens, reuse not reported`);
  const share = cachedTokens / Math.max(1, promptTokens);
  const text = `${cachedTokens.toLocaleString('en-US')} of ${all} tokens reused (${percent(share, 0)})`;
  return share >= MUCH ? style.green(text) : text;
}

function clock(at: Date): string {
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
}

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
    .option('--live', 'print a line for each request, even if standard output is no terminal');
}

/** What a command would have where neither the file nor the command line says anything. */
export interface GatewayDefaults {
  readonly logLevel?: NonNullable<GatewayConfigInput['log']>['level'];
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
  const upstream = { ...file?.upstream, ...(url !== undefined && { url }) };
  return {
    ...file,
    server,
    log,
    upstream,
    engines,
  };
}

/** Whether each request gets a line: where a person reads along, or asked for it. */
export function showsRequests(terminal: Terminal, { live }: GatewayOptions): boolean {
  return terminal.isWatched || (live === true && !terminal.json);
}

/**
 * What commands give a gateway: the folder for what survives a restart, and listeners that tell a person which prompts
 * were found and, where that is wanted, a line for each request.
 */
export function gatewayParts(
  { terminal, environment }: Pick<CommandContext, 'terminal' | 'environment'>,
  options: GatewayOptions,
): Pick<GatewayParts, 'stateFolder' | 'onRequest' | 'onPromptKind'> {
  return {
    stateFolder: join(dataFolder(environment), 'state'),
    onPromptKind: ({ id }) => terminal.note(foundPrompt(id)),
    ...(showsRequests(terminal, options) && { onRequest: requestPrinter(terminal) }),
  };
}

function foundPrompt(id: string): string {
  return `A prompt of an application holds documents. \`warmpath prompts show ${id}\` shows it; \`warmpath prompts allow ${id}\` lets its documents move.`;
}
