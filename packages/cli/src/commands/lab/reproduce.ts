import { PAPERS, type PaperName, reproduce, reproductionPage, tablesOf } from '@warmpath/lab';
import { Argument, type Command } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { printReproduction } from '../../lab/print-report.js';
import { addReportOption, type ReportOption, writeReport } from '../../lab/report-file.js';

/** Adds `warmpath lab reproduce`. */
export function addReproduceCommand(lab: Command, { terminal, argv }: CommandContext): void {
  const command = addCommand(lab, 'reproduce', "print a paper's tables beside the simulator's")
    .addArgument(new Argument('<paper>', 'whose tables').choices(PAPERS))
    .argument('[table]', 'one of them; all of them by default')
    .addHelpText(
      'after',
      `\nTables:\n${PAPERS.map((paper) => `  ${paper}: ${tablesOf(paper).join(', ')}`).join('\n')}`,
    );
  addReportOption(command).action(async (paper: PaperName, table: string | undefined, options: ReportOption) => {
    const tables = reproduce(paper, table);
    await writeReport(() => reproductionPage(paper, tables), options, argv);
    printReproduction(tables, terminal);
    terminal.data({ paper, tables });
  });
}
