import { crc32 } from 'node:zlib';
import type { StateStore } from '../store/state-store.js';
import type { StoredEntry, StoredState } from '../store/store-folder.js';
import type { StateRecord } from '../store/stored-state.js';
import type { PrefixCache } from './prefix-cache.js';
import type { RadixNode } from './radix-node.js';
import type { SavableMemory } from './sequence-memory.js';
import { stateRecord } from './tier-store.js';
import { keepBest } from './tree-report.js';

/**
 * Fewest uses of a node that is copied: what was asked for once only is cheaper to compute again than to copy ahead.
 */
const MIN_USES = 2;
/** Most nodes that are copied. */
const MAX_COPIES = 256;
/** While requests run, uses between two looks at what is hot; at rest there is time after each. */
const USES_BETWEEN_PLANS = 32;

/** After so many uses, all that were counted count half: what was asked for long ago must not be kept for ever. */
const USES_BETWEEN_AGEING = 1_024;

export interface HotCopiesOptions {
  /** Where the copies are kept: in memory that survives this process. */
  readonly store: StateStore;
  /** What a former process left there. */
  readonly entries: readonly StoredEntry[];
  readonly cache: PrefixCache;
  readonly memory: SavableMemory;
}

/** Figures of the copies, for metrics and tests. */
export interface HotCopiesStats {
  readonly capacityBytes: number;
  readonly usedBytes: number;
  readonly copies: number;
  /** Copies that were written since the start, to the last byte. */
  readonly writtenFiles: number;
  /** Tokens that this process began with. */
  readonly restoredTokens: number;
  /** Copies that could not be made, or were there at the start and no good. */
  readonly failures: number;
}

interface HotCopy {
  readonly file: StoredState;
  readonly node: RadixNode;
  readonly from: number;
  readonly to: number;
}

/**
 * Copies of the upper nodes that are used most, outside this process, so that the one that comes after a crash begins
 * with them (RAGCache §6, fault tolerance). A copied byte saves as many computations as its node has uses, so nodes are
 * taken in the order of their uses. A parent has at least those of its children: the system prompt comes first, and no
 * copy is taken without what it stands behind.
 *
 * Copying costs a copy of the cells, about a hundredth of computing them. At most one node is copied between two
 * decodes.
 */
export class HotCopies {
  readonly #store: StateStore;
  readonly #cache: PrefixCache;
  readonly #memory: SavableMemory;
  #entries: readonly StoredEntry[];
  readonly #copies = new Map<RadixNode, HotCopy>();
  /** Nodes to look at next, most used last. */
  #planned: RadixNode[] = [];
  #usesSincePlan = 0;
  #usesSinceAgeing = 0;
  #restoredTokens = 0;
  #failures = 0;

  constructor({ store, entries, cache, memory }: HotCopiesOptions) {
    this.#store = store;
    this.#entries = entries;
    this.#cache = cache;
    this.#memory = memory;
    store.onLost = (file) => {
      this.#failures++;
      const lost = [...this.#copies.values()].find((copy) => copy.file.name === file.name);
      if (lost !== undefined) {
        this.#remove(lost);
      }
    };
  }

  get stats(): HotCopiesStats {
    const { capacityBytes, usedBytes, writtenFiles, damagedFiles, foreignFiles, sweptFiles } = this.#store.stats;
    return {
      capacityBytes,
      usedBytes,
      copies: this.#copies.size,
      writtenFiles,
      restoredTokens: this.#restoredTokens,
      failures: this.#failures + damagedFiles + foreignFiles + sweptFiles,
    };
  }

  /**
   * Puts what a former process left back into the empty memory, parents first, up to half of the cells. What is damaged
   * or leads nowhere is removed. Call it once, before anything is computed. Cost: a read and a copy of the cells for
   * each.
   */
  async restore(): Promise<void> {
    const entries = [...this.#entries].sort((a, b) => a.file.from - b.file.from);
    this.#entries = [];
    for (const { file, salt, tokens, uses } of entries) {
      const state = await this.#store.read(file);
      const node = state === undefined ? undefined : this.#graft({ salt, tokens, from: file.from, state });
      if (node === undefined) {
        this.#failures++;
        this.#store.remove(file);
      } else {
        this.#restoredTokens += node.tokenCount;
        node.uses = uses;
        this.#adopt(node, file);
      }
    }
  }

  /** A request has used a path. */
  noteUse(): void {
    this.#usesSincePlan++;
    this.#usesSinceAgeing++;
  }

  /**
   * Copies one node, if any should be. Call it between two decodes.
   *
   * @param isIdle Nothing is computed, so looking and copying delay nobody.
   * @returns Whether there may be more to copy.
   */
  step(isIdle: boolean): boolean {
    const isDue = isIdle ? this.#usesSincePlan > 0 : this.#usesSincePlan >= USES_BETWEEN_PLANS;
    if (this.#planned.length === 0 && isDue) {
      this.#usesSincePlan = 0;
      this.#age();
      this.sweep();
      this.#planned = this.#hottest().reverse();
    }
    for (let node = this.#planned.pop(); node !== undefined; node = this.#planned.pop()) {
      // What lies on the disk alone survives there.
      const isNear = node.onDevice || node.copy !== undefined;
      if (isNear && !this.#copies.has(node)) {
        if (!this.#copy(node)) {
          this.#planned = [];
        }
        return this.#planned.length > 0;
      }
    }
    return false;
  }

  /** Removes the copies of nodes that are gone, or were cut or grew since. */
  sweep(): void {
    for (const copy of this.#copies.values()) {
      const { node, from, to } = copy;
      if (node.liesNowhere || node.start !== from || node.end !== to) {
        this.#remove(copy);
      }
    }
  }

  /** Finishes what is being written and gives the place back. */
  close(): Promise<void> {
    return this.#store.close();
  }

  /** Puts a state behind the path that it stands behind, as if a request had computed it. */
  #graft({ salt, tokens, from, state }: Omit<StateRecord, 'checksum' | 'uses'>): RadixNode | undefined {
    const cache = this.#cache;
    const count = tokens.length - from;
    const saltOrNone = salt === '' ? undefined : salt;
    const lease = cache.acquire(tokens, from, [tokens.length], saltOrNone);
    if (lease === undefined) {
      return undefined;
    }
    const hasRoom = cache.stats.usedCells + count <= cache.stats.cells / 2;
    const isBack =
      lease.length === from &&
      hasRoom &&
      cache.grow(lease, count) &&
      this.#memory.restore(lease.sequence, state, from, tokens.length);
    if (isBack) {
      cache.commit(lease, tokens.slice(from));
    }
    cache.release(lease, isBack);
    const cursor = cache.cursor(tokens, tokens.length, saltOrNone);
    cursor.follow();
    return isBack ? cursor.node : undefined;
  }

  #recordOf(node: RadixNode): StateRecord | undefined {
    if (node.copy !== undefined) {
      return stateRecord(node, node.copy, node.uses);
    }
    const state = this.#memory.save(this.#cache.sequenceOf(node), node.start, node.end);
    return state === undefined ? undefined : stateRecord(node, { state, checksum: crc32(state) }, node.uses);
  }

  #adopt(node: RadixNode, file: StoredState): void {
    this.#copies.set(node, { file, node, from: node.start, to: node.end });
  }

  #age(): void {
    if (this.#usesSinceAgeing < USES_BETWEEN_AGEING) {
      return;
    }
    this.#usesSinceAgeing = 0;
    const nodes = [...this.#cache.roots];
    for (let node = nodes.pop(); node !== undefined; node = nodes.pop()) {
      node.uses = Math.floor(node.uses / 2);
      nodes.push(...node.children.values());
    }
  }

  /** @returns Whether copying others makes sense; not when there is no room for anything less used. */
  #copy(node: RadixNode): boolean {
    const record = this.#recordOf(node);
    if (record === undefined) {
      this.#failures++;
      return true;
    }
    const bytes = this.#store.sizeOf(record);
    if (bytes > this.#store.stats.capacityBytes || !this.#store.accepts(bytes)) {
      return false;
    }
    while (this.#store.freeBytes < bytes || this.#copies.size >= MAX_COPIES) {
      const victim = this.#leastUsed();
      if (victim === undefined || victim.node.uses >= node.uses) {
        return false;
      }
      this.#remove(victim);
    }
    this.#adopt(node, this.#store.put(record));
    return true;
  }

  /** Of those used least, the deepest: no copy may lose what it stands behind. */
  #leastUsed(): HotCopy | undefined {
    let least: HotCopy | undefined;
    for (const copy of this.#copies.values()) {
      const difference = copy.node.uses - (least?.node.uses ?? Number.POSITIVE_INFINITY);
      if (difference < 0 || (difference === 0 && copy.from > least!.from)) {
        least = copy;
      }
    }
    return least;
  }

  #remove({ node, file }: HotCopy): void {
    this.#copies.delete(node);
    this.#store.remove(file);
  }

  /** The nodes that are used most, parents before their children. Cost: O(children of those nodes). */
  #hottest(): RadixNode[] {
    const hottest: RadixNode[] = [];
    // Descending by uses; what would come after MAX_COPIES others is of no interest.
    const frontier: RadixNode[] = [];
    const isBetter = (a: RadixNode, b: RadixNode): boolean => a.uses > b.uses;
    const addChildren = (node: RadixNode): void => {
      for (const child of node.children.values()) {
        if (child.uses >= MIN_USES) {
          keepBest(frontier, child, { limit: MAX_COPIES - hottest.length, isBetter });
        }
      }
    };
    for (const root of this.#cache.roots) {
      addChildren(root);
    }
    for (let node = frontier.shift(); node !== undefined; node = frontier.shift()) {
      hottest.push(node);
      addChildren(node);
    }
    return hottest;
  }
}
