import type { StoredEntry } from '../store/store-folder.js';
import type { StateRecord } from '../store/stored-state.js';
import { DiskTier, type DiskTierOptions, type DiskTierStats } from './disk-tier.js';
import type { EvictionOrder } from './eviction-order.js';
import { type DiskCopy, RadixNode } from './radix-node.js';
import type { TierListener } from './tier-listener.js';

export interface NodeFilesOptions {
  readonly disk: DiskTierOptions;
  /** Decides what leaves the disk first. */
  readonly order: EvictionOrder;
  readonly listener: TierListener | undefined;
  /** What is to be written of a node, wherever it lies; `undefined` when it cannot be had. */
  readonly recordOf: (node: RadixNode) => StateRecord | undefined;
  /** Told of a node that has left the disk. */
  readonly onLeft: (node: RadixNode) => void;
}

/**
 * Which nodes of the tree have files. A node's file is written after those of its ancestors and removed before them, so
 * that a file never stands without those it depends on and a restart can use every one.
 *
 * Files are read and written while the engine computes, but the tree changes between two decodes alone: in {@link
 * settle}.
 */
export class NodeFiles {
  readonly #disk: DiskTier;
  readonly #order: EvictionOrder;
  readonly #listener: TierListener | undefined;
  readonly #recordOf: (node: RadixNode) => StateRecord | undefined;
  readonly #onLeft: (node: RadixNode) => void;

  constructor({ disk, order, listener, recordOf, onLeft }: NodeFilesOptions) {
    this.#disk = new DiskTier(disk);
    this.#order = order;
    this.#listener = listener;
    this.#recordOf = recordOf;
    this.#onLeft = onLeft;
  }

  get stats(): DiskTierStats {
    return this.#disk.stats;
  }

  /** Whether anything is on its way from the disk. */
  get isReading(): boolean {
    return this.#disk.isReading;
  }

  /** Milliseconds since some moment. */
  nowMs(): number {
    return this.#disk.now();
  }

  /** Settles when something has come from the disk that {@link settle} can take. */
  news(): Promise<void> {
    return this.#disk.news();
  }

  /** Milliseconds that reading a file will take. */
  readMs(copy: DiskCopy): number {
    return this.#disk.readMs(copy);
  }

  /** Counts tokens that came to host memory. */
  countLoaded(tokens: number): void {
    this.#disk.countLoaded(tokens);
  }

  /**
   * Hangs what a former process left in files into an empty tree. A file whose path is not there is removed, and then
   * what the policy values least until the budget is held. Cost: O(tokens).
   *
   * @param entries Last used last.
   */
  adopt(entries: readonly StoredEntry[], rootOf: (salt: string | undefined) => RadixNode): void {
    const byDepth = [...entries].sort((a, b) => a.file.from - b.file.from);
    const nodes = new Map<StoredEntry, RadixNode>();
    for (const entry of byDepth) {
      const { salt, tokens, file, uses } = entry;
      const parent = nodeAt(rootOf(salt === '' ? undefined : salt), tokens, file.from);
      if (parent === undefined || parent.children.has(tokens[file.from]!)) {
        this.#disk.discard(file);
        continue;
      }
      const node = new RadixNode(parent, file.from, tokens.slice(file.from));
      this.#disk.adopt(node, file, uses);
      this.#listener?.stored(node, 'disk', node.start);
      nodes.set(entry, node);
    }
    for (const entry of entries) {
      const node = nodes.get(entry);
      if (node !== undefined) {
        this.#order.recall(node, entry.uses);
        this.#order.review(node);
      }
    }
    this.#makeRoom(0);
  }

  /**
   * Begins to read a node's file, unless computing its tokens is expected to be faster, which takes `computeMs`.
   *
   * @returns Whether it is on its way.
   */
  load(node: RadixNode, computeMs: number): boolean {
    const copy = node.file;
    if (copy === undefined) {
      return false;
    }
    if (copy.load === undefined && this.#disk.readMs(copy) > computeMs) {
      this.#disk.fadeCost();
      return false;
    }
    return this.#disk.load(copy);
  }

  /**
   * Takes what the disk has brought, or could not keep, since the last call.
   *
   * @param onArrived Told of each node whose file has come, parents before their children.
   */
  settle(onArrived: (node: RadixNode, state: Uint8Array) => void): void {
    for (const copy of this.#disk.takeLost()) {
      this.#loseAll(copy);
    }
    for (const { copy, state } of this.#disk.takeArrived()) {
      if (state === undefined) {
        this.#loseAll(copy);
        continue;
      }
      for (const node of nodesOf(copy)) {
        // What made room for the nodes before may have taken the file from this one.
        if (node.file === copy) {
          this.#disk.noteUses(copy, this.#order.usesOf(node));
          onArrived(node, state);
        }
      }
    }
  }

  /**
   * Writes a node that is about to leave host memory, and those of its ancestors that have no file, if there is room.
   */
  keep(victim: RadixNode): void {
    if (victim.onDevice || victim.file !== undefined) {
      return;
    }
    const missing = victim.path().filter(({ file }) => file === undefined);
    const records = missing.flatMap((node) => this.#recordOf(node) ?? []);
    const bytes = records.length === missing.length ? this.#disk.roomFor(records) : undefined;
    if (bytes === undefined) {
      return;
    }
    // What makes room must not be the last of the ancestors that have a file.
    this.#order.hold([missing[0]!.parent!], () => {
      if (this.#makeRoom(bytes)) {
        for (const [index, node] of missing.entries()) {
          this.#put(node, records[index]!);
        }
      }
    });
  }

  /**
   * Writes what is nowhere in a file yet, most used first among siblings, as far as there is room, and closes the
   * files. The device must be idle.
   *
   * @param isInTime Asked before each file; when not, nothing more is begun.
   */
  async close(roots: readonly RadixNode[], isInTime: () => boolean): Promise<void> {
    const queue = [...roots];
    this.#noteUses(roots);
    for (let node = queue.shift(); node !== undefined && isInTime(); node = queue.shift()) {
      const isStored = node.parent === undefined || node.file !== undefined || (await this.#keepAlone(node));
      if (isStored) {
        queue.push(...[...node.children.values()].sort((a, b) => b.uses - a.uses));
      }
    }
    await this.#disk.close();
  }

  /** Has every file say how often it was used. */
  #noteUses(roots: readonly RadixNode[]): void {
    const nodes = [...roots];
    for (let node = nodes.pop(); node !== undefined; node = nodes.pop()) {
      if (node.file !== undefined) {
        this.#disk.noteUses(node.file, this.#order.usesOf(node));
      }
      nodes.push(...node.children.values());
    }
  }

  /** Writes a node whose parent has a file, if there is room without evicting. */
  async #keepAlone(node: RadixNode): Promise<boolean> {
    const record = this.#recordOf(node);
    if (record === undefined) {
      return false;
    }
    await this.#disk.settled();
    const bytes = this.#disk.roomFor([record]);
    if (bytes === undefined || bytes > this.#disk.freeBytes) {
      return false;
    }
    this.#put(node, record);
    return true;
  }

  #put(node: RadixNode, record: StateRecord): void {
    this.#disk.put(node, record);
    this.#order.enter(node, 'disk');
    this.#listener?.stored(node, 'disk', node.start);
    this.#order.review(node);
    this.#order.review(node.parent!);
  }

  #makeRoom(bytes: number): boolean {
    while (this.#disk.freeBytes < bytes) {
      const victim = this.#order.evict('disk');
      if (victim === undefined) {
        return false;
      }
      this.#listener?.leaving(victim, 'disk', victim.start);
      this.#disk.evict(victim);
      this.#left(victim);
    }
    return true;
  }

  /** A file is no good, or gone, for all nodes that it was cut into. */
  #loseAll(copy: DiskCopy): void {
    for (const node of nodesOf(copy)) {
      // It went with the one before that it stands behind.
      if (node.file === copy) {
        this.#lose(node);
      }
    }
  }

  /** A node's file is no good, or gone: so are those behind it. */
  #lose(node: RadixNode): void {
    for (const child of [...node.children.values()]) {
      if (child.file !== undefined) {
        this.#lose(child);
      }
    }
    this.drop(node);
  }

  /** Takes a node's file from it; nothing below it may have one. */
  drop(node: RadixNode): void {
    this.#listener?.leaving(node, 'disk', node.start);
    this.#disk.drop(node);
    this.#left(node);
  }

  #left(node: RadixNode): void {
    this.#order.leave(node, 'disk');
    this.#onLeft(node);
  }
}

/** The nodes that a file was cut into, parents before children. */
function nodesOf({ nodes }: DiskCopy): readonly RadixNode[] {
  return [...nodes].sort((a, b) => a.start - b.start);
}

/** The node whose end is position `length` of a path; the one that stands across it is cut there. */
function nodeAt(root: RadixNode, tokens: readonly number[], length: number): RadixNode | undefined {
  let node = root;
  while (node.end < length) {
    const child = node.children.get(tokens[node.end]!);
    const common = child?.commonLength(tokens, node.end, length) ?? 0;
    if (child === undefined || common < Math.min(child.tokenCount, length - node.end)) {
      return undefined;
    }
    node = common < child.tokenCount ? child.splitAt(common) : child;
  }
  return node;
}
