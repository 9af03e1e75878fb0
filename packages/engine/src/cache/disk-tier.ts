import type { StateStore, StoredEntry, StoredState } from '../store/state-store.js';
import type { StateRecord } from '../store/stored-state.js';
import type { DiskCopy, DiskLoad, RadixNode } from './radix-node.js';

/** Most bytes that are on their way from the disk, or have arrived and are not taken yet. One file may always be. */
const MAX_LOADING_BYTES = 64 * 1024 * 1024;

export interface DiskTierOptions {
  readonly store: StateStore;
  /** What the store held when it was opened, last used last. */
  readonly entries: readonly StoredEntry[];
  /** Milliseconds since some moment; measures how long a request waits. */
  readonly clock: () => number;
}

/** Figures of the disk tier, for metrics and tests. */
export interface DiskTierStats {
  readonly capacityBytes: number;
  /** Bytes of all files. */
  readonly usedBytes: number;
  readonly files: number;
  /** Tokens whose cells are in a file. */
  readonly tokens: number;
  /** Tokens written since the start, or waiting to be. */
  readonly savedTokens: number;
  /** Tokens brought back to host memory since the start. */
  readonly loadedTokens: number;
  /** Tokens whose file was removed to make room, since the start. */
  readonly evictedTokens: number;
  /** Files that could not be written, or not be read when they were wanted, or were damaged. */
  readonly failures: number;
  /** Files that the start found and could not use: damaged, unfinished, or of another model or library. */
  readonly refusedFiles: number;
}

/**
 * Files of nodes, within a budget in bytes, and what is being read from them. The tree decides which file leaves. Files
 * are written and read while the engine computes; what was read waits until the tree takes it between two decodes.
 */
export class DiskTier {
  readonly #store: StateStore;
  /** Milliseconds since some moment. */
  readonly now: () => number;
  readonly #copies = new Map<string, DiskCopy>();
  #arrived: DiskLoad[] = [];
  #loadingBytes = 0;
  #orphanedFiles = 0;
  #notify: () => void = () => undefined;
  #news: Promise<void> | undefined;

  /** Counted here and by the tree's tiers. */
  readonly counts = { tokens: 0, savedTokens: 0, loadedTokens: 0, evictedTokens: 0, failures: 0 };

  constructor({ store, clock }: DiskTierOptions) {
    this.#store = store;
    this.now = clock;
    store.onLost = ({ name }) => {
      const copy = this.#copies.get(name);
      if (copy !== undefined) {
        this.#arrive({ copy, state: undefined });
      }
    };
  }

  get stats(): DiskTierStats {
    const store = this.#store.stats;
    return {
      capacityBytes: store.capacityBytes,
      usedBytes: store.usedBytes,
      files: store.files,
      ...this.counts,
      refusedFiles: store.refusedFiles + this.#orphanedFiles,
    };
  }

  /** Bytes that could be added. */
  get freeBytes(): number {
    return this.#store.freeBytes;
  }

  /** Whether anything is being read, or has arrived and was not taken. */
  get isReading(): boolean {
    return this.#loadingBytes > 0;
  }

  /** Bytes that a record would take, or `undefined` when it would never fit or cannot be taken now. */
  roomFor(records: readonly StateRecord[]): number | undefined {
    const bytes = records.reduce((sum, record) => sum + this.#store.sizeOf(record), 0);
    return bytes <= this.#store.stats.capacityBytes && this.#store.accepts(bytes) ? bytes : undefined;
  }

  /** Writes a node's cells; there must be room. */
  put(node: RadixNode, record: StateRecord): void {
    this.adopt(node, this.#store.put(record));
    this.counts.savedTokens += node.tokenCount;
  }

  /** Gives a node a file that is there. */
  adopt(node: RadixNode, file: StoredState): void {
    const copy: DiskCopy = { file, nodes: new Set([node]), load: undefined };
    this.#copies.set(file.name, copy);
    this.counts.tokens += node.tokenCount;
    node.file = copy;
  }

  /** Takes the file from a node; it is removed when no other node needs it. */
  drop(node: RadixNode): void {
    const { file, nodes } = node.file!;
    nodes.delete(node);
    node.file = undefined;
    this.counts.tokens -= node.tokenCount;
    if (nodes.size === 0) {
      this.#copies.delete(file.name);
      this.#store.remove(file);
    }
  }

  /** Removes a file that leads nowhere. */
  discard(file: StoredState): void {
    this.#orphanedFiles++;
    this.#store.remove(file);
  }

  /**
   * Reads a file, unless that is under way.
   *
   * @returns Whether it is under way now; not when too much is already.
   */
  load(copy: DiskCopy): boolean {
    const { bytes } = copy.file;
    if (copy.load === undefined && (this.#loadingBytes === 0 || this.#loadingBytes + bytes <= MAX_LOADING_BYTES)) {
      const load: DiskLoad = { copy, state: undefined };
      copy.load = load;
      this.#loadingBytes += bytes;
      void this.#read(load);
    }
    return copy.load !== undefined;
  }

  async #read(load: DiskLoad): Promise<void> {
    load.state = await this.#store.read(load.copy.file);
    this.#arrive(load);
  }

  #arrive(load: DiskLoad): void {
    this.#arrived.push(load);
    this.#notify();
  }

  /** Files that were read or lost since the last call and are still wanted, parents before their children. */
  takeArrived(): readonly DiskLoad[] {
    const arrived = this.#arrived;
    this.#arrived = [];
    for (const load of arrived.filter((each) => each.copy.load === each)) {
      load.copy.load = undefined;
      this.#loadingBytes -= load.copy.file.bytes;
    }
    const wanted = arrived.filter(({ copy }) => copy.nodes.size > 0);
    this.counts.failures += wanted.filter(({ state }) => state === undefined).length;
    return wanted.sort((a, b) => a.copy.file.from - b.copy.file.from);
  }

  /** Settles when a file was read or lost that was not taken yet. */
  async waitForNews(): Promise<void> {
    if (this.#arrived.length === 0) {
      this.#news ??= new Promise((resolve) => {
        this.#notify = () => {
          this.#news = undefined;
          this.#notify = () => undefined;
          resolve();
        };
      });
      await this.#news;
    }
  }

  /** Settles when everything that is to be written is. */
  settled(): Promise<void> {
    return this.#store.settled();
  }

  /** Finishes what is being written and gives the folder back. */
  close(): Promise<void> {
    return this.#store.close();
  }
}
