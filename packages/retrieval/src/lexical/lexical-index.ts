import { join } from 'node:path';
import type { CollectionStore } from '../collections/collection-store.js';
import type { Change } from '../collections/records.js';
import { Bm25 } from './bm25.js';
import { EMPTY_POSTINGS, mergePostings, type Postings, PostingsBuilder } from './postings.js';
import { loadPostings, savePostings } from './postings-file.js';

const FILE = 'bm25.postings';
/** Passages that are indexed before others get their turn. */
const SLICE = 256;
/** A file is written when this many passages, and this share of all, are not in the one that is there. */
const SAVE_AFTER = 4096;
const SAVE_SHARE = 1 / 8;

/**
 * The BM25 index of a collection: in memory, at the version that the collection had when it was last asked for. It
 * follows by what was changed, not by reading the collection anew, and begins from the file that the last ingestion
 * left behind.
 */
export class LexicalIndex {
  readonly #store: CollectionStore;
  #bm25 = new Bm25(EMPTY_POSTINGS);
  #version = 0;
  /** Passages that the file lacks. */
  #unsaved = 0;
  #isLoaded = false;
  #refreshing: Promise<void> | undefined;

  constructor(store: CollectionStore) {
    this.#store = store;
  }

  /** The index at the collection's version, or a later one. */
  async current(): Promise<Bm25> {
    while (!this.#isLoaded || this.#version !== this.#store.position.version) {
      this.#refreshing ??= this.#refresh().finally(() => {
        this.#refreshing = undefined;
      });
      await this.#refreshing;
    }
    return this.#bm25;
  }

  /** Writes the file where it would save the next start a good part of its work. Only whoever writes may call this. */
  async save(): Promise<void> {
    const { postings } = await this.current();
    if (this.#unsaved < SAVE_AFTER || this.#unsaved < SAVE_SHARE * postings.ordinals.length) return;
    const version = this.#version;
    try {
      await savePostings(join(this.#store.folder, FILE), { version, postings: this.#bm25.postings });
    } catch (error) {
      // What the disk does not take is built anew.
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
      return;
    }
    this.#unsaved = 0;
  }

  async #refresh(): Promise<void> {
    if (!this.#isLoaded) {
      const saved = await loadPostings(join(this.#store.folder, FILE));
      if (saved !== undefined && saved.version <= this.#store.position.version) {
        this.#bm25 = new Bm25(saved.postings);
        this.#version = saved.version;
      }
      this.#isLoaded = true;
    }
    const { version, nextOrdinal } = this.#store.position;
    if (version === this.#version) return;
    const changes = this.#version === 0 ? undefined : this.#store.changes(this.#version, version);
    const postings =
      changes === undefined ? await this.#build(0, nextOrdinal) : await this.#follow(changes, nextOrdinal);
    this.#bm25 = new Bm25(postings);
    this.#version = version;
  }

  async #follow(changes: readonly Change[], end: number): Promise<Postings> {
    const removed = new Set(changes.flatMap((change) => change.removed));
    // Vectors alone were written.
    if (removed.size === 0 && changes[0]!.from === end) return this.#bm25.postings;
    return mergePostings(this.#bm25.postings, await this.#build(changes[0]!.from, end), removed);
  }

  /**
   * The passages from one ordinal to below another. One that is removed meanwhile may be missing already: removing it
   * again changes nothing.
   */
  async #build(first: number, end: number): Promise<Postings> {
    const builder = new PostingsBuilder();
    let count = 0;
    for (const { ordinal, text } of this.#store.texts(first, end)) {
      builder.add(ordinal, text);
      if (++count % SLICE !== 0) continue;
      await new Promise(setImmediate);
      // It may have been deleted meanwhile, which this throws.
      void this.#store.position;
    }
    this.#unsaved += count;
    return builder.build();
  }
}
