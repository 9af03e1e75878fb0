import { createReadStream } from 'node:fs';
import { access } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { fileErrorReason, WarmpathError } from '@warmpath/core';
import type { Collections, CollectionTotals } from '@warmpath/retrieval';
import type { Command } from 'commander';
import {
  addCollectionsOptions,
  type CollectionsOptions,
  counted,
  describeTotals,
  withCollections,
} from '../collections/open-collection.js';
import { addCommand, type CommandContext, examplesHelp } from '../command-context.js';
import { EXIT_CODES, EXIT_CODES_HELP } from '../exit-codes.js';
import { writeLines } from '../files/write-lines.js';
import { formatTable } from '../terminal.js';

/** Adds `warmpath collections`. */
export function addCollectionsCommand(program: Command, context: CommandContext): void {
  const group = program
    .command('collections')
    .description('list, export, import and delete collections of documents')
    .addHelpText('after', examplesHelp('collections'))
    .addHelpText('after', EXIT_CODES_HELP);
  addCollectionsOptions(addCommand(group, 'list', 'the collections, with what they hold')).action(
    (options: CollectionsOptions) => list(options, context),
  );
  addCollectionsOptions(addCommand(group, 'export', 'write a collection as lines of JSON, a document each'))
    .argument('<name>', 'the collection')
    .argument('[file]', 'where it goes; standard output if left out or -')
    .action((name: string, file: string | undefined, options: CollectionsOptions) =>
      exportCollection(name, file, options, context),
    );
  addCollectionsOptions(addCommand(group, 'import', 'take an export in; documents of the same ids are replaced'))
    .argument('<name>', 'the collection, made if it is not there')
    .argument('[file]', 'an export; standard input if left out or -')
    .action((name: string, file: string | undefined, options: CollectionsOptions) =>
      importCollection(name, file, options, context),
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
  return withCollections(options, environment, async (collections, folder) => {
    const rows = [['collection', 'documents', 'passages', 'again', 'tokens', 'MB']];
    const found = [];
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
    terminal.data(found);
    if (found.length === 0 && context.exitCode === EXIT_CODES.ok)
      terminal.line(`There are no collections in ${folder}. \`warmpath ingest docs\` makes one.`);
    else if (found.length > 0) for (const line of formatTable(rows)) terminal.line(line);
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
  { terminal, environment, stdin }: CommandContext,
): Promise<void> {
  return withCollections(options, environment, async (collections) => {
    if (file !== undefined && file !== '-') await access(file).catch((cause: unknown) => refuseInput(file, cause));
    const collection = await collections.getOrMake(options.tenant, name);
    const applied = await collection.import(linesOf(file, stdin));
    terminal.line(
      `${counted(applied.added, 'document')} added, ${applied.changed} changed, ${applied.unchanged} as before.`,
    );
    terminal.data({ collection: name, ...applied });
  });
}

async function* linesOf(file: string | undefined, stdin: Readable): AsyncIterable<string> {
  let rest = '';
  try {
    // Opened when it is read: an error before that would have no listener.
    const input = file === undefined || file === '-' ? stdin : createReadStream(file);
    for await (const text of input.setEncoding('utf8')) {
      const lines = (rest + String(text)).split('\n');
      rest = lines.pop()!;
      yield* lines;
    }
  } catch (cause) {
    refuseInput(file ?? 'standard input', cause);
  }
  yield rest;
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
