import type { Command } from 'commander';
import type { CommandContext } from '../command-context.js';
import { EXIT_CODES_HELP } from '../exit-codes.js';
import { examplesHelp } from '../help-examples.js';
import { addCalibrateCommand } from './lab/calibrate.js';
import { addEvalCommand } from './lab/eval.js';
import { addProfileCommand } from './lab/profile.js';
import { addReplayCommand } from './lab/replay.js';
import { addRunCommand } from './lab/run.js';

/** Adds `warmpath lab`. */
export function addLabCommand(program: Command, context: CommandContext): void {
  const lab = program
    .command('lab')
    .description('simulate what an order of documents saves, without an engine or a GPU')
    .addHelpText('after', examplesHelp('lab'))
    .addHelpText('after', EXIT_CODES_HELP);
  addRunCommand(lab, context);
  addReplayCommand(lab, context);
  addProfileCommand(lab, context);
  addEvalCommand(lab, context);
  addCalibrateCommand(lab, context);
}
