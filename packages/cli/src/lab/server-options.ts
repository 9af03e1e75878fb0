import { WarmpathError } from '@warmpath/core';
import { SCHEDULER_NAMES, type SchedulerName } from '@warmpath/core/internal';
import { type ClientSettings, ROUTER_NAMES, type RouterName, type ServerSettings } from '@warmpath/lab';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { wholeNumber } from '../options.js';

/** The options that put the engine behind a server with clients. */
export interface ServerOptions {
  readonly load?: number;
  readonly clients?: number;
  readonly turnByTurn?: boolean;
  readonly recorded?: boolean;
  readonly thinkMs?: number;
  readonly replicas?: number;
  readonly router?: RouterName;
  readonly scheduler?: SchedulerName;
  readonly maxBatch?: number;
  readonly chunkTokens?: number;
  /** False if the option was given. */
  readonly stepSharing: boolean;
  readonly leaderFirst?: boolean;
  readonly answerTokens?: number;
  readonly retrievalMs?: number;
}

const MAX_CLIENTS = 1_000_000;
const MAX_REPLICAS = 1_024;
const MAX_BATCH = 65_536;
const MAX_TOKENS = 10_000_000;
const MAX_MS = 3_600_000;

/** Adds the options that say who sends the requests, and what serves them. */
export function addServerOptions(command: Command): Command {
  return command
    .optionsGroup('Clients (TTFT then counts the wait, and only requests that wait are known to policies):')
    .option(
      '--load <factor>',
      'requests come at random, at this multiple of what the server can just serve in retrieval order',
      load,
    )
    .option('--clients <number>', 'number of clients, each with one request at a time', wholeNumber(1, MAX_CLIENTS))
    .option(
      '--turn-by-turn',
      'a session continues after its last answer; --load says how often one begins (all at once)',
    )
    .option('--recorded', 'requests come at the times in the data')
    .option('--think-ms <ms>', 'mean time between an answer and the next request (0)', wholeNumber(0, MAX_MS))
    .optionsGroup('Server (goes with one of the clients):')
    .option('--replicas <number>', 'engines, each with a cache of its own (1)', wholeNumber(1, MAX_REPLICAS))
    .addOption(new Option('--router <name>', 'which replica a request goes to (round-robin)').choices(ROUTER_NAMES))
    .addOption(new Option('--scheduler <name>', 'which request goes next (fifo)').choices(SCHEDULER_NAMES))
    .option('--max-batch <number>', 'requests that an engine runs at the same time (1)', wholeNumber(1, MAX_BATCH))
    .option(
      '--chunk-tokens <number>',
      'tokens that a step computes at most, prompts in chunks (no limit)',
      wholeNumber(1, MAX_TOKENS),
    )
    .option('--no-step-sharing', 'prompts of one step cannot reuse what another one of them computes')
    .option('--leader-first', 'a request waits while one under way computes 32 or more tokens that it could reuse')
    .option(
      '--answer-tokens <number>',
      'tokens of every answer (those of the data, else 1)',
      wholeNumber(1, MAX_TOKENS),
    )
    .option('--retrieval-ms <ms>', 'time until the documents of a request are found (0)', wholeNumber(0, MAX_MS))
    .optionsGroup('Options:');
}

/**
 * The server that the options ask for; undefined if for none. Error: `WARMPATH_USAGE` for options that do not go
 * together.
 */
export function serverSettings(options: ServerOptions): ServerSettings | undefined {
  const { replicas, router, scheduler, maxBatch, chunkTokens, stepSharing, leaderFirst } = options;
  const { answerTokens, retrievalMs } = options;
  const server = {
    ...(replicas !== undefined && { replicas }),
    ...(router !== undefined && { router }),
    ...(scheduler !== undefined && { scheduler }),
    ...(maxBatch !== undefined && { maxBatch }),
    ...(chunkTokens !== undefined && { chunkTokens }),
    ...(!stepSharing && { sharesInStep: false }),
    ...(leaderFirst !== undefined && { leaderFirst }),
    ...(answerTokens !== undefined && { answerTokens }),
    ...(retrievalMs !== undefined && { retrievalMs }),
  };
  const clients = clientSettings(options);
  if (clients !== undefined) return { clients, ...server };
  if (Object.keys(server).length === 0) return undefined;
  throw usage('a server needs clients: one of --load, --clients, --turn-by-turn and --recorded');
}

function clientSettings(options: ServerOptions): ClientSettings | undefined {
  const { load: factor, clients, turnByTurn = false, recorded = false, thinkMs } = options;
  const kinds = [factor !== undefined && !turnByTurn, clients !== undefined, turnByTurn, recorded].filter(Boolean);
  if (kinds.length > 1) throw usage('--clients, --recorded, and --load or --turn-by-turn exclude each other');
  if (thinkMs !== undefined && !turnByTurn && clients === undefined) {
    throw usage('--think-ms goes with --clients or --turn-by-turn');
  }
  if (clients !== undefined) return { kind: 'closed', clients, thinkMs: thinkMs ?? 0 };
  if (turnByTurn) {
    return { kind: 'sessions', thinkMs: thinkMs ?? 0, ...(factor !== undefined && { load: factor }) };
  }
  if (recorded) return { kind: 'recorded' };
  return factor === undefined ? undefined : { kind: 'poisson', load: factor };
}

function load(text: string): number {
  const factor = Number(text);
  if (/^\d{1,3}(\.\d{1,6})?$/.test(text) && factor > 0) return factor;
  throw new InvalidArgumentError('A number above 0 like 0.9 was expected.');
}

function usage(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_USAGE', { detail });
}
