import { WarmpathError } from '@warmpath/core';
import { type ListedSession, startGateway } from '@warmpath/gateway';
import { Argument, type Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { EngineClient } from '../engine-client.js';
import { gatewayParts, gatewaySettings } from '../gateway-settings.js';
import { addKeyOption, httpUrl, keyFrom } from '../options.js';
import { AGENT_NAMES, type AgentTarget, CODING_AGENTS, type CodingAgent, launchOf } from '../wrap/coding-agents.js';
import { runAgent } from '../wrap/run-agent.js';
import { accountSince, printAccount } from '../wrap/session-account.js';

interface WrapOptions {
  readonly engine?: string;
  readonly gateway?: string;
  readonly model?: string;
  readonly config?: string;
  readonly keyEnv?: string;
}

const DEFAULT_GATEWAY = 'http://127.0.0.1:8080';
/** What an agent sends where no key is asked for. Agents want one. */
const NO_KEY = 'none';
/** Milliseconds in which a gateway of this machine says that it is one. */
const LOOKUP_MS = 2_000;

const WRAP_HELP = `
What follows the agent's name is the agent's. No file of it is changed. The exit code is the agent's.`;

/** Options that no agent has. */
const OWN_OPTION = /^--(?:engine|gateway|key-env)(?:=|$)/;

/** Adds `warmpath wrap`. */
export function addWrapCommand(program: Command, context: CommandContext): void {
  // Options behind the agent's name are the agent's.
  program.enablePositionalOptions();
  const command = addCommand(program, 'wrap', 'run a coding agent through a gateway').passThroughOptions();
  addKeyOption(command)
    .addArgument(new Argument('<agent>', 'the agent to run').choices(AGENT_NAMES))
    .argument('[args...]', 'its own arguments')
    .option('--engine <url>', "start a gateway before the engine's OpenAI or Anthropic API", httpUrl)
    .option(
      '--gateway <url>',
      `use the gateway there; with --engine, start one there if none runs (default: ${DEFAULT_GATEWAY}, or with --engine a free port)`,
      httpUrl,
    )
    .option('--model <name>', "the engine's model, for every model that the agent asks for (default: its only one)")
    .option('--config <file>', 'configuration of the gateway that is started')
    .addHelpText('after', WRAP_HELP)
    .action((agent: CodingAgent, args: readonly string[], options: WrapOptions) => wrap(agent, args, options, context));
}

async function wrap(
  agent: CodingAgent,
  args: readonly string[],
  options: WrapOptions,
  context: CommandContext,
): Promise<void> {
  const misplaced = args.find((arg) => OWN_OPTION.test(arg));
  if (misplaced !== undefined) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: misplaced,
      detail: `write it before the agent's name, ${agent}`,
    });
  }
  const gateway = await openGateway(options, context);
  const client = new EngineClient({ url: gateway.url, apiKey: gateway.key });
  try {
    const target = await findTarget(gateway, client, options.model);
    const launch = launchOf(agent, target, args, context.environment);
    const before = await readSessions(target);
    const { install } = CODING_AGENTS[agent];
    const isTerminal = context.stdin.isTTY === true;
    context.exitCode = await runAgent(agent, launch, { install, isTerminal });
    const after = await readSessions(target);
    const account = before && after && accountSince(before, after);
    if (account !== undefined) printAccount(context.terminal, account);
  } finally {
    await client.close();
    await gateway.close();
  }
}

interface OpenGateway {
  readonly url: string;
  /** The client's key for it, where there is one. */
  readonly key: string | undefined;
  close(): Promise<void>;
}

/** The gateway that runs at the address, or one that is started for this agent. */
async function openGateway(options: WrapOptions, context: CommandContext): Promise<OpenGateway> {
  const { engine, gateway: named } = options;
  const key = keyFrom(options, context.environment);
  const url = new URL(named ?? DEFAULT_GATEWAY).origin;
  // Another gateway may stand before another engine than the named one.
  if ((engine === undefined || named !== undefined) && (await isGateway(url))) {
    if (engine !== undefined) context.terminal.note(`A gateway runs at ${url}: it is used, before its own engine.`);
    return { url, key, close: async () => {} };
  }
  if (engine === undefined && options.config === undefined) {
    const detail = `no gateway runs at ${url}; name an engine with --engine, or start a gateway with \`warmpath up\``;
    throw new WarmpathError('WARMPATH_GATEWAY_UNREACHABLE', { path: '--gateway', detail });
  }
  const { hostname, port } = new URL(url);
  const address =
    named === undefined ? { port: 0 } : { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 80) };
  const settings = await gatewaySettings({ ...options, ...address }, engine, { environment: context.environment });
  const upstream = { ...settings.upstream, ...(key !== undefined && { apiKey: key }) };
  const { stateFolder } = gatewayParts(context, {});
  // Both outputs are the agent's.
  const log = { level: 'silent' } as const;
  const started = await startGateway({ ...settings, upstream, log }, { stateFolder: stateFolder! });
  return { url: started.url, key: undefined, close: () => started.close() };
}

async function isGateway(url: string): Promise<boolean> {
  const client = new EngineClient({ url }, { timeoutMs: LOOKUP_MS });
  try {
    const { name } = (await client.get('/', new AbortController().signal)) as { readonly name?: unknown };
    return name === 'warmpath';
  } catch {
    return false;
  } finally {
    await client.close();
  }
}

/** The key and the model for the agent. Errors: those of an engine that does not answer. */
async function findTarget(
  { url, key }: OpenGateway,
  client: EngineClient,
  named: string | undefined,
): Promise<AgentTarget> {
  try {
    const models = await client.models(new AbortController().signal);
    const model = named ?? (models.length === 1 ? models[0]!.id : undefined);
    return { url, key: key ?? NO_KEY, model };
  } catch (error) {
    if (!WarmpathError.isInstance(error)) throw error;
    // The engine wants a key, and the agent may have one.
    if (error.code === 'WARMPATH_UNAUTHORIZED') return { url, key, model: named };
    // The engine lists no models.
    if (error.code === 'WARMPATH_UPSTREAM_ERROR') return { url, key: key ?? NO_KEY, model: named };
    throw error;
  }
}

/** The sessions that the agent may see; `undefined` where its key is its own. */
async function readSessions({ url, key }: AgentTarget): Promise<readonly ListedSession[] | undefined> {
  const client = new EngineClient({ url, apiKey: key });
  try {
    return (await client.sessions(new AbortController().signal)).data;
  } catch {
    return undefined;
  } finally {
    await client.close();
  }
}
