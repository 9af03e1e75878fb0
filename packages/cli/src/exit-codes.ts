import { WarmpathError } from '@warmpath/core';
import { CommanderError } from 'commander';
import { Interruption } from './interruption.js';

/** What the command line answers to the shell. */
export const EXIT_CODES = {
  ok: 0,
  failure: 1,
  usage: 2,
  configuration: 78,
  interrupted: 130,
  brokenPipe: 141,
  terminated: 143,
} as const;

export type ExitCode = (typeof EXIT_CODES)[keyof typeof EXIT_CODES];

/** Stands under every command's help. */
export const EXIT_CODES_HELP = `
Exit codes:
  0    done; for a server: stopped as asked
  1    failed
  2    the command line is not understood
  78   the configuration, a model or the machine's set-up is wrong
  130  interrupted (Ctrl-C) before it was done
  141  the reader of its output is gone
  143  terminated (SIGTERM) before it was done
`;

/** The exit code that tells a shell what kind of error this is. */
export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof Interruption) {
    return error.signalName === 'SIGTERM' ? EXIT_CODES.terminated : EXIT_CODES.interrupted;
  }
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT_CODES.ok : EXIT_CODES.usage;
  if (!WarmpathError.isInstance(error)) return EXIT_CODES.failure;
  if (error.code === 'WARMPATH_USAGE') return EXIT_CODES.usage;
  return error.type === 'configuration_error' ? EXIT_CODES.configuration : EXIT_CODES.failure;
}
