import { hash } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { readInput } from '../files/read-input.js';

/** Adds `warmpath hash-key`. */
export function addHashKeyCommand(program: Command, context: CommandContext): void {
  addCommand(
    program,
    'hash-key',
    "read a key from standard input and print its SHA-256 for the gateway's server.keys",
  ).action(async () => {
    // An `echo` ends it with a line break.
    const key = (await readInput(undefined, context.stdin)).replace(/\r?\n$/, '');
    if (!/^[\x21-\x7e]+$/.test(key)) {
      const detail = 'one key of visible ASCII characters was expected, as a header can carry it';
      throw new WarmpathError('WARMPATH_USAGE', { path: 'stdin', detail });
    }
    const sha256 = hash('sha256', key);
    context.terminal.data({ sha256 });
    context.terminal.line(sha256);
  });
}
