import { PAPERS, type PaperName, reproduce } from '@warmpath/lab';
import { Argument, type Command } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { printReproduction } from '../../lab/print-report.js';

/** Adds `warmpath lab reproduce`. */
export function addReproduceCommand(lab: Command, { terminal }: CommandContext): void {
  addCommand(lab, 'reproduce', "print a paper's tables beside the simulator's")
    .addArgument(new Argument('<paper>', 'whose tables').choices(PAPERS))
    .action((paper: PaperName) => {
      const tables = reproduce(paper);
      printReproduction(tables, terminal);
      terminal.data({ paper, tables });
    });
}
