import type { Command } from 'commander';
import { addCommands, type CommandContext, examplesHelp } from '../command-context.js';
import { EXIT_CODES_HELP } from '../exit-codes.js';

/** Adds `warmpath lab`. */
export async function addLabCommand(program: Command, context: CommandContext): Promise<void> {
  const lab = program
    .command('lab')
    .description('simulate what an order of documents saves, without an engine or a GPU')
    .addHelpText('after', examplesHelp('lab'))
    .addHelpText('after', EXIT_CODES_HELP);
  await addCommands(lab, context, {
    run: async () => (await import('./lab/run.js')).addRunCommand,
    replay: async () => (await import('./lab/replay.js')).addReplayCommand,
    profile: async () => (await import('./lab/profile.js')).addProfileCommand,
    eval: async () => (await import('./lab/eval.js')).addEvalCommand,
    calibrate: async () => (await import('./lab/calibrate.js')).addCalibrateCommand,
  });
}
