import { WarmpathError } from '@warmpath/core';
import { describeJsonError } from '@warmpath/core/internal';
import type { Command } from 'commander';
import { arrangeAfter } from '../arrange-after.js';
import { addCommand, type CommandContext } from '../command-context.js';
import { readInput } from '../files/read-input.js';

const INPUT_HELP = `
Input:
  {"documents": [{"id", "title"?, "content"}, …], "policy"?, "maxShift"?, "shiftPrice"?, "pin"?, "hints"?, "history"?}
  "history" holds earlier requests as lists of document ids, oldest first, each in the order in which it was served:
  what the engine is taken to hold. Output is JSON in any case; --json puts it on one line.`;

/** Adds `warmpath arrange`. */
export function addArrangeCommand(program: Command, { terminal, stdin }: CommandContext): void {
  addCommand(program, 'arrange', 'order documents: JSON in, JSON out; stores nothing')
    .argument('[file]', 'JSON file; standard input if left out or -')
    .addHelpText('after', INPUT_HELP)
    .action(async (file: string | undefined) => {
      terminal.result(arrangeAfter(parse(await readInput(file, stdin))));
    });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_INVALID_JSON', { detail: describeJsonError(text), cause });
  }
}
