import { readFile } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { ERROR_TABLE, fileErrorReason } from '@warmpath/core/internal';
import { type ConfigProblem, checkConfig, probeConversationStore } from '@warmpath/gateway';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { EXIT_CODES } from '../exit-codes.js';

/** Adds `warmpath check-config`. */
export function addCheckConfigCommand(program: Command, context: CommandContext): void {
  addCommand(program, 'check-config', 'check a configuration file of the gateway and print every problem')
    .argument('<file>', 'YAML or JSON file')
    .option('--connect', 'also connect to the store of conversations that the file names')
    .action((file: string, { connect }: { readonly connect?: boolean }) => check(file, connect ?? false, context));
}

async function check(file: string, connects: boolean, context: CommandContext): Promise<void> {
  const { terminal, environment } = context;
  const { config, problems } = checkConfig(await readConfig(file), environment);
  const ok = problems.length === 0;
  const sessionStore = connects && config !== undefined ? await probeConversationStore(config) : undefined;
  terminal.data({ file, ok, problems, ...(sessionStore !== undefined && { sessionStore }) });
  for (const problem of problems) terminal.line(describe(file, problem));
  for (const code of new Set(problems.map((problem) => problem.code))) {
    terminal.line(`  remedy  ${ERROR_TABLE[code].remedy} (${code})`);
  }
  if (ok) terminal.line(`${file} is valid`);
  else context.exitCode = EXIT_CODES.configuration;
  if (sessionStore === undefined) return;
  terminal.line(
    `The store of conversations (${sessionStore.kind}) is ${sessionStore.isUp ? 'up' : `down: ${sessionStore.reason}`}`,
  );
  if (!sessionStore.isUp) context.exitCode = EXIT_CODES.failure;
}

async function readConfig(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_NOT_FOUND', {
      path: file,
      detail: `cannot be read: ${fileErrorReason(cause)}`,
      cause,
    });
  }
}

/** `file:line  key: what is wrong (CODE)`, which editors and terminals make a link of. */
function describe(file: string, { line, path, message, code }: ConfigProblem): string {
  const where = line === undefined ? file : `${file}:${line}`;
  return `${where}  ${path === '' ? '' : `${path}: `}${message} (${code})`;
}
