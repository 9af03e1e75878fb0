import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import type { SessionImport } from '@warmpath/gateway';
import { type Command, Option } from 'commander';
import { type AdminAddress, AdminClient, adminSocket } from '../admin-client.js';
import { addCommand, type CommandContext, examplesHelp } from '../command-context.js';
import { EXIT_CODES, EXIT_CODES_HELP } from '../exit-codes.js';
import { writeLines } from '../files/write-lines.js';

const KEY_HEADERS = ['authorization', 'x-api-key', 'api-key'] as const;

const WHICH_HELP = `
A tenant is named as an export names it, or by the client's key in an environment variable; clients without a key are the
tenant \`anonymous\`.`;

interface Which extends AdminAddress {
  readonly tenant?: string;
  readonly keyFrom?: string;
  readonly keyHeader: (typeof KEY_HEADERS)[number];
  readonly session?: string;
  readonly user?: string;
  readonly all?: boolean;
}

/** Adds `warmpath sessions`. */
export function addSessionsCommand(program: Command, context: CommandContext): void {
  const sessions = program
    .command('sessions')
    .description('export, import and forget conversations of a running gateway')
    .addHelpText('after', examplesHelp('sessions'))
    .addHelpText('after', EXIT_CODES_HELP);
  addWhich(
    addAddress(
      addCommand(sessions, 'export', 'export conversations; the file holds prompts and documents in the clear'),
    ),
  )
    .argument('[file]', 'output file, readable by this user only; default or -: standard output')
    .addHelpText('after', WHICH_HELP)
    .action((file: string | undefined, options: Which) => exportSessions(file, options, context));
  addAddress(addCommand(sessions, 'import', 'import an export; conversations that exist already stay'))
    .argument('[file]', 'an export; standard input if left out or -')
    .action((file: string | undefined, options: AdminAddress) => importSessions(file, options, context));
  addWhich(addAddress(addCommand(sessions, 'forget', 'forget conversations in every gateway that shares the store')))
    .option('--all', 'everything of all tenants')
    .addHelpText('after', WHICH_HELP)
    .action((options: Which) => forgetSessions(options, context));
}

function addAddress(command: Command): Command {
  return command
    .option('--socket <path>', "the gateway's admin.socket")
    .option('--config <file>', "the gateway's configuration, which names its admin.socket");
}

function addWhich(command: Command): Command {
  return command
    .option('--tenant <name>', 'of one tenant')
    .option('--key-from <variable>', 'of the tenant whose key is in this environment variable')
    .addOption(
      new Option('--key-header <name>', 'header in which that client sends its key')
        .choices(KEY_HEADERS)
        .default('authorization'),
    )
    .option('--user <name>', "of one of the tenant's end users; with an empty name, of none")
    .option('--session <name>', 'the conversation of this name; without --user, one without an end user');
}

async function exportSessions(file: string | undefined, options: Which, context: CommandContext): Promise<void> {
  const client = new AdminClient(await adminSocket(options, context.environment));
  try {
    const lines = await client.get(`/sessions?${queryOf(options)}`, keyOf(options, context.environment));
    if (file === undefined || file === '-') await context.terminal.pour(lines);
    else await writeLines(file, lines);
  } finally {
    await client.close();
  }
  if (file !== undefined && file !== '-') {
    context.terminal.line(`${file} written`);
    context.terminal.data({ file });
  }
}

async function importSessions(file: string | undefined, options: AdminAddress, context: CommandContext): Promise<void> {
  const { terminal, stdin, environment } = context;
  const client = new AdminClient(await adminSocket(options, environment));
  let result: SessionImport;
  try {
    const input: Readable = file === undefined || file === '-' ? stdin : createReadStream(file);
    result = (await client.send('POST', '/sessions', {}, input)) as SessionImport;
  } finally {
    await client.close();
  }
  terminal.data(result);
  const { imported, expired, refused, refusedCount, complete } = result;
  terminal.line(`${imported} taken in, ${expired} too old, ${refusedCount} refused`);
  for (const { line, path, detail } of refused)
    terminal.note(`line ${line}: ${path === '' ? detail : `${path}: ${detail}`}`);
  if (!complete) terminal.note('the export was cut off: its end is missing');
  if (refusedCount > 0 || !complete) context.exitCode = EXIT_CODES.failure;
}

async function forgetSessions(options: Which, { terminal, environment }: CommandContext): Promise<void> {
  const client = new AdminClient(await adminSocket(options, environment));
  try {
    const all = options.all === true ? '&all=true' : '';
    const key = keyOf(options, environment);
    const result = (await client.send('DELETE', `/sessions?${queryOf(options)}${all}`, key)) as {
      readonly forgotten: number;
    };
    terminal.data(result);
    terminal.line(`${result.forgotten} turns forgotten`);
  } finally {
    await client.close();
  }
}

function queryOf({ tenant, keyFrom, user, session }: Which): string {
  const query = new URLSearchParams();
  if (tenant !== undefined && keyFrom === undefined) query.set('tenant', tenant);
  if (user !== undefined) query.set('user', user);
  if (session !== undefined) query.set('session', session);
  return query.toString();
}

/** The client's key as that client sends it: the gateway knows whose it is. */
function keyOf({ keyFrom, keyHeader }: Which, environment: NodeJS.ProcessEnv): Record<string, string> {
  if (keyFrom === undefined) return {};
  const key = environment[keyFrom];
  if (key === undefined) {
    throw new WarmpathError('WARMPATH_USAGE', { path: '--key-from', detail: `${keyFrom} is not set` });
  }
  return { [keyHeader]: keyHeader === 'authorization' ? `Bearer ${key}` : key };
}
