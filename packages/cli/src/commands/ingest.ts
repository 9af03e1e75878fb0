import { stat } from 'node:fs/promises';
import { extname } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import type { Collection, Collections, EmbeddingReport, IngestReport } from '@warmpath/retrieval';
import type { Command } from 'commander';
import {
  addCollectionOption,
  addCollectionsOptions,
  type CollectionsOptions,
  counted,
  describeTotals,
  withCollections,
} from '../collections/open-collection.js';
import { showProgress, tellMissingVectors } from '../collections/tell-progress.js';
import { addCommand, type CommandContext } from '../command-context.js';
import { EXIT_CODES } from '../exit-codes.js';
import { withInterruption } from '../interruption.js';
import { oneMore, wholeNumber } from '../options.js';
import type { Terminal } from '../terminal.js';

interface IngestCommandOptions extends CollectionsOptions {
  readonly collection: string;
  readonly chunkTokens?: number;
  readonly followLinks?: true;
  readonly include?: readonly string[];
  readonly exclude?: readonly string[];
}

/** A passage that a section had to be cut for begins with this part of the one before it. */
const OVERLAP = 1 / 8;
/** Errors that are printed; all are counted. */
const ERRORS_SHOWN = 20;
/** Names that are printed of files and links that were left out, and endings of names. */
const SKIPPED_SHOWN = 5;

/** Adds `warmpath ingest`. */
export function addIngestCommand(program: Command, context: CommandContext): void {
  const command = addCommand(program, 'ingest', 'index files and folders into a collection');
  addCollectionsOptions(addCollectionOption(command))
    .argument('<paths...>', 'files and folders: Markdown, text, HTML, PDF, JSON Lines, BEIR')
    .option(
      '--chunk-tokens <number>',
      'most tokens of a passage from now on, 128 to 512; as before if left out, and 384 at first',
      wholeNumber(128, 512),
    )
    .option('--include <pattern>', 'only files that a pattern of .gitignore names; may be repeated', oneMore)
    .option('--exclude <pattern>', 'neither files nor folders that a pattern names; may be repeated', oneMore)
    .option('--follow-links', 'follow symbolic links in folders, out of the folder too; the summary names them')
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
  const { collection: name, tenant, chunkTokens, followLinks = false, include, exclude } = options;
  await withCollections(options, environment, async (collections) => {
    // A name that was mistyped makes no collection.
    const hints = await requireSome(paths, await known(collections, tenant, name));
    const collection = await collections.getOrMake(tenant, name);
    const { tokens } = collection.chunks;
    if (chunkTokens !== undefined && chunkTokens !== tokens && collection.totals.documents > 0) {
      terminal.note(`Passages have at most ${chunkTokens} tokens from now on, and not ${tokens}: files are cut anew.`);
    }
    let shown = 0;
    const progress = showProgress(terminal);
    let report: IngestReport & { readonly embedding?: EmbeddingReport };
    try {
      report = await collection.ingest(paths, {
        signal,
        followLinks,
        ...(include && { include }),
        ...(exclude && { exclude }),
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
    if (shown > ERRORS_SHOWN) terminal.note(`… and ${shown - ERRORS_SHOWN} more`);
    tellSkipped(terminal, report);
    tellLinks(terminal, report);
    tell(terminal, report, { name, totals: describeTotals(collection) });
    terminal.data({ collection: name, ...report, totals: collection.totals });
    if (report.errorCount > 0) context.exitCode = EXIT_CODES.failure;
    tellMissingVectors(report.embedding, context);
    for (const hint of hints) terminal.note(hint);
  });
}

/** The collection, where it is there. */
function known(collections: Collections, tenant: string, name: string): Promise<Collection | undefined> {
  return collections.get(tenant, name).catch((error: unknown) => {
    if (WarmpathError.isInstance(error) && error.code === 'WARMPATH_COLLECTION_NOT_FOUND') return undefined;
    throw error;
  });
}

/**
 * What to do about paths that are gone and whose documents the collection still has.
 * Error: WARMPATH_USAGE where none of the paths can be read.
 */
async function requireSome(paths: readonly string[], collection: Collection | undefined): Promise<string[]> {
  const hints: string[] = [];
  let failure: { readonly detail: string; readonly cause: unknown } | undefined;
  let isSome = false;
  for (const path of paths) {
    try {
      await stat(path);
      isSome = true;
    } catch (cause) {
      failure ??= { detail: `cannot read ${path}: ${fileErrorReason(cause)}`, cause };
      const isGone = (cause as NodeJS.ErrnoException).code === 'ENOENT';
      const documents = isGone && collection !== undefined ? await collection.documentsAt(path) : 0;
      if (documents === 0) continue;
      const command = `warmpath collections remove ${collection!.name} ${path}`;
      hints.push(`The collection keeps ${counted(documents, 'document')} of ${path}; \`${command}\` takes them out.`);
    }
  }
  if (isSome || failure === undefined) return hints;
  const detail = [failure.detail, ...hints].join('. ');
  throw new WarmpathError('WARMPATH_USAGE', { path: 'paths', detail, cause: failure.cause });
}

/** A line for each reason: `Left out, hidden: docs/.a, docs/.b and 3 more (.md, .txt)`. */
function tellSkipped(terminal: Terminal, { skipped, skippedCount }: IngestReport): void {
  const byReason = new Map<string, string[]>();
  for (const { file, reason } of skipped) {
    const names = byReason.get(reason) ?? [];
    byReason.set(reason, names);
    names.push(file);
  }
  for (const [reason, names] of byReason) {
    const shown = names.slice(0, SKIPPED_SHOWN);
    const more = names.length > shown.length ? ` and ${(names.length - shown.length).toLocaleString('en')} more` : '';
    const endings = [...new Set(names.map((name) => extname(name).toLowerCase()))].filter((ending) => ending !== '');
    const kinds = [...endings.slice(0, SKIPPED_SHOWN), ...(endings.length > SKIPPED_SHOWN ? ['…'] : [])].join(', ');
    const suffix = more === '' || kinds === '' ? more : `${more} (${kinds})`;
    terminal.note(`Left out, ${reason.replace(/\.$/, '')}: ${shown.join(', ')}${suffix}`);
  }
  const unnamed = skippedCount - skipped.length;
  if (unnamed > 0) terminal.note(`Left out: ${unnamed.toLocaleString('en')} more`);
}

function tellLinks(terminal: Terminal, report: IngestReport): void {
  const { followedLinks, followedLinkCount, skippedLinks, skippedLinkCount } = report;
  const shown = (links: IngestReport['skippedLinks'], count: number) => {
    const names = links.slice(0, SKIPPED_SHOWN).map(({ link, target }) => `${link} → ${target}`);
    return `${names.join(', ')}${count > names.length ? ` and ${(count - names.length).toLocaleString('en')} more` : ''}`;
  };
  if (followedLinkCount > 0) {
    terminal.note(`Followed ${counted(followedLinkCount, 'link')}: ${shown(followedLinks, followedLinkCount)}`);
  }
  if (skippedLinkCount > 0) {
    const names = shown(skippedLinks, skippedLinkCount);
    terminal.note(`Left out ${counted(skippedLinkCount, 'link')} (--follow-links follows them): ${names}`);
  }
}

function tell(
  terminal: Terminal,
  {
    files,
    unchangedFiles,
    skippedCount,
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
    ...(skippedCount > 0 ? [`${skippedCount.toLocaleString('en')} left out`] : []),
    ...(embedding !== undefined ? [`${counted(embedding.embedded, 'passage')} embedded`] : []),
    ...(errorCount > 0 ? [`${errorCount} could not be read`] : []),
  ];
  terminal.line(`${counted(files, 'file')}: ${parts.join(', ')}.`);
  terminal.line(`Collection ${name}: ${totals}.`);
}
