import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  PAPERS,
  type PaperName,
  REPRODUCTION_SEEDS,
  type ReproducedTable,
  reproduce,
  reproductionPage,
  tablesOf,
} from '@warmpath/lab';
import { Argument, type Command } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { seedsOption } from '../../lab/options.js';
import { printReproduction } from '../../lab/print-report.js';
import { addReportOption, type ReportOption, writeReport } from '../../lab/report-file.js';
import { wholeNumber } from '../../options.js';
import { startProgress } from '../../progress.js';

/** A day at the paper's rate, and more. */
const MAX_REQUESTS = 100_000;

interface ReproduceCommandOptions extends ReportOption {
  readonly seeds: readonly number[];
  readonly requests?: number;
}

const DEFAULT_SEEDS = `${REPRODUCTION_SEEDS[0]}..${REPRODUCTION_SEEDS.at(-1)}`;

/** Adds `warmpath lab reproduce`. */
export function addReproduceCommand(lab: Command, { terminal, argv }: CommandContext): void {
  const command = addCommand(lab, 'reproduce', "print a paper's tables beside the simulator's")
    .addArgument(new Argument('<paper>', 'whose tables').choices(PAPERS))
    .argument('[table]', 'one of them; all of them by default')
    .addOption(
      seedsOption('seeds of the workloads that are drawn: 42, or 101..110, or 1,5,7; ragcache only', DEFAULT_SEEDS),
    )
    .option('--requests <number>', "requests of each run of these; default the paper's", wholeNumber(1, MAX_REQUESTS))
    .addHelpText(
      'after',
      `\nTables:\n${PAPERS.map((paper) => `  ${paper}: ${tablesOf(paper).join(', ')}`).join('\n')}`,
    );
  addReportOption(command).action(
    async (paper: PaperName, table: string | undefined, options: ReproduceCommandOptions) => {
      const names = table === undefined ? tablesOf(paper) : [table];
      const tables: ReproducedTable[] = [];
      for (const [done, name] of names.entries()) {
        const progress = startProgress(terminal, `${name}, table`, names.length, done);
        await nextTurn();
        const made = reproduce(paper, name, options);
        progress.stop();
        // Printed at once: a run that is stopped half way has shown what it has.
        printReproduction(made, terminal);
        tables.push(...made);
      }
      await writeReport(() => reproductionPage(paper, tables), options, argv);
      terminal.data({ paper, tables });
    },
  );
}
