import type { StoredEntry } from '../store/state-store.js';
import type { StateRecord } from '../store/stored-state.js';
import { DiskTier, type DiskTierOptions, type DiskTierStats } from './disk-tier.js';
import type { EvictionOrder } from './eviction-order.js';
import { type HostCopy, HostTier, type HostTierOptions, type HostTierStats } from './host-tier.js';
import { type DiskCopy, RadixNode, type TierListener } from './radix-node.js';
import type { SequenceId } from './sequence-memory.js';

export interface TierStoreOptions {
  /** Decides what leaves a tier first. */
  readonly order: EvictionOrder;
  readonly host: HostTierOptions;
  readonly disk: DiskTierOptions | undefined;
  readonly listener: TierListener | undefined;
  /** The sequence that covers the path to a node on the device. */
  readonly sequenceOf: (node: RadixNode) => SequenceId;
  /** Called for a node that is in no tier any more, to take it out of the tree. */
  readonly onGone: (node: RadixNode) => void;
}

/**
 * The tiers below the device: copies in host memory, and files behind them. What leaves the device is copied to the
 * host; what leaves the host is written to a file. A file comes back through host memory. It is written after the files
 * of the node's ancestors and removed before them, so that a restart can use every one.
 */
export class TierStore {
  readonly #order: EvictionOrder;
  readonly #host: HostTier;
  readonly #disk: DiskTier | undefined;
  readonly #listener: TierListener | undefined;
  readonly #sequenceOf: (node: RadixNode) => SequenceId;
  readonly #onGone: (node: RadixNode) => void;

  constructor({ order, host, disk, listener, sequenceOf, onGone }: TierStoreOptions) {
    this.#order = order;
    this.#host = new HostTier(host);
    this.#disk = disk && new DiskTier(disk.store);
    this.#listener = listener;
    this.#sequenceOf = sequenceOf;
    this.#onGone = onGone;
  }

  get hostStats(): HostTierStats {
    return this.#host.stats;
  }

  get diskStats(): DiskTierStats | undefined {
    return this.#disk?.stats;
  }

  /**
   * Hangs what a former process left in files into an empty tree. A file whose path is not there is removed, and then
   * what the policy values least until the budget is held. Cost: O(tokens).
   *
   * @param entries Last used last.
   */
  adopt(entries: readonly StoredEntry[], rootOf: (salt: string | undefined) => RadixNode): void {
    const disk = this.#disk;
    if (disk === undefined) return;
    const byDepth = [...entries].sort((a, b) => a.file.from - b.file.from);
    const nodes = new Map<StoredEntry, RadixNode>();
    for (const entry of byDepth) {
      const { salt, tokens, file } = entry;
      const parent = nodeAt(rootOf(salt === '' ? undefined : salt), tokens, file.from);
      if (parent === undefined || parent.children.has(tokens[file.from]!)) {
        disk.discard(file);
        continue;
      }
      const node = new RadixNode(parent, file.from, tokens.slice(file.from));
      disk.adopt(node, file);
      this.#listener?.stored(node, 'disk', node.start);
      nodes.set(entry, node);
    }
    for (const entry of entries) {
      const node = nodes.get(entry);
      if (node !== undefined) {
        this.#order.restoreUses(node, entry.uses);
        this.#order.review(node);
      }
    }
    this.#makeDiskRoom(disk, 0);
  }

  /** Copies a leaf of the device to the host, which evicts the least valuable copies. */
  copyOut(leaf: RadixNode): void {
    const copy = this.#host.save(leaf.owner!, leaf.start, leaf.end);
    if (copy !== undefined) this.#addCopy(leaf, copy);
  }

  /**
   * Adds a node that lies here alone: the state of a sequence that ends with its tokens. Its parent must be pinned.
   *
   * @returns `undefined` when there is no room for it.
   */
  addSaved(
    parent: RadixNode,
    tokens: readonly number[],
    sequence: SequenceId,
    canWait: boolean,
  ): RadixNode | undefined {
    const copy = this.#host.save(sequence, parent.end, parent.end + tokens.length);
    if (copy === undefined || !this.#makeHostRoom(copy.state.length)) return undefined;
    const node = new RadixNode(parent, parent.end, [...tokens]);
    node.canWait = canWait;
    this.#addCopy(node, copy);
    return node;
  }

  /** Saves the state of a sequence that ends with a node, whose copy has no checkpoint. Its parent must be pinned. */
  saveAgain(node: RadixNode, sequence: SequenceId): void {
    const copy = this.#host.save(sequence, node.start, node.end);
    if (copy === undefined) return;
    this.#order.hold([node], () => {
      if (node.copy === undefined) {
        this.#addCopy(node, copy);
      } else if (this.#makeHostRoom(copy.state.length)) {
        this.#host.drop(node.copy);
        this.#host.add(copy);
        node.copy = copy;
        this.#order.resized(node);
      }
    });
  }

  /** @returns Whether the node's cells are on the device now; when not, its copy was no good and is gone. */
  restore(node: RadixNode, sequence: SequenceId): boolean {
    const copy = node.copy!;
    if (this.#host.restore(copy, sequence)) {
      copy.isFresh = false;
      return true;
    }
    this.#host.drop(copy);
    this.#loseCopy(node);
    return false;
  }

  /**
   * Cuts a node's copy in two before a position; {@link afterCut} is to follow. A copy that is no good is gone
   * afterwards.
   */
  cutCopy(node: RadixNode, position: number): [upper: HostCopy, lower: HostCopy] | undefined {
    const copies = node.copy === undefined ? undefined : this.#host.split(node.copy, position);
    if (node.copy !== undefined && copies === undefined) this.#loseCopy(node);
    return copies;
  }

  /**
   * A node was cut, and `upper` is what stays where it is. Two copies are larger than one, so that others may have to
   * give way.
   */
  afterCut(upper: RadixNode): void {
    this.#order.hold([upper], () => this.#makeHostRoom(0));
  }

  /**
   * Reads a node's file into host memory, for all nodes that it was cut into. Nothing else may change the tree until it
   * has settled.
   *
   * @returns Bytes of the file when the node has a copy now; else 0.
   */
  async load(node: RadixNode): Promise<number> {
    const copy = node.file!;
    const state = await this.#disk!.read(copy);
    if (state === undefined) {
      this.#loseFile(copy);
      return 0;
    }
    for (const each of nodesOf(copy)) {
      // What made room for the nodes before may have taken the file from this one.
      if (each.file === copy) this.#promote(each, state);
    }
    return node.copy === undefined ? 0 : copy.file.bytes;
  }

  /**
   * Writes what is nowhere in a file yet, most used first among siblings, as far as there is room, and
   * closes the files. The device must be idle.
   *
   * @param isInTime Asked before each file; when not, nothing more is begun.
   */
  async close(roots: readonly RadixNode[], isInTime: () => boolean): Promise<void> {
    const disk = this.#disk;
    if (disk === undefined) return;
    const queue = [...roots];
    for (let node = queue.shift(); node !== undefined && isInTime(); node = queue.shift()) {
      const isStored = node.parent === undefined || node.file !== undefined || (await this.#keepAlone(disk, node));
      if (isStored) queue.push(...[...node.children.values()].sort((a, b) => b.uses - a.uses));
    }
    await disk.close();
  }

  /** Drops a node's copy or file; nothing below it may lie in that tier. */
  drop(node: RadixNode, tier: 'host' | 'disk'): void {
    if (tier === 'disk') {
      this.#dropFile(node);
    } else {
      this.#host.drop(node.copy!);
      this.#loseCopy(node);
    }
  }

  /** Drops everything below a node that lies nowhere. */
  dropBelow(node: RadixNode): void {
    for (const child of [...node.children.values()]) {
      this.#host.drop(child.copy!);
      this.#loseCopy(child);
    }
  }

  /** Evicts copies until so many bytes are free. @returns Whether they are. */
  #makeHostRoom(bytes: number): boolean {
    while (this.#host.freeBytes < bytes) {
      const victim = this.#order.evict('host');
      if (victim === undefined) return false;
      this.#keepInFile(victim);
      this.#host.evict(victim.copy!);
      this.#loseCopy(victim);
    }
    return true;
  }

  /** Evicts files until so many bytes are free. @returns Whether they are. */
  #makeDiskRoom(disk: DiskTier, bytes: number): boolean {
    while (disk.freeBytes < bytes) {
      const victim = this.#order.evict('disk');
      if (victim === undefined) return false;
      disk.counts.evictedTokens += victim.tokenCount;
      this.#dropFile(victim);
    }
    return true;
  }

  #addCopy(node: RadixNode, copy: HostCopy): void {
    if (!this.#makeHostRoom(copy.state.length)) return;
    this.#host.add(copy);
    node.copy = copy;
    this.#order.enter(node, 'host');
    this.#listener?.stored(node, 'host', node.start);
    this.#order.review(node);
    this.#order.review(node.parent!);
  }

  /** A file has arrived: what a node holds of it is in host memory from now on. */
  #promote(node: RadixNode, state: Uint8Array): void {
    if (node.onDevice || node.copy !== undefined) return;
    const copy = this.#host.fromState(state, { from: node.start, to: node.end }, node.file!.file);
    if (copy === undefined) return;
    // What makes room must be neither the node nor its parent.
    this.#order.hold([node, node.parent!], () => this.#addCopy(node, copy));
    if (node.copy !== undefined) this.#disk!.counts.loadedTokens += node.tokenCount;
  }

  /**
   * Writes a node that is about to leave host memory, and those of its ancestors that have no file, if there is room.
   */
  #keepInFile(victim: RadixNode): void {
    const disk = this.#disk;
    if (disk === undefined || victim.onDevice || victim.file !== undefined) return;
    const missing = victim.path().filter(({ file }) => file === undefined);
    const records = missing.flatMap((node) => this.#recordOf(node) ?? []);
    const bytes = records.length === missing.length ? disk.roomFor(records) : undefined;
    if (bytes === undefined) return;
    // What makes room must not be the last of the ancestors that have a file.
    this.#order.hold([missing[0]!.parent!], () => {
      if (this.#makeDiskRoom(disk, bytes)) {
        for (const [index, node] of missing.entries()) this.#putFile(disk, node, records[index]!);
      }
    });
  }

  /** Writes a node whose parent has a file, if there is room without evicting. */
  async #keepAlone(disk: DiskTier, node: RadixNode): Promise<boolean> {
    const record = this.#recordOf(node);
    if (record === undefined) return false;
    await disk.settled();
    const bytes = disk.roomFor([record]);
    if (bytes === undefined || bytes > disk.freeBytes) return false;
    this.#putFile(disk, node, record);
    return true;
  }

  #putFile(disk: DiskTier, node: RadixNode, record: StateRecord): void {
    disk.put(node, record);
    this.#order.enter(node, 'disk');
    this.#listener?.stored(node, 'disk', node.start);
    this.#order.review(node);
    this.#order.review(node.parent!);
  }

  /** A file is no good, or gone, for all nodes that it was cut into, and those behind it are of no use. */
  #loseFile(file: DiskCopy): void {
    for (const node of nodesOf(file)) {
      // It went with the one before that it stands behind.
      if (node.file === file) this.#dropFileAndBelow(node);
    }
  }

  #dropFileAndBelow(node: RadixNode): void {
    for (const child of [...node.children.values()]) {
      if (child.file !== undefined) this.#dropFileAndBelow(child);
    }
    this.#dropFile(node);
  }

  #dropFile(node: RadixNode): void {
    this.#listener?.leaving(node, 'disk');
    this.#disk!.drop(node);
    this.#order.leave(node, 'disk');
    this.#afterLeaving(node);
  }

  #recordOf(node: RadixNode): StateRecord | undefined {
    const copy = node.copy ?? this.#host.save(this.#sequenceOf(node), node.start, node.end);
    return copy === undefined ? undefined : stateRecord(node, copy, this.#order.usesOf(node));
  }

  /** A node's copy, which the host tier has stopped counting, is gone. */
  #loseCopy(node: RadixNode): void {
    this.#listener?.leaving(node, 'host');
    node.copy = undefined;
    this.#order.leave(node, 'host');
    this.#afterLeaving(node);
  }

  #afterLeaving(node: RadixNode): void {
    const parent = node.parent!;
    if (!node.isResident) this.#onGone(node);
    else this.#order.review(node);
    this.#order.review(parent);
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
    if (child === undefined || common < Math.min(child.tokenCount, length - node.end)) return undefined;
    node = common < child.tokenCount ? child.splitAt(common) : child;
  }
  return node;
}

/**
 * What is stored of a node: its cells, everything that says what they are, and its uses. Cost: O(tokens of its path).
 */
function stateRecord(
  node: RadixNode,
  { state, checksum }: Pick<HostCopy, 'state' | 'checksum'>,
  uses: number,
): StateRecord {
  const path = node.path();
  const salt = path[0]!.parent!.salt ?? '';
  return { salt, tokens: path.flatMap(({ tokens }) => tokens), from: node.start, state, checksum, uses };
}
