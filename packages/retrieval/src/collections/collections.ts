import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import { EmbeddingEndpoint, type EmbeddingSettings } from '../embeddings/embedding-endpoint.js';
import { RerankEndpoint, type RerankSettings } from '../fusion/rerank-endpoint.js';
import { RerankRetriever } from '../fusion/rerank-retriever.js';
import { FileReader, type ReadOptions } from '../ingest/file-reader.js';
import type { CutDocument, DocumentFile, DocumentText, FileDocument } from '../ingest/read-file.js';
import { readBounds } from '../ingest/reader-process.js';
import { DEFAULT_CHUNKS } from '../parse/chunk.js';
import { type DocumentFormat, formatOfPath, MEDIA_TYPES } from '../parse/formats.js';
import { RefinedRetriever } from '../refined-retriever.js';
import type { StagedRetriever } from '../staged-retriever.js';
import { openStore, type StoredCollection, type StoreSettings } from '../stores/open-store.js';
import { Collection } from './collection.js';
import { CollectionStore } from './collection-store.js';
import { makeFolder } from './folder.js';
import { type CollectionTotals, hashOf } from './records.js';

const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
/** Folders of tenants. */
const TENANT = /^[a-z0-9_][a-z0-9_-]*$/;
/** Collections that are open at once; the one that was asked for longest ago is closed for another. */
const MAX_OPEN = 256;
/** Folders of tenants that a list looks into. */
const MAX_TENANTS = 1_000;

/** Characters that are cut before others get their turn. */
const SLICE_LENGTH = 65_536;

/** A collection as the folder of all has it. */
export interface ListedCollection {
  /** Names tenant and collection, as `placeOf` does. */
  readonly place: string;
  /** The tenant's folder: its name, or `_` with a hash where a folder cannot have that name. */
  readonly tenant: string;
  readonly name: string;
  /** Undefined where it cannot be read. */
  readonly totals: CollectionTotals | undefined;
}

export interface CollectionsOptions {
  /** Where passages and questions get vectors; collections are searched by words alone without. */
  readonly embeddings?: EmbeddingSettings | undefined;
  /** What ranks the candidates of each search anew at last; nothing does without. */
  readonly rerank?: RerankSettings | undefined;
  /** Collections that live in databases of their own, by name. */
  readonly stores?: Readonly<Record<string, StoreSettings & { readonly tenant?: string | undefined }>> | undefined;
  /** Memory that the reading of a file may take. Left out: a quarter of the machine's, from 256 MiB to 1 GiB. */
  readonly memoryBytes?: number | undefined;
}

/** The tenant whose a collection in a database is, where none is named. */
const DEFAULT_TENANT = 'default';

/** What can be searched, wherever it lives. */
export interface SearchableCollection {
  readonly name: string;
  readonly retriever: StagedRetriever;
}

/** The collections of a folder and of databases, those of the folder of each tenant in a folder of its own. */
export class Collections {
  readonly #folder: string;
  readonly #endpoint: EmbeddingEndpoint | undefined;
  readonly #reranker: RerankEndpoint | undefined;
  readonly #reader: FileReader;
  /** By folder, the one that was asked for last at the end. */
  readonly #open = new Map<string, Collection>();
  /** Those whose files are being checked, by folder. */
  readonly #opening = new Map<string, Promise<Collection | undefined>>();
  readonly #stores: NonNullable<CollectionsOptions['stores']>;
  readonly #openStores = new Map<string, Promise<StoredCollection>>();
  #isClosed = false;

  /** Error: WARMPATH_CONFIG_INVALID where the URL of an endpoint is none. */
  constructor(folder: string, { embeddings, rerank, stores = {}, memoryBytes }: CollectionsOptions = {}) {
    this.#reader = new FileReader(readBounds(memoryBytes));
    this.#stores = stores;
    this.#folder = folder;
    this.#endpoint = embeddings && new EmbeddingEndpoint(embeddings);
    this.#reranker = rerank && new RerankEndpoint(rerank);
  }

  /** Media types of files that are read as one document. */
  readonly mediaTypes: readonly string[] = [...MEDIA_TYPES.keys()];

  /** What a file is read as. Its name says more than a type that many files are sent with. */
  formatOf(type: string, name: string): DocumentFormat | undefined {
    const format = MEDIA_TYPES.get(type);
    return format === undefined || format === 'text' ? (formatOfPath(name) ?? format) : format;
  }

  /** Names of a tenant's collections in databases, sorted. */
  storedNames(tenant: string): string[] {
    return Object.keys(this.#stores)
      .filter((name) => this.#isStored(tenant, name))
      .sort();
  }

  /**
   * What a search needs of a collection, wherever it lives.
   * Errors: those of `get`, and WARMPATH_CONFIG_INVALID where its database cannot be asked.
   */
  async searchable(tenant: string, name: string): Promise<SearchableCollection> {
    if (!this.#isStored(tenant, name)) return this.get(tenant, name);
    let opening = this.#openStores.get(name);
    if (opening === undefined) {
      opening = this.#openStore(name);
      this.#openStores.set(name, opening);
      opening.catch(() => this.#openStores.delete(name));
    }
    return opening;
  }

  /** Names of a tenant's collections in the folder, sorted. */
  async names(tenant: string): Promise<string[]> {
    return (await namesIn(this.#folderOf(tenant))).filter((name) => !this.#isStored(tenant, name));
  }

  /** Collections of all tenants with their sums, at most `most`: `isAll` is whether there are no others. */
  async list(most: number): Promise<{ readonly listed: readonly ListedCollection[]; readonly isAll: boolean }> {
    const listed: ListedCollection[] = [];
    for (const [count, tenant] of (await entriesOf(this.#folder)).sort().entries()) {
      if (count === MAX_TENANTS) return { listed, isAll: false };
      const folder = join(this.#folder, tenant);
      for (const name of TENANT.test(tenant) ? await namesIn(folder) : []) {
        if (this.#isClosed || listed.length === most) return { listed, isAll: false };
        const found = await this.#find(join(folder, name), name).catch(() => undefined);
        listed.push({ place: `${tenant}/${name}`, tenant, name, totals: found?.totals });
      }
    }
    return { listed, isAll: true };
  }

  /** Names a tenant's collection among all, whether it is there or not. */
  placeOf(tenant: string, name: string): string {
    return `${folderName(tenant)}/${name}`;
  }

  /** A collection of the folder. Errors: WARMPATH_COLLECTION_NOT_FOUND, _NAME, _UNREADABLE, _STORED. */
  async get(tenant: string, name: string): Promise<Collection> {
    this.#refuseStored(tenant, name);
    const found = await this.#find(this.#folderOf(tenant, name), name);
    if (found === undefined) {
      throw new WarmpathError('WARMPATH_COLLECTION_NOT_FOUND', { detail: `there is no collection "${name}".` });
    }
    return found;
  }

  /** The same, made if it is not there. Errors: WARMPATH_COLLECTION_NAME, _UNREADABLE, _STORED. */
  async getOrMake(tenant: string, name: string): Promise<Collection> {
    this.#refuseStored(tenant, name);
    return (await this.#find(this.#folderOf(tenant, name), name, { make: true }))!;
  }

  /**
   * Reads a file that is one document, cut as the collection cuts, whether that is there yet or not.
   * Errors: those of `FileReader.read`; WARMPATH_COLLECTION_NAME, _UNREADABLE, _STORED.
   */
  async readFile(
    { tenant, name }: { readonly tenant: string; readonly name: string },
    bytes: Buffer,
    file: DocumentFile,
    options: Omit<ReadOptions, 'tenant'>,
  ): Promise<FileDocument> {
    this.#refuseStored(tenant, name);
    const found = await this.#find(this.#folderOf(tenant, name), name);
    return this.#reader.read(bytes, file, found?.chunks ?? DEFAULT_CHUNKS, { ...options, tenant });
  }

  /**
   * Cuts texts that are to be put into a collection, as it cuts, whether it is there yet or not.
   * Errors: those of `FileReader.cut`; WARMPATH_COLLECTION_NAME, _UNREADABLE, _STORED.
   */
  async cutTexts(
    { tenant, name }: { readonly tenant: string; readonly name: string },
    texts: readonly DocumentText[],
    signal: AbortSignal,
  ): Promise<readonly CutDocument[]> {
    this.#refuseStored(tenant, name);
    const found = await this.#find(this.#folderOf(tenant, name), name);
    const documents: CutDocument[] = [];
    let length = 0;
    for (const text of texts) {
      documents.push(await this.#reader.cut(text, found?.chunks ?? DEFAULT_CHUNKS, { tenant, signal }));
      length += text.content.length;
      if (length < SLICE_LENGTH) continue;
      // Others get their turn while much is cut.
      length = 0;
      await new Promise(setImmediate);
    }
    return documents;
  }

  /** Deletes a collection and all that is in it. Errors: those of `get`, and WARMPATH_COLLECTION_BUSY. */
  async delete(tenant: string, name: string): Promise<void> {
    const collection = await this.get(tenant, name);
    await collection.delete();
    this.#open.delete(this.#folderOf(tenant, name));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.allSettled(this.#opening.values());
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const collection of open) await collection.close();
    const stores = [...this.#openStores.values()];
    this.#openStores.clear();
    for (const store of stores) await (await store.catch(() => undefined))?.close();
    await this.#reader.close();
    await this.#endpoint?.close();
    await this.#reranker?.close();
  }

  async #openStore(name: string): Promise<StoredCollection> {
    const store = await openStore(name, this.#stores[name]!, this.#endpoint);
    const endpoint = this.#reranker;
    const { retriever } = store;
    const ranked = endpoint === undefined ? retriever : new RerankRetriever({ retriever, endpoint });
    return { ...store, retriever: new RefinedRetriever(ranked) };
  }

  #isStored(tenant: string, name: string): boolean {
    return Object.hasOwn(this.#stores, name) && (this.#stores[name]!.tenant ?? DEFAULT_TENANT) === tenant;
  }

  #refuseStored(tenant: string, name: string): void {
    if (this.#isStored(tenant, name)) throw new WarmpathError('WARMPATH_COLLECTION_STORED', { path: 'collection' });
  }

  async #find(folder: string, name: string, { make = false } = {}): Promise<Collection | undefined> {
    const known = this.#open.get(folder);
    if (known !== undefined) {
      this.#open.delete(folder);
      if (!known.isDeleted) {
        this.#open.set(folder, known);
        return known;
      }
      await known.close();
      // Another caller may have opened it meanwhile.
      if (this.#open.has(folder)) return this.#find(folder, name, { make });
    }
    // One opens it, and others wait: what none of them made may be made by the next one.
    const opening = this.#opening.get(folder);
    if (opening !== undefined) return (await opening) ?? (make ? this.#find(folder, name, { make }) : undefined);
    const opened = this.#openAt(folder, name, make);
    this.#opening.set(folder, opened);
    try {
      return await opened;
    } finally {
      this.#opening.delete(folder);
    }
  }

  async #openAt(folder: string, name: string, make: boolean): Promise<Collection | undefined> {
    if (make) makeFolder(folder);
    const store = await CollectionStore.open(folder, { create: make });
    if (store === undefined) return undefined;
    const collection = new Collection(name, store, {
      endpoint: this.#endpoint,
      reranker: this.#reranker,
      files: { reader: this.#reader, tenant: basename(dirname(folder)) },
    });
    this.#open.set(folder, collection);
    const [[longestAgo, other]] = this.#open as unknown as [[string, Collection]];
    if (this.#open.size > MAX_OPEN) {
      this.#open.delete(longestAgo);
      void other.close();
    }
    return collection;
  }

  #folderOf(tenant: string, name?: string): string {
    const folder = join(this.#folder, folderName(tenant));
    if (name === undefined) return folder;
    if (!NAME.test(name)) throw new WarmpathError('WARMPATH_COLLECTION_NAME', { path: 'collection' });
    return join(folder, name);
  }
}

/** A tenant's name may hold anything; what could be a path, or differ by case alone, goes by its hash. */
function folderName(tenant: string): string {
  if (!tenant.isWellFormed()) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'tenant', detail: 'well-formed Unicode was expected' });
  }
  return NAME.test(tenant) ? tenant : `_${Buffer.from(hashOf(tenant)).toString('hex')}`;
}

/** Names of the collections in a tenant's folder, sorted. */
async function namesIn(folder: string): Promise<string[]> {
  return (await entriesOf(folder))
    .filter((name) => NAME.test(name) && existsSync(join(folder, name, 'data.mdb')))
    .sort();
}

async function entriesOf(folder: string): Promise<string[]> {
  return readdir(folder).catch((error: NodeJS.ErrnoException) => {
    // A file beside the folders of tenants is none of them.
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    const detail = `the folder ${folder} cannot be read: ${fileErrorReason(error)}.`;
    throw new WarmpathError('WARMPATH_COLLECTION_UNREADABLE', { detail, cause: error });
  });
}
