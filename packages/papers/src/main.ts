import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { WarmpathError } from '@warmpath/core';
import { printableLine } from '@warmpath/core/internal';
import { readData, readSeeds, renderReport, timeLeft, type Workload } from '@warmpath/lab';
import { PAPERS, type PaperName, reproduce, tablesOf } from './papers.js';
import { markdownOf } from './print-table.js';
import type { ReproducedTable, ReproduceOptions } from './reproduction.js';
import { reproductionPage } from './reproduction-page.js';
import { KeptLines, summaryLines } from './summary.js';

const USAGE = `Usage: npm run papers -- <paper> [table] [options]
       npm run papers -- summary [--quick] [--seeds <range>] [--data <folder>] [--resume <file>]

Prints a paper's tables beside the simulator's, as Markdown; \`summary\` sets all of them side by side.

  --seeds <range>      seeds of drawn workloads: 42, or 101..110, or 1,5,7; default 101..105, ragcache 101..110
  --quick              the first two of these seeds; summary only
  --resume <file>      keep every line in this file, and go on from those that it holds; summary only
  --requests <number>  requests of each run of ragcache, questions to ragboost's agents; default the paper's
  --data <folder>      folder with nq-open/NQ-open.dev.jsonl, for a row of cacheweaver table-6; default none
  --json               print JSON
  --report <file>      write a page with plots to this file: one file of HTML

Tables:
${PAPERS.map((paper) => `  ${paper}: ${tablesOf(paper).join(', ')}`).join('\n')}
`;

/** The paper draws 0.8 requests a second: this is more than a day. */
const MAX_REQUESTS = 100_000;

const SUMMARY = 'summary';

interface Command {
  readonly paper: PaperName | typeof SUMMARY;
  /** One table; all of them if left out. */
  readonly table: string | undefined;
  readonly options: Partial<ReproduceOptions>;
  readonly isQuick: boolean;
  readonly json: boolean;
  /** File of the page with plots. */
  readonly report: string | undefined;
  /** File of the lines of a summary. */
  readonly resume: string | undefined;
}

/** Reads the command line; `undefined` if it asks for help. Errors: `WARMPATH_USAGE`. */
async function readCommand(args: readonly string[]): Promise<Command | undefined> {
  const { values, positionals } = readArguments(args);
  if (values.help) return undefined;
  const [name, table, ...rest] = positionals;
  const paper = name === SUMMARY ? SUMMARY : PAPERS.find((known) => known === name);
  if (paper === undefined) throw usageError('<paper>', `one of ${PAPERS.join(', ')} was expected, or ${SUMMARY}`);
  if (rest.length > 0 || (paper === SUMMARY && table !== undefined)) {
    throw usageError(rest[0] ?? table!, `${paper === SUMMARY ? 'no' : 'one'} table at most`);
  }
  const isQuick = values.quick ?? false;
  const unknown = paper === SUMMARY ? (['json', 'report', 'requests'] as const) : (['quick', 'resume'] as const);
  for (const option of unknown) {
    if (values[option] !== undefined) throw usageError(`--${option}`, `${paper} does not take it`);
  }
  const options = {
    ...(values.seeds !== undefined && { seeds: readSeeds(values.seeds) }),
    ...(values.requests !== undefined && { requests: readRequests(values.requests) }),
    ...(values.data !== undefined && { nqOpen: await readNqOpen(values.data) }),
  };
  return { paper, table, options, isQuick, json: values.json ?? false, report: values.report, resume: values.resume };
}

function readArguments(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        data: { type: 'string' },
        help: { type: 'boolean' },
        json: { type: 'boolean' },
        quick: { type: 'boolean' },
        report: { type: 'string' },
        requests: { type: 'string' },
        resume: { type: 'string' },
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

/** The first 200 questions of NQ-Open, searched among their own records. Errors: those of `readData`. */
async function readNqOpen(folder: string): Promise<Workload> {
  const { workload } = await readData(join(folder, 'nq-open', 'NQ-open.dev.jsonl'), {
    format: 'nq-open',
    records: 200,
  });
  return workload;
}

function usageError(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_USAGE', { path, detail });
}

/** Says on standard error, where a person watches, which table is being made, and how long all of them take. */
class TableProgress {
  readonly #total: number;
  readonly #startedAt = performance.now();
  #done = 0;

  constructor(total: number) {
    this.#total = total;
    this.#show();
  }

  /** Prints on an empty line of the terminal. @param tables that are done with this */
  print(text: string, tables = 1): void {
    this.#done += tables;
    this.clear();
    process.stdout.write(text);
    if (this.#done < this.#total) this.#show();
  }

  clear(): void {
    if (process.stderr.isTTY) process.stderr.write('\r\u001b[2K');
  }

  #show(): void {
    if (!process.stderr.isTTY) return;
    const left = timeLeft(performance.now() - this.#startedAt, this.#done, this.#total);
    process.stderr.write(`  table ${this.#done + 1} of ${this.#total} …  ${left}`);
  }
}

/** Makes the tables and prints each as soon as it is there, so that a run that is stopped has shown what it has. */
function printTables(paper: PaperName, { table, options, json }: Command): readonly ReproducedTable[] {
  const tables: ReproducedTable[] = [];
  const names = table === undefined ? tablesOf(paper) : [table];
  const progress = new TableProgress(names.length);
  try {
    for (const name of names) {
      const reproduced = reproduce(paper, name, options);
      progress.print(json ? '' : reproduced.map((each) => `${markdownOf(each)}\n`).join(''));
      tables.push(...reproduced);
    }
  } finally {
    progress.clear();
  }
  if (json) process.stdout.write(`${JSON.stringify({ paper, tables })}\n`);
  return tables;
}

function printSummary({ options, isQuick, resume }: Command): void {
  const seeds = options.seeds?.join() ?? (isQuick ? 'two seeds' : 'all seeds');
  const settings = `${seeds}${options.nqOpen === undefined ? '' : ', --data'}`;
  const kept = resume === undefined ? undefined : new KeptLines(resume, settings);
  const progress = new TableProgress(PAPERS.reduce((sum, paper) => sum + tablesOf(paper).length, 0));
  try {
    for (const line of summaryLines({ ...options, isQuick }, kept)) {
      const isTable = PAPERS.some((paper) => line.startsWith(`| ${paper} |`));
      progress.print(`${line}\n`, isTable ? 1 : 0);
    }
  } finally {
    progress.clear();
  }
}

async function run(command: Command): Promise<void> {
  const { paper, report } = command;
  if (paper === SUMMARY) {
    printSummary(command);
    return;
  }
  const tables = printTables(paper, command);
  if (report !== undefined) await writePage(report, { paper, table: command.table, tables });
}

interface Page {
  readonly paper: PaperName;
  readonly table: string | undefined;
  readonly tables: readonly ReproducedTable[];
}

async function writePage(file: string, { paper, table, tables }: Page): Promise<void> {
  const manifest = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(manifest) as { version: string };
  const command = ['npm run papers --', paper, ...(table === undefined ? [] : [table])].join(' ');
  const html = await renderReport(reproductionPage(paper, tables), { command, version });
  await writeFile(file, html).catch((cause: unknown) => {
    throw new WarmpathError('WARMPATH_USAGE', { path: '--report', detail: `cannot write ${file}`, cause });
  });
}

try {
  const command = await readCommand(process.argv.slice(2));
  if (command === undefined) process.stdout.write(USAGE);
  else await run(command);
} catch (error) {
  if (!WarmpathError.isInstance(error)) throw error;
  const lines = [`error: ${error.message}`, `  path    ${error.path}`].map(printableLine);
  process.stderr.write(`${lines.join('\n')}\n\n${USAGE}`);
  process.exitCode = 2;
}
