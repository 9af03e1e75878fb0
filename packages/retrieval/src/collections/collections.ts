import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { EmbeddingEndpoint, type EmbeddingSettings } from '../embeddings/embedding-endpoint.js';
import type { StagedRetriever } from '../staged-retriever.js';
import { openStore, type StoredCollection, type StoreSettings } from '../stores/open-store.js';
import { Collection } from './collection.js';
import { CollectionStore, hashOf, makeFolder } from './collection-store.js';

const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
/** Collections that are open at once; the one that was asked for longest ago is closed for another. */
const MOST_OPEN = 256;

export interface CollectionsOptions {
  /** Where passages and questions get vectors; collections are searched by words alone without. */
  readonly embeddings?: EmbeddingSettings | undefined;
  /** Collections that live in databases of their own, by name. */
  readonly stores?: Readonly<Record<string, StoreSettings & { readonly tenant?: string | undefined }>> | undefined;
  /** Vectors of a collection above which they are searched through a graph; 20,000 by default. */
  readonly graphAbove?: number;
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
  readonly #graphAbove: number | undefined;
  /** By folder, the one that was asked for last at the end. */
  readonly #open = new Map<string, Collection>();
  readonly #stores: NonNullable<CollectionsOptions['stores']>;
  readonly #openStores = new Map<string, Promise<StoredCollection>>();

  /** Error: WARMPATH_CONFIG_INVALID where the URL of the embeddings is none. */
  constructor(folder: string, { embeddings, graphAbove, stores = {} }: CollectionsOptions = {}) {
    this.#stores = stores;
    this.#folder = folder;
    this.#endpoint = embeddings && new EmbeddingEndpoint(embeddings);
    this.#graphAbove = graphAbove;
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
      opening = openStore(name, this.#stores[name]!, this.#endpoint);
      this.#openStores.set(name, opening);
      opening.catch(() => this.#openStores.delete(name));
    }
    return opening;
  }

  /** Names of a tenant's collections in the folder, sorted. */
  async names(tenant: string): Promise<string[]> {
    const entries = await readdir(this.#folderOf(tenant)).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    return entries
      .filter((name) => NAME.test(name) && !this.#isStored(tenant, name))
      .filter((name) => existsSync(join(this.#folderOf(tenant), name, 'data.mdb')))
      .sort();
  }

  /** A collection of the folder. Errors: WARMPATH_COLLECTION_NOT_FOUND, _NAME, _UNREADABLE, _STORED. */
  async get(tenant: string, name: string): Promise<Collection> {
    const found = await this.#find(tenant, name, false);
    if (found === undefined) {
      throw new WarmpathError('WARMPATH_COLLECTION_NOT_FOUND', { detail: `there is no collection "${name}".` });
    }
    return found;
  }

  /** The same, made if it is not there. Errors: WARMPATH_COLLECTION_NAME, _UNREADABLE, _STORED. */
  async getOrMake(tenant: string, name: string): Promise<Collection> {
    return (await this.#find(tenant, name, true))!;
  }

  /** Deletes a collection and all that is in it. Errors: those of `get`, and WARMPATH_COLLECTION_BUSY. */
  async delete(tenant: string, name: string): Promise<void> {
    const collection = await this.get(tenant, name);
    await collection.delete();
    this.#open.delete(this.#folderOf(tenant, name));
  }

  async close(): Promise<void> {
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const collection of open) await collection.close();
    const stores = [...this.#openStores.values()];
    this.#openStores.clear();
    for (const store of stores) await (await store.catch(() => undefined))?.close();
    await this.#endpoint?.close();
  }

  #isStored(tenant: string, name: string): boolean {
    return Object.hasOwn(this.#stores, name) && (this.#stores[name]!.tenant ?? DEFAULT_TENANT) === tenant;
  }

  async #find(tenant: string, name: string, make: boolean): Promise<Collection | undefined> {
    if (this.#isStored(tenant, name)) throw new WarmpathError('WARMPATH_COLLECTION_STORED', { path: 'collection' });
    const folder = this.#folderOf(tenant, name);
    const known = this.#open.get(folder);
    if (known !== undefined) {
      this.#open.delete(folder);
      if (!known.isDeleted) {
        this.#open.set(folder, known);
        return known;
      }
      await known.close();
    }
    // Nothing is awaited from here on, so that two callers do not open the same collection twice.
    const again = this.#open.get(folder);
    if (again !== undefined) return again;
    if (make) makeFolder(folder);
    const store = CollectionStore.open(folder, { create: make });
    if (store === undefined) return undefined;
    const collection = new Collection(name, store, { endpoint: this.#endpoint, graphAbove: this.#graphAbove });
    this.#open.set(folder, collection);
    const [[longestAgo, other]] = this.#open as unknown as [[string, Collection]];
    if (this.#open.size > MOST_OPEN) {
      this.#open.delete(longestAgo);
      void other.close();
    }
    return collection;
  }

  #folderOf(tenant: string, name?: string): string {
    // A tenant's name may hold anything; what could be a path, or differ by case alone, goes by its hash.
    const folder = join(this.#folder, NAME.test(tenant) ? tenant : `_${Buffer.from(hashOf(tenant)).toString('hex')}`);
    if (name === undefined) return folder;
    if (!NAME.test(name)) throw new WarmpathError('WARMPATH_COLLECTION_NAME', { path: 'collection' });
    return join(folder, name);
  }
}
