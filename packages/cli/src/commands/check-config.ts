import { readFile } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { type ConfigProblem, checkConfig } from '@warmpath/gateway';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { EXIT_CODES } from '../exit-codes.js';

/** Adds `warmpath check-config`. */
export function addCheckConfigCommand(program: Command, context: CommandContext): void {
  addCommand(program, 'check-config', 'check a configuration file of the gateway and say all that is wrong with it')
    .argument('<file>', 'YAML or JSON file')
    .action(async (file: string) => {
      const { problems } = checkConfig(await readConfig(file), context.environment);
      const ok = problems.length === 0;
      context.terminal.data({ file, ok, problems });
      for (const problem of problems) context.terminal.line(describe(file, problem));
      if (ok) context.terminal.line(`${file} is valid`);
      else context.exitCode = EXIT_CODES.configuration;
    });
}

async function readConfig(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_NOT_FOUND', { path: file, cause });
  }
}

/** `file:line  key: what is wrong (CODE)`, which editors and terminals make a link of. */
function describe(file: string, { line, path, message, code }: ConfigProblem): string {
  const where = line === undefined ? file : `${file}:${line}`;
  return `${where}  ${path === '' ? '' : `${path}: `}${message} (${code})`;
}
