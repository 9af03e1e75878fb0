import type { Command } from 'commander';
import { EXIT_CODES, EXIT_CODES_HELP, type ExitCode } from './exit-codes.js';
import { examplesHelp } from './help-examples.js';
import type { Terminal } from './terminal.js';

/** What every command works with. */
export interface CommandContext {
  readonly terminal: Terminal;
  readonly environment: NodeJS.ProcessEnv;
  readonly stdin: NodeJS.ReadStream;
  /** What stands behind the program's name on the command line. */
  readonly argv: readonly string[];
  /** What the process will answer to the shell unless an error decides otherwise. */
  exitCode: ExitCode;
}

/** The name of the whole program. */
export const PROGRAM = 'warmpath';

/** Adds a command with what all commands have: `--json`, and examples and the exit codes in its help. */
export function addCommand(program: Command, name: string, description: string): Command {
  const group = program.name() === PROGRAM ? '' : `${program.name()} `;
  return program
    .command(name)
    .description(description)
    .option('--json', 'print JSON on standard output, errors too')
    .addHelpText('after', examplesHelp(`${group}${name}`))
    .addHelpText('after', EXIT_CODES_HELP);
}

/** Adds a command, or several under one name. */
type AddCommand = (program: Command, context: CommandContext) => void | Promise<void>;

/**
 * Loads and adds the command that the command line names under `program`; all of them where it names none, for the help
 * and for suggestions. Loading every command would take most of the time that a short one needs.
 */
export async function addCommands(
  program: Command,
  context: CommandContext,
  commands: Readonly<Record<string, () => Promise<AddCommand>>>,
): Promise<void> {
  const named = context.argv[program.name() === PROGRAM ? 0 : 1];
  const loads = named !== undefined && Object.hasOwn(commands, named) ? [commands[named]!] : Object.values(commands);
  for (const load of loads) {
    const add = await load();
    await add(program, context);
  }
}

/** A fresh context. */
export function createContext(terminal: Terminal): CommandContext {
  return {
    terminal,
    environment: process.env,
    stdin: process.stdin,
    argv: process.argv.slice(2),
    exitCode: EXIT_CODES.ok,
  };
}
