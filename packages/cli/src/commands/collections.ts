import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import type { Collections, CollectionTotals } from '@warmpath/retrieval';
import type { Command } from 'commander';
import {
  addCollectionsOptions,
  type CollectionsOptions,
  counted,
  describeTotals,
  withCollections,
} from '../collections/open-collection.js';
import { showProgress, tellMissingVectors } from '../collections/tell-progress.js';
import { addCommand, type CommandContext, examplesHelp } from '../command-context.js';
import { EXIT_CODES, EXIT_CODES_HELP } from '../exit-codes.js';
import { writeLines } from '../files/write-lines.js';

/** Adds `warmpath collections`. */
export function addCollectionsCommand(program: Command, context: CommandContext): void {
  const group = program
    .command('collections')
    .description('list, export, import, shorten and delete collections')
    .addHelpText('after', examplesHelp('collections'))
    .addHelpText('after', EXIT_CODES_HELP);
  addCollectionsOptions(addCommand(group, 'list', 'list the collections')).action((options: CollectionsOptions) =>
    list(options, context),
  );
  addCollectionsOptions(addCommand(group, 'export', 'export a collection as JSON lines, one document a line'))
    .argument('<name>', 'the collection')
    .argument('[file]', 'output file; default or -: standard output')
    .action((name: string, file: string | undefined, options: CollectionsOptions) =>
      exportCollection(name, file, options, context),
    );
  addCollectionsOptions(addCommand(group, 'import', 'import an export; replaces documents of the same ids'))
    .argument('<name>', 'the collection; created if it does not exist')
    .argument('[file]', 'an export; standard input if left out or -')
    .action((name: string, file: string | undefined, options: CollectionsOptions) =>
      importCollection(name, file, options, context),
    );
  addCollectionsOptions(
    addCommand(group, 'remove', 'remove documents; `ingest` indexes a file again if it still exists'),
  )
    .argument('<name>', 'the collection')
    .argument('<sources...>', 'ids of documents, or files and folders, also deleted ones')
    .action((name: string, sources: readonly string[], options: CollectionsOptions) =>
      removeSources(name, sources, options, context),
    );
  addCollectionsOptions(addCommand(group, 'delete', 'delete a collection and everything in it'))
    .argument('<name>', 'the collection')
    .action((name: string, options: CollectionsOptions) => deleteCollection(name, options, context));
}

async function readTotals(collections: Collections, tenant: string, name: string): Promise<CollectionTotals> {
  return (await collections.get(tenant, name)).totals;
}

/** One that cannot be read is named on standard error, and keeps no other back. */
function list(options: CollectionsOptions, context: CommandContext): Promise<void> {
  const { terminal, environment } = context;
  return withCollections(options, environment, async (collections, { folder, stores }) => {
    const rows = [['collection', 'documents', 'passages', 'again', 'tokens', 'MB']];
    const found: object[] = [];
    const stored = collections.storedNames(options.tenant).map((name) => ({ name, store: stores[name]!.kind }));
    for (const name of await collections.names(options.tenant)) {
      const totals = await readTotals(collections, options.tenant, name).catch((error: unknown) => {
        if (!WarmpathError.isInstance(error)) throw error;
        terminal.note(error.message);
        context.exitCode = EXIT_CODES.failure;
      });
      if (totals === undefined) continue;
      found.push({ name, ...totals });
      const { documents, passages, duplicates, tokens, bytes } = totals;
      const counts = [documents, passages, duplicates, tokens].map((count) => count.toLocaleString('en'));
      rows.push([name, ...counts, (bytes / 1e6).toFixed(1)]);
    }
    terminal.data([...found, ...stored]);
    if (found.length + stored.length === 0 && context.exitCode === EXIT_CODES.ok)
      terminal.line(`There are no collections in ${folder}. \`warmpath ingest docs\` makes one.`);
    if (found.length > 0) terminal.table(rows, '');
    if (stored.length === 0) return;
    if (found.length > 0) terminal.line();
    terminal.table([['collection', 'lives in'], ...stored.map(({ name, store }) => [name, store])], '');
  });
}

function exportCollection(
  name: string,
  file: string | undefined,
  options: CollectionsOptions,
  { terminal, environment }: CommandContext,
): Promise<void> {
  return withCollections(options, environment, async (collections) => {
    const collection = await collections.get(options.tenant, name);
    if (file === undefined || file === '-') {
      await terminal.pour(collection.export());
      return;
    }
    await writeLines(file, Readable.from(collection.export()));
    terminal.line(`${file} written: ${describeTotals(collection)}`);
    terminal.data({ file, ...collection.totals });
  });
}

function importCollection(
  name: string,
  file: string | undefined,
  options: CollectionsOptions,
  context: CommandContext,
): Promise<void> {
  const { terminal, environment, stdin } = context;
  return withCollections(options, environment, async (collections) => {
    // What can be read twice is read once before anything is taken in.
    const isStream = file === undefined || file === '-';
    const total = isStream ? undefined : await (await import('@warmpath/retrieval')).checkExport(piecesOf(file, stdin));
    const collection = await collections.getOrMake(options.tenant, name);
    const progress = showProgress(terminal);
    let applied: Awaited<ReturnType<typeof collection.import>>;
    try {
      applied = await collection.import(piecesOf(file, stdin), {
        onTaken: (documents) => progress.taken(documents, total),
        onEmbedded: progress.embedded,
      });
    } finally {
      progress.clear();
    }
    const { added, changed, unchanged, embedding } = applied;
    const embedded = embedding === undefined ? '' : `, ${counted(embedding.embedded, 'passage')} embedded`;
    terminal.line(`${counted(added, 'document')} added, ${changed} changed, ${unchanged} as before${embedded}.`);
    terminal.data({ collection: name, ...applied });
    tellMissingVectors(embedding, context);
  });
}

/** The bytes of a file, or of standard input. */
async function* piecesOf(file: string | undefined, stdin: Readable): AsyncIterable<Buffer> {
  try {
    // Opened when it is read: an error before that would have no listener.
    const input = file === undefined || file === '-' ? stdin : createReadStream(file, { highWaterMark: 1 << 18 });
    for await (const piece of input) yield typeof piece === 'string' ? Buffer.from(piece) : (piece as Buffer);
  } catch (cause) {
    refuseInput(file ?? 'standard input', cause);
  }
}

function removeSources(
  name: string,
  sources: readonly string[],
  options: CollectionsOptions,
  context: CommandContext,
): Promise<void> {
  const { terminal, environment } = context;
  return withCollections(options, environment, async (collections) => {
    const collection = await collections.get(options.tenant, name);
    const { removed, unknown } = await collection.forget(sources);
    terminal.line(`${counted(removed, 'document')} removed.`);
    terminal.line(`Collection ${name}: ${describeTotals(collection)}.`);
    for (const source of unknown) terminal.note(`${source}: no document, file or folder of this collection`);
    terminal.data({ collection: name, removed, unknown, totals: collection.totals });
    if (unknown.length > 0) context.exitCode = EXIT_CODES.failure;
  });
}

function refuseInput(name: string, cause: unknown): never {
  const detail = `cannot read ${name}: ${fileErrorReason(cause)}`;
  throw new WarmpathError('WARMPATH_USAGE', { path: 'file', detail, cause });
}

function deleteCollection(
  name: string,
  options: CollectionsOptions,
  { terminal, environment }: CommandContext,
): Promise<void> {
  return withCollections(options, environment, async (collections) => {
    const { totals } = await collections.get(options.tenant, name);
    await collections.delete(options.tenant, name);
    terminal.line(`Collection ${name} deleted, with ${counted(totals.documents, 'document')}.`);
    terminal.data({ collection: name, deleted: true, ...totals });
  });
}
