import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { WarmpathError } from '@warmpath/core';
import { readSeeds, renderReport } from '@warmpath/lab';
import { PAPERS, type PaperName, reproduce, tablesOf } from './papers.js';
import { markdownOf } from './print-table.js';
import type { ReproducedTable, ReproduceOptions } from './reproduction.js';
import { reproductionPage } from './reproduction-page.js';
import { summaryLines } from './summary.js';

const USAGE = `Usage: npm run papers -- <paper> [table] [options]
       npm run papers -- summary [--seeds <range>]

Prints a paper's tables beside the simulator's, as Markdown; \`summary\` sets all of them side by side (minutes).

  --seeds <range>      seeds of drawn workloads: 42, or 101..110, or 1,5,7; ragcache only; default 101..110
  --requests <number>  requests of each run of these; default the paper's
  --json               print JSON
  --report <file>      write a page with plots to this file: HTML, complete in itself

Tables:
${PAPERS.map((paper) => `  ${paper}: ${tablesOf(paper).join(', ')}`).join('\n')}
`;

/** The paper draws 0.8 requests a second: this is more than a day. */
const MAX_REQUESTS = 100_000;

interface Command {
  readonly paper: PaperName;
  /** One table; all of them if left out. */
  readonly table: string | undefined;
  readonly options: Partial<ReproduceOptions>;
  readonly json: boolean;
  /** File of the page with plots. */
  readonly report: string | undefined;
}

/** Reads the command line; `undefined` if it asks for help. Errors: `WARMPATH_USAGE`. */
function readCommand(args: readonly string[]): Command | undefined {
  const { values, positionals } = readArguments(args);
  if (values.help) return undefined;
  const [name, table, ...rest] = positionals;
  const paper = PAPERS.find((known) => known === name);
  if (paper === undefined) throw usageError('<paper>', `one of ${PAPERS.join(', ')} was expected`);
  if (rest.length > 0) throw usageError(rest[0]!, 'one table at most');
  const options = {
    ...(values.seeds !== undefined && { seeds: readSeeds(values.seeds) }),
    ...(values.requests !== undefined && { requests: readRequests(values.requests) }),
  };
  return { paper, table, options, json: values.json, report: values.report };
}

function readArguments(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        help: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        report: { type: 'string' },
        requests: { type: 'string' },
        seeds: { type: 'string' },
      },
    });
  } catch (error) {
    throw usageError('arguments', (error as Error).message);
  }
}

function readRequests(text: string): number {
  const requests = Number(text);
  if (/^\d+$/.test(text) && requests >= 1 && requests <= MAX_REQUESTS) return requests;
  throw usageError('--requests', `a whole number from 1 to ${MAX_REQUESTS} was expected`);
}

function usageError(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_USAGE', { path, detail });
}

/** Makes the tables and prints each as soon as it is there, so that a run that is stopped has shown what it has. */
function printTables({ paper, table, options, json }: Command): readonly ReproducedTable[] {
  const tables: ReproducedTable[] = [];
  for (const name of table === undefined ? tablesOf(paper) : [table]) {
    const reproduced = reproduce(paper, name, options);
    if (!json) for (const each of reproduced) process.stdout.write(`${markdownOf(each)}\n`);
    tables.push(...reproduced);
  }
  if (json) process.stdout.write(`${JSON.stringify({ paper, tables })}\n`);
  return tables;
}

async function writePage(file: string, { paper, table }: Command, tables: readonly ReproducedTable[]): Promise<void> {
  const manifest = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(manifest) as { version: string };
  const command = ['npm run papers --', paper, ...(table === undefined ? [] : [table])].join(' ');
  const html = await renderReport(reproductionPage(paper, tables), { command, version });
  await writeFile(file, html).catch((cause: unknown) => {
    throw new WarmpathError('WARMPATH_USAGE', { path: '--report', detail: `cannot write ${file}`, cause });
  });
}

try {
  const args = process.argv.slice(2);
  const command = args[0] === 'summary' ? undefined : readCommand(args);
  if (args[0] === 'summary') {
    const { seeds } = readArguments(args.slice(1)).values;
    const options = seeds === undefined ? {} : { seeds: readSeeds(seeds) };
    for (const line of summaryLines(options)) process.stdout.write(`${line}\n`);
  } else if (command === undefined) {
    process.stdout.write(USAGE);
  } else {
    const tables = printTables(command);
    if (command.report !== undefined) await writePage(command.report, command, tables);
  }
} catch (error) {
  if (!WarmpathError.isInstance(error)) throw error;
  process.stderr.write(`error: ${error.message}\n  path    ${error.path}\n\n${USAGE}`);
  process.exitCode = 2;
}
