import { WarmpathError } from '@warmpath/core';
import {
  type EngineReport,
  engineSettings,
  type GatewayConfig,
  type RunningGateway,
  resolveConfig,
  startGateway,
} from '@warmpath/gateway';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import {
  addGatewayOptions,
  type GatewayOptions,
  gatewayParts,
  gatewaySettings,
  showsRequests,
} from '../gateway-settings.js';
import { interrupted, withInterruption } from '../interruption.js';
import { describeListenError } from '../listen-address.js';
import { addKeyOption, httpUrl, keyFrom } from '../options.js';
import type { Terminal } from '../terminal.js';

interface ServeOptions extends GatewayOptions {
  readonly engine?: string;
  readonly keyEnv?: string;
}

/** Adds `warmpath serve`. */
export function addServeCommand(program: Command, context: CommandContext): void {
  const command = addCommand(program, 'serve', 'start the gateway in front of a running engine');
  addKeyOption(addGatewayOptions(command))
    .option('--engine <url>', "base URL of the engine's OpenAI API; goes before the file's upstream.url", httpUrl)
    .action((options: ServeOptions) => withInterruption((signal) => serve(options, context, signal)));
}

async function serve(options: ServeOptions, context: CommandContext, signal: AbortSignal): Promise<void> {
  const { terminal, environment } = context;
  if (options.engine === undefined && options.config === undefined) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: '--engine',
      detail: 'name the engine with --engine or --config',
    });
  }
  // Whoever reads a line for each request has no use for the same as JSON.
  const logLevel = showsRequests(terminal, options) ? 'error' : 'info';
  const apiKey = keyFrom(options, environment);
  const read = async () => {
    const settings = await gatewaySettings(options, options.engine, { environment, defaults: { logLevel } });
    const upstream = { ...settings.upstream, ...(apiKey !== undefined && { apiKey }) };
    return resolveConfig({ ...settings, upstream });
  };
  const config = await read();
  const { server } = config;
  const addresses = engineSettings(config).map(({ url }) => url);
  for (const address of addresses) requireOtherAddress(address, server);
  let leadsBack: (error: WarmpathError) => void;
  const loop = new Promise<never>((_, reject) => {
    leadsBack = reject;
  });
  // The engine may be asked, and answer, before anybody waits for this.
  loop.catch(() => {});
  const onEngine = (report: EngineReport): void => {
    if (report.state === 'loop' && addresses.length === 1)
      leadsBack(new WarmpathError('WARMPATH_LOOP', { detail: `${report.url}: ${report.problem}` }));
    else describeEngine(terminal, report);
  };
  const parts = { onEngine, ...gatewayParts(context, options) };
  const gateway = await startGateway(config, parts).catch((error: unknown) => {
    throw describeListenError(error, { ...server, option: '--port' });
  });
  const reload = (): void => void reloadConfig(gateway, read, terminal);
  if (options.config !== undefined) process.on('SIGHUP', reload);
  try {
    terminal.serves();
    const engines = addresses.map(withoutCredentials);
    terminal.data({ url: gateway.url, engine: engines[0], engines, metrics: `${gateway.url}/metrics` });
    terminal.line(`The gateway listens at ${gateway.url} in front of ${engines.join(', ')}.`);
    terminal.line(terminal.style.dim(`  base URL for clients: ${gateway.url}/v1; Ctrl-C stops it`));
    terminal.line(`  dashboard: ${gateway.url}/ui`);
    await Promise.race([interrupted(signal), loop]);
  } finally {
    process.off('SIGHUP', reload);
    await gateway.close();
  }
}

/** The file was changed: what can change in a gateway that runs counts from now on. A wrong one changes nothing. */
async function reloadConfig(
  gateway: RunningGateway,
  read: () => Promise<GatewayConfig>,
  terminal: Terminal,
): Promise<void> {
  try {
    const { changed, needRestart } = await gateway.reload(read());
    terminal.note(`Configuration read again: ${changed.length === 0 ? 'nothing' : changed.join(', ')} changed.`);
    if (needRestart.length > 0) terminal.note(`  needs a restart  ${needRestart.join(', ')}`);
  } catch (error) {
    const { code = 'WARMPATH_INTERNAL', message } = error as WarmpathError;
    terminal.error([`The configuration stays as it was: ${message}`], { error: { code, message } });
  }
}

/** On standard error: the log on standard output, where there is one, says it as JSON. */
function describeEngine(terminal: Terminal, { url, models, problem, remedy }: EngineReport): void {
  if (problem === undefined) {
    const serves = models.length === 0 ? '' : `; it serves ${models.join(', ')}`;
    terminal.note(`The engine at ${url} is there${serves}.`);
    return;
  }
  terminal.note(`The engine at ${url}: ${problem}`);
  terminal.note(`  remedy  ${remedy}`);
}

/** Error: `WARMPATH_LOOP` where the gateway would listen at the very address of its engine. */
function requireOtherAddress(engine: string, { host, port }: { readonly host: string; readonly port: number }): void {
  const { hostname, port: enginePort, protocol } = new URL(engine);
  const own = (name: string) => ['localhost', '127.0.0.1', '[::1]', '::1', '0.0.0.0', host].includes(name);
  if (Number(enginePort || (protocol === 'https:' ? 443 : 80)) !== port || !own(hostname)) return;
  throw new WarmpathError('WARMPATH_LOOP', {
    path: '--engine',
    detail: `the gateway itself is to listen at ${host}:${port}; choose another port for it with --port, or correct --engine`,
  });
}

function withoutCredentials(url: string): string {
  return url.replace(/^(https?:\/\/)[^/?#]*@/i, '$1');
}
