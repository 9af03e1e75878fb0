import { join, resolve } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import type { Collection, Collections, CollectionsOptions as CollectionsSettings } from '@warmpath/retrieval';
import type { Command } from 'commander';
import { dataFolder } from '../data-folder.js';

/** The options of commands that work on collections. */
export interface CollectionsOptions {
  readonly folder?: string;
  /** A gateway's, for the folder, the embeddings and the databases. */
  readonly config?: string;
  readonly tenant: string;
}

/** The collection of commands that name none. */
const DEFAULT_COLLECTION = 'documents';

/** Address of no engine: a file may leave the engine to the command line, and collections need none. */
const NO_ENGINE = 'http://127.0.0.1';

/** Adds `--folder`, `--config` and `--tenant`. */
export function addCollectionsOptions(command: Command): Command {
  return command
    .option('--folder <path>', 'folder of the collections (`collections.folder` of the gateway)')
    .option('--config <file>', 'configuration of the gateway, for its `collections`: folder, embeddings and databases')
    .option('--tenant <name>', 'tenant of the collections; `default` for a gateway without keys', 'default');
}

/** Adds `--collection`. */
export function addCollectionOption(command: Command): Command {
  return command.option('--collection <name>', 'which collection', DEFAULT_COLLECTION);
}

/** Where collections are kept that no configuration names a folder for. */
export function collectionsFolder(environment: NodeJS.ProcessEnv): string {
  return join(dataFolder(environment), 'collections');
}

/** The databases that collections live in, by their names, as a gateway's file has them. */
type Stores = NonNullable<CollectionsSettings['stores']>;

/** Runs `body` with the collections that the command line names, and closes them. */
export async function withCollections<Result>(
  { folder, config }: CollectionsOptions,
  environment: NodeJS.ProcessEnv,
  body: (collections: Collections, found: { readonly folder: string; readonly stores: Stores }) => Promise<Result>,
): Promise<Result> {
  const settings = config === undefined ? undefined : await collectionsSettings(config, environment);
  const named = folder ?? settings?.folder;
  const stores = settings?.stores ?? {};
  const path = named === undefined ? collectionsFolder(environment) : resolve(named);
  // Only these commands need the database and the parsers.
  const { Collections: OpenedCollections } = await import('@warmpath/retrieval');
  const collections = new OpenedCollections(path, {
    embeddings: settings?.embeddings,
    stores,
  });
  try {
    return await body(collections, { folder: path, stores });
  } finally {
    await collections.close();
  }
}

/** What a gateway's file says of collections. Errors: WARMPATH_USAGE where it says nothing, those of `loadConfig`. */
async function collectionsSettings(file: string, environment: NodeJS.ProcessEnv) {
  // Most commands have no file of a gateway, and start sooner without its code.
  const { loadConfig } = await import('@warmpath/gateway');
  const { collections } = await loadConfig(file, environment, NO_ENGINE);
  if (collections !== undefined) return collections;
  throw new WarmpathError('WARMPATH_USAGE', { path: '--config', detail: `${file} configures no collections` });
}

/** A number of things: `1 file`, `1,200 files`. */
export function counted(count: number, thing: string): string {
  return `${count.toLocaleString('en')} ${thing}${count === 1 ? '' : 's'}`;
}

/** Sums of a collection as a person reads them. */
export function describeTotals({ totals }: Collection): string {
  const { documents, passages, duplicates } = totals;
  const twice = duplicates === 0 ? '' : `, ${duplicates.toLocaleString('en')} of them found again elsewhere`;
  return `${counted(documents, 'document')}, ${counted(passages, 'passage')}${twice}`;
}
