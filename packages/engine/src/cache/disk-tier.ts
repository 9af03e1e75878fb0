import type { StateStore, StoredEntry, StoredState } from '../store/state-store.js';
import type { StateRecord } from '../store/stored-state.js';
import type { DiskCopy, RadixNode } from './radix-node.js';

export interface DiskTierOptions {
  readonly store: StateStore;
  /** What the store held when it was opened, last used last. */
  readonly entries: readonly StoredEntry[];
}

/** Figures of the disk tier, counted from the start where they are not of now. */
export type DiskTierStats = DiskTier['stats'];

/** Files of nodes, within a budget in bytes. The tree decides which file leaves. */
export class DiskTier {
  readonly #store: StateStore;
  #orphanedFiles = 0;

  /** `tokens`: those whose cells are in a file now. `failures`: files that could not be read or were damaged. */
  readonly counts = { tokens: 0, savedTokens: 0, loadedTokens: 0, evictedTokens: 0, failures: 0 };

  constructor(store: StateStore) {
    this.#store = store;
  }

  get stats() {
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
    this.counts.tokens += node.tokenCount;
    node.file = { file, nodes: new Set([node]) };
  }

  /** Takes the file from a node; it is removed when no other node needs it. */
  drop(node: RadixNode): void {
    const { file, nodes } = node.file!;
    nodes.delete(node);
    node.file = undefined;
    this.counts.tokens -= node.tokenCount;
    if (nodes.size === 0) this.#store.remove(file);
  }

  /** Removes a file that leads nowhere. */
  discard(file: StoredState): void {
    this.#orphanedFiles++;
    this.#store.remove(file);
  }

  /** The cells of a file; `undefined` when they cannot be read, or are damaged. */
  async read({ file }: DiskCopy): Promise<Uint8Array | undefined> {
    const state = await this.#store.read(file);
    this.counts.failures += Number(state === undefined);
    return state;
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
