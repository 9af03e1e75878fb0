import { type Report, renderReport } from '@warmpath/lab';
import type { Command } from 'commander';
import { writeWhole } from '../files/write-whole.js';
import { packageVersion } from '../version.js';

/** The option of commands that write a report page. */
export interface ReportOption {
  readonly report?: string;
}

/** Adds `--report`. */
export function addReportOption(command: Command): Command {
  return command.option('--report <file>', 'write a page with plots to this file: one file of HTML');
}

/**
 * Writes the page if `--report` asked for one. Error: `WARMPATH_USAGE` if it cannot be written.
 *
 * @param argv the command line that led to it, for the reader to repeat
 */
export async function writeReport(
  page: () => Report,
  { report }: ReportOption,
  argv: readonly string[],
): Promise<void> {
  if (report === undefined) return;
  const origin = { command: repeatableCommand(argv), version: packageVersion() };
  await writeWhole(report, await renderReport(page(), origin), '--report');
}

/** Options that say where results go, not what they are. */
const OUTPUT_OPTIONS = ['--report', '--resume'];

/**
 * A command line as it can be pasted into a shell, without the options that say where results go. Passwords in URLs are
 * left out: a page is made to be shown around.
 */
export function repeatableCommand(argv: readonly string[]): string {
  const words: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const [name] = argv[i]!.split('=', 1);
    if (OUTPUT_OPTIONS.includes(name!)) {
      // The file is in this word, or the next one is the file.
      if (name === argv[i]) i++;
    } else if (argv[i] !== '--json') {
      words.push(quote(withoutPassword(argv[i]!)));
    }
  }
  return ['warmpath', ...words].join(' ');
}

function withoutPassword(word: string): string {
  return word.replace(/(https?:\/\/)[^/?#\s]*@/i, '$1');
}

function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
