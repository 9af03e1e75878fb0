import type { StoredEntry } from '../store/store-folder.js';
import type { StateRecord } from '../store/stored-state.js';
import type { DiskTierOptions, DiskTierStats } from './disk-tier.js';
import type { EvictionOrder } from './eviction-order.js';
import { type HostCopy, HostTier, type HostTierOptions, type HostTierStats } from './host-tier.js';
import { NodeFiles } from './node-files.js';
import type { RadixNode } from './radix-node.js';
import type { SequenceId } from './sequence-memory.js';
import { stateRecord } from './state-record.js';
import type { TierListener } from './tier-listener.js';

export interface LowerTiersOptions {
  /** Decides what leaves a tier first. */
  readonly order: EvictionOrder;
  readonly host: HostTierOptions;
  readonly disk: DiskTierOptions | undefined;
  readonly listener: TierListener | undefined;
  /** The sequence that covers the path to a node on the device. */
  readonly sequenceOf: (node: RadixNode) => SequenceId;
  /** Told of a node that lies nowhere any more, to take it out of the tree. */
  readonly onGone: (node: RadixNode) => void;
}

/**
 * What lies below the device: copies in host memory, files behind them, and how nodes move between the three. What
 * leaves the device is copied to the host; what leaves the host and is nowhere nearer goes into a file ({@link
 * NodeFiles}). A file comes back through host memory.
 */
export class LowerTiers {
  readonly #order: EvictionOrder;
  readonly #host: HostTier;
  readonly #files: NodeFiles | undefined;
  readonly #listener: TierListener | undefined;
  readonly #sequenceOf: (node: RadixNode) => SequenceId;
  readonly #onGone: (node: RadixNode) => void;

  constructor({ order, host, disk, listener, sequenceOf, onGone }: LowerTiersOptions) {
    this.#order = order;
    this.#host = new HostTier(host);
    this.#listener = listener;
    this.#sequenceOf = sequenceOf;
    this.#onGone = onGone;
    if (disk !== undefined) {
      const recordOf = (node: RadixNode): StateRecord | undefined => this.#recordOf(node);
      const onLeft = (node: RadixNode): void => this.#afterLeaving(node);
      this.#files = new NodeFiles({ disk, order, listener, recordOf, onLeft });
    }
  }

  get hostStats(): HostTierStats {
    return this.#host.stats;
  }

  get diskStats(): DiskTierStats | undefined {
    return this.#files?.stats;
  }

  /** Hangs what a former process left in files into an empty tree. Cost: O(tokens). */
  adopt(entries: readonly StoredEntry[], rootOf: (salt: string | undefined) => RadixNode): void {
    this.#files?.adopt(entries, rootOf);
  }

  /** Copies a leaf of the device to the host, where the least valuable copies give way. */
  copyOut(leaf: RadixNode): void {
    const copy = this.#host.save(leaf.owner!, leaf.start, leaf.end);
    if (copy !== undefined) {
      this.#addCopy(leaf, copy);
    }
  }

  /** Milliseconds that bringing a part of a node to the device is expected to take. */
  transferMs(node: RadixNode, length: number): number {
    const { copy, file } = node;
    const share = length / node.tokenCount;
    if (copy !== undefined) {
      return this.#host.restoreMs(copy.state.length * share);
    }
    // A file is read as a whole, whatever part of it is wanted.
    return file === undefined ? 0 : this.#files!.readMs(file) + this.#host.restoreMs(file.file.bytes * share);
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
    if (node.copy !== undefined && copies === undefined) {
      this.#loseCopy(node);
    }
    return copies;
  }

  /**
   * A node was cut, and `upper` is what stays where it is. Two copies are larger than one, so that others may have to
   * give way.
   */
  afterCut(upper: RadixNode): void {
    this.#order.hold([upper], () => this.#makeRoom(0));
  }

  /**
   * Begins to read a node's file, unless computing its tokens is expected to be faster, which takes `computeMs`.
   *
   * @returns Whether it is on its way.
   */
  load(node: RadixNode, computeMs: number): boolean {
    return this.#files?.load(node, computeMs) ?? false;
  }

  /** Milliseconds since some moment, by the disk tier's clock. */
  nowMs(): number {
    return this.#files?.nowMs() ?? 0;
  }

  /** Whether anything is on its way from the disk. */
  get isReading(): boolean {
    return this.#files?.isReading ?? false;
  }

  /** Settles when something has come from the disk that {@link settle} can take. */
  async news(): Promise<void> {
    await this.#files?.news();
  }

  /** Takes what the disk has brought, or could not keep, since the last call. Call it between two decodes. */
  settle(): void {
    this.#files?.settle((node, state) => {
      if (!node.onDevice && node.copy === undefined) {
        this.#promote(node, state);
      }
    });
  }

  /** Writes what is nowhere on the disk yet and closes the files, as {@link NodeFiles.close} does. */
  async close(roots: readonly RadixNode[], isInTime: () => boolean): Promise<void> {
    await this.#files?.close(roots, isInTime);
  }

  /** Drops a node's copy or file; nothing below it may lie in that tier. */
  drop(node: RadixNode, tier: 'host' | 'disk'): void {
    if (tier === 'disk') {
      this.#files!.drop(node);
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

  /** Has copies give way until there is room for so many bytes; says whether there is. */
  #makeRoom(bytes: number): boolean {
    while (this.#host.freeBytes < bytes) {
      const victim = this.#order.evict('host');
      if (victim === undefined) {
        return false;
      }
      this.#files?.keep(victim);
      this.#host.evict(victim.copy!);
      this.#loseCopy(victim);
    }
    return true;
  }

  #addCopy(node: RadixNode, copy: HostCopy): void {
    if (!this.#makeRoom(copy.state.length)) {
      return;
    }
    this.#host.add(copy);
    node.copy = copy;
    this.#order.enter(node, 'host');
    this.#listener?.stored(node, 'host', node.start);
    this.#order.review(node);
    this.#order.review(node.parent!);
  }

  /** A file has arrived: what a node holds of it is in host memory from now on. */
  #promote(node: RadixNode, state: Uint8Array): void {
    const copy = this.#host.fromState(state, { from: node.start, to: node.end }, node.file!.file);
    if (copy === undefined) {
      return;
    }
    // What makes room must be neither the node nor its parent.
    this.#order.hold([node, node.parent!], () => this.#addCopy(node, copy));
    if (node.copy !== undefined) {
      this.#files!.countLoaded(node.tokenCount);
    }
  }

  #recordOf(node: RadixNode): StateRecord | undefined {
    const copy = node.copy ?? this.#host.save(this.#sequenceOf(node), node.start, node.end);
    return copy === undefined ? undefined : stateRecord(node, copy, this.#order.usesOf(node));
  }

  /** A node's copy, which the host tier counts no more, is gone. */
  #loseCopy(node: RadixNode): void {
    this.#listener?.leaving(node, 'host', node.start);
    node.copy = undefined;
    this.#order.leave(node, 'host');
    this.#afterLeaving(node);
  }

  #afterLeaving(node: RadixNode): void {
    const parent = node.parent!;
    if (node.liesNowhere) {
      this.#onGone(node);
    } else {
      this.#order.review(node);
    }
    this.#order.review(parent);
  }
}
