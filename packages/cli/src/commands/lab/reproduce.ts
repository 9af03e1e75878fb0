import { PAPERS, type PaperName, reproduce, tablesOf } from '@warmpath/lab';
import { Argument, type Command } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { printReproduction } from '../../lab/print-report.js';

/** Adds `warmpath lab reproduce`. */
export function addReproduceCommand(lab: Command, { terminal }: CommandContext): void {
  addCommand(lab, 'reproduce', "print a paper's tables beside the simulator's")
    .addArgument(new Argument('<paper>', 'whose tables').choices(PAPERS))
    .argument('[table]', 'one of them; all of them by default')
    .addHelpText('after', `\nTables:\n${PAPERS.map((paper) => `  ${paper}: ${tablesOf(paper).join(', ')}`).join('\n')}`)
    .action((paper: PaperName, table: string | undefined) => {
      const tables = reproduce(paper, table);
      printReproduction(tables, terminal);
      terminal.data({ paper, tables });
    });
}
