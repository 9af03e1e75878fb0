import { stat } from 'node:fs/promises';
import { fileErrorReason, WarmpathError } from '@warmpath/core';
import { timeLeft } from '@warmpath/lab';
import type { EmbeddingReport, IngestProgress, IngestReport } from '@warmpath/retrieval';
import type { Command } from 'commander';
import {
  addCollectionOption,
  addCollectionsOptions,
  type CollectionsOptions,
  counted,
  describeTotals,
  withCollections,
} from '../collections/open-collection.js';
import { addCommand, type CommandContext } from '../command-context.js';
import { EXIT_CODES } from '../exit-codes.js';
import { withInterruption } from '../interruption.js';
import { wholeNumber } from '../options.js';
import type { Terminal } from '../terminal.js';

interface IngestCommandOptions extends CollectionsOptions {
  readonly collection: string;
  readonly chunkTokens?: number;
}

/** A passage that a section had to be cut for begins with this part of the one before it. */
const OVERLAP = 1 / 8;
/** Errors that are printed; all are counted. */
const ERRORS_SHOWN = 20;

/** Adds `warmpath ingest`. */
export function addIngestCommand(program: Command, context: CommandContext): void {
  const command = addCommand(program, 'ingest', 'bring a collection to what files and folders say, to be asked from');
  addCollectionsOptions(addCollectionOption(command))
    .argument('<paths...>', 'files and folders: Markdown, text, HTML, PDF, JSON Lines, BEIR')
    .option('--chunk-tokens <number>', 'most tokens of a passage, 128 to 512 (default: 384)', wholeNumber(128, 512))
    .action((paths: readonly string[], options: IngestCommandOptions) =>
      withInterruption((signal) => ingest(paths, options, context, signal)),
    );
}

async function ingest(
  paths: readonly string[],
  options: IngestCommandOptions,
  context: CommandContext,
  signal: AbortSignal,
): Promise<void> {
  const { terminal, environment } = context;
  const { collection: name, tenant, chunkTokens } = options;
  await withCollections(options, environment, async (collections) => {
    // A name that was mistyped makes no collection.
    await requireSome(paths);
    const collection = await collections.getOrMake(tenant, name);
    let shown = 0;
    const progress = showProgress(terminal);
    let report: IngestReport & { readonly embedding?: EmbeddingReport };
    try {
      report = await collection.ingest(paths, {
        signal,
        onProgress: progress.update,
        onEmbedded: progress.embedded,
        onError: ({ file, position, message }) => {
          if (++shown > ERRORS_SHOWN) return;
          progress.clear();
          terminal.note(`${file}${position === undefined ? '' : `, ${position}`}: ${message}`);
        },
        ...(chunkTokens !== undefined && {
          chunks: { tokens: chunkTokens, overlap: Math.floor(chunkTokens * OVERLAP) },
        }),
      });
    } finally {
      progress.clear();
    }
    if (shown > ERRORS_SHOWN) terminal.note(`… and ${shown - ERRORS_SHOWN} more that could not be read`);
    tell(terminal, report, { name, totals: describeTotals(collection) });
    terminal.data({ collection: name, ...report, totals: collection.totals });
    const { embedding } = report;
    if (embedding?.warning !== undefined) {
      terminal.note(`Not all passages have vectors: ${embedding.warning.message}`);
      terminal.note('They are found by their words. The same command goes on where this one stopped.');
    }
    if (report.errorCount > 0 || embedding?.warning !== undefined) context.exitCode = EXIT_CODES.failure;
  });
}

/** Error: WARMPATH_USAGE where none of the paths can be read. */
async function requireSome(paths: readonly string[]): Promise<void> {
  let failure: WarmpathError | undefined;
  for (const path of paths) {
    try {
      await stat(path);
      return;
    } catch (cause) {
      const detail = `cannot read ${path}: ${fileErrorReason(cause)}`;
      failure ??= new WarmpathError('WARMPATH_USAGE', { path: 'paths', detail, cause });
    }
  }
  if (failure !== undefined) throw failure;
}

/** A line with the share that is done and the time left, on a terminal. `now`: milliseconds of a monotonic clock. */
export function showProgress(terminal: Pick<Terminal, 'status'>, now: () => number = () => performance.now()) {
  const startedAt = now();
  let readAt = startedAt;
  const share = (done: number, total: number) => (total === 0 ? 100 : Math.floor((100 * done) / total));
  return {
    update: ({ files, totalFiles, bytes, totalBytes }: IngestProgress) => {
      readAt = now();
      const left = timeLeft(readAt - startedAt, bytes, totalBytes);
      terminal.status(`  ${share(bytes, totalBytes)} %  ${files} of ${totalFiles} files  ${left}`);
    },
    // After all is read: the pace of reading says nothing of an endpoint's.
    embedded: (count: number, total: number) => {
      const left = timeLeft(now() - readAt, count, total);
      const passages = `${count.toLocaleString('en')} of ${total.toLocaleString('en')} passages embedded`;
      terminal.status(`  ${share(count, total)} %  ${passages}  ${left}`);
    },
    clear: () => terminal.status(''),
  };
}

function tell(
  terminal: Terminal,
  {
    files,
    unchangedFiles,
    skippedFiles,
    added,
    changed,
    removed,
    errorCount,
    embedding,
  }: IngestReport & { readonly embedding?: EmbeddingReport },
  { name, totals }: { readonly name: string; readonly totals: string },
): void {
  const parts = [
    `${counted(added, 'document')} added`,
    `${changed} changed`,
    `${removed} removed`,
    ...(unchangedFiles > 0 ? [`${counted(unchangedFiles, 'file')} as before`] : []),
    ...(skippedFiles > 0 ? [`${counted(skippedFiles, 'file')} left out (not text)`] : []),
    ...(embedding !== undefined ? [`${counted(embedding.embedded, 'passage')} embedded`] : []),
    ...(errorCount > 0 ? [`${errorCount} could not be read`] : []),
  ];
  terminal.line(`${counted(files, 'file')}: ${parts.join(', ')}.`);
  terminal.line(`Collection ${name}: ${totals}.`);
}
