import { WarmpathError } from '@warmpath/core';
import { CommanderError } from 'commander';
import { EXIT_CODES, type ExitCode, exitCodeOf } from './exit-codes.js';
import { Interruption } from './interruption.js';
import type { Terminal } from './terminal.js';

/** How the parser ends where no command is named: it has printed the help. */
const NO_COMMAND = 'commander.help';

/**
 * Says what went wrong and answers with the exit code. For a person: message, code, and remedy, on standard error. With
 * `--json`: `{error: {message, type, param, code, remedy}}` on standard output, the shape that the servers answer with
 * too.
 */
export function reportFailure(error: unknown, terminal: Terminal): ExitCode {
  const exitCode = exitCodeOf(error);
  // Help and version were printed; a person who pressed Ctrl-C knows.
  if (exitCode === EXIT_CODES.ok) return exitCode;
  // Without a command, the help says it all.
  if (error instanceof CommanderError && error.code === NO_COMMAND && !terminal.json) return exitCode;
  if (error instanceof Interruption) {
    terminal.note(error.message);
    return exitCode;
  }
  const known = toWarmpathError(error);
  const lines = [`error: ${known.message}`, `  code    ${known.code}`];
  if (known.path !== undefined) lines.push(`  path    ${known.path}`);
  lines.push(`  remedy  ${known.remedy}`);
  terminal.error(lines, known.toOpenAI());
  return exitCode;
}

/** Errors from elsewhere under a code of the table. */
function toWarmpathError(error: unknown): WarmpathError {
  if (WarmpathError.isInstance(error)) return error;
  if (error instanceof CommanderError) {
    return new WarmpathError('WARMPATH_USAGE', {
      detail: error.code === NO_COMMAND ? 'a command is missing' : error.message.replace(/^error: /, ''),
    });
  }
  const detail = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return new WarmpathError('WARMPATH_INTERNAL', { detail, cause: error });
}
