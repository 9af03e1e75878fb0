import type { Tier } from '@warmpath/core/internal';
import type { StoredState } from '../store/state-store.js';
import type { HostCopy } from './host-tier.js';
import type { SequenceId } from './sequence-memory.js';

/** A file that holds the cells of a node, or of the parts that a node was cut into since. */
export interface DiskCopy {
  readonly file: StoredState;
  /** The nodes whose cells are in it; it goes with the last of them. */
  readonly nodes: Set<RadixNode>;
}

/** Part of a node, or all of it, that stands on the path of some tokens. */
export interface PathStep {
  readonly node: RadixNode;
  /** How many of the node's tokens match; at least one. */
  readonly length: number;
}

/**
 * One edge of the radix tree with the node at its end: a run of tokens that stands in the context of everything above,
 * a document where the caller said where documents end. It lies on the device, in host memory, on the disk, or in
 * several of them; a node that lies nowhere is in no tree.
 */
export class RadixNode {
  parent: RadixNode | undefined;
  /** Position of the first token of this node. */
  start: number;
  tokens: number[];
  readonly children = new Map<number, RadixNode>();
  /** Those of the children that lie on the device. */
  readonly deviceChildren = new Set<RadixNode>();
  /** How many of the children have a copy in host memory. */
  hostChildren = 0;
  /** How many of the children have a file on the disk. */
  diskChildren = 0;
  /**
   * The sequence that covers the whole path to this node; every leaf of the device tier has one and no other node has.
   */
  owner: SequenceId | undefined;
  /** Leases that end exactly here. */
  pins = 0;
  /** What the replacement calls this node, from the first time that it may be evicted. */
  handle: number | undefined;
  /** Requests that ended on a path through this node. */
  uses = 0;
  /** Whether only work that can wait has used it. */
  canWait = false;
  /** Of a root: what keeps the prompts below it apart from those of every other root. */
  readonly salt: string | undefined;
  #onDevice = false;
  #copy: HostCopy | undefined;
  #file: DiskCopy | undefined;

  constructor(parent: RadixNode | undefined, start: number, tokens: number[], salt?: string) {
    this.parent = parent;
    this.start = start;
    this.tokens = tokens;
    this.salt = salt;
    parent?.children.set(tokens[0]!, this);
  }

  get end(): number {
    return this.start + this.tokens.length;
  }

  get tokenCount(): number {
    return this.tokens.length;
  }

  /** Whether the node's cells are in the KV memory. The root, which has none, always is. */
  get onDevice(): boolean {
    return this.#onDevice || this.parent === undefined;
  }

  set onDevice(value: boolean) {
    this.#onDevice = value;
    if (value) this.parent?.deviceChildren.add(this);
    else this.parent?.deviceChildren.delete(this);
  }

  /** The node's cells in host memory. */
  get copy(): HostCopy | undefined {
    return this.#copy;
  }

  set copy(value: HostCopy | undefined) {
    if (this.parent !== undefined) {
      this.parent.hostChildren += Number(value !== undefined) - Number(this.#copy !== undefined);
    }
    this.#copy = value;
  }

  /** Whether a sequence can go on behind a copy or file of it: what was cut off above has no checkpoint. */
  get isResumable(): boolean {
    return this.#copy?.isResumable ?? this.#file?.file.to === this.end;
  }

  /** Whether the copy in host memory is of what lies on the device too. */
  get hasSpareCopy(): boolean {
    return this.#onDevice && this.#copy !== undefined;
  }

  /** The file that holds the node's cells. */
  get file(): DiskCopy | undefined {
    return this.#file;
  }

  set file(value: DiskCopy | undefined) {
    if (this.parent !== undefined) {
      this.parent.diskChildren += Number(value !== undefined) - Number(this.#file !== undefined);
    }
    this.#file = value;
  }

  /** Whether the node lies in a tier. */
  liesIn(tier: Tier): boolean {
    if (tier === 'device') return this.onDevice;
    return (tier === 'host' ? this.#copy : this.#file) !== undefined;
  }

  /** Whether the node lies in any tier; otherwise nothing is left of it. */
  get isResident(): boolean {
    return this.onDevice || this.copy !== undefined || this.file !== undefined;
  }

  /**
   * Whether the node may be evicted from a tier: nothing that depends on it is there, no lease ends here that needs it
   * there or is about to bring it back. Nothing depends on a copy of what lies on the device too.
   */
  mayLeave(tier: Tier): boolean {
    if (tier === 'device') return this.isDeviceLeaf && this.pins === 0;
    if (tier === 'host') {
      const isNeeded = this.hostChildren > 0 || this.pins > 0;
      return this.#copy !== undefined && (this.#onDevice || !isNeeded);
    }
    const isNeeded = !this.#onDevice && this.#copy === undefined && this.hostChildren > 0;
    return this.#file !== undefined && this.diskChildren === 0 && this.pins === 0 && !isNeeded;
  }

  /** Whether nothing below it is on the device: what may leave the device, when no lease ends here. */
  get isDeviceLeaf(): boolean {
    return this.#onDevice && this.deviceChildren.size === 0;
  }

  /** Nodes from below the root down to this one. */
  path(): RadixNode[] {
    const nodes: RadixNode[] = [];
    for (let node: RadixNode = this; node.parent !== undefined; node = node.parent) nodes.push(node);
    return nodes.reverse();
  }

  /** The next step from this node's end along `tokens[offset …]`, looking no further than `limit`. */
  next(tokens: readonly number[], offset: number, limit: number): PathStep | undefined {
    const child = offset < limit ? this.children.get(tokens[offset]!) : undefined;
    return child === undefined ? undefined : { node: child, length: child.commonLength(tokens, offset, limit) };
  }

  /**
   * @returns How many tokens of this node equal `tokens` from `offset` on, looking no further than `limit`.
   */
  commonLength(tokens: readonly number[], offset: number, limit: number): number {
    const most = Math.min(this.tokens.length, limit - offset);
    let length = 0;
    while (length < most && this.tokens[length] === tokens[offset + length]) length++;
    return length;
  }

  /**
   * Cuts this node after `length` of its tokens. This object stays the lower part, so leases that end here still do.
   *
   * @param copies The host copies of both parts, when the node has one. A file on the disk is of both parts from now
   *   on.
   * @returns The new upper part, which lies where this node lies.
   */
  splitAt(length: number, copies?: readonly [upper: HostCopy, lower: HostCopy]): RadixNode {
    const { onDevice, file, parent } = this;
    this.onDevice = false;
    this.copy = undefined;
    this.file = undefined;
    const upper = new RadixNode(parent, this.start, this.tokens.slice(0, length));
    upper.uses = this.uses;
    upper.canWait = this.canWait;
    this.tokens = this.tokens.slice(length);
    this.start += length;
    this.parent = upper;
    upper.children.set(this.tokens[0]!, this);
    for (const [node, copy] of [
      [upper, copies?.[0]],
      [this, copies?.[1]],
    ] as const) {
      node.onDevice = onDevice;
      node.copy = copy;
      node.file = file;
      file?.nodes.add(node);
    }
    return upper;
  }

  /** Takes the node out of the tree; it must lie nowhere by now. */
  detach(): void {
    this.parent?.children.delete(this.tokens[0]!);
  }
}

/**
 * Learns which tokens are in which tier, as it changes. Cutting a node in two changes nothing and is not reported. It
 * must return at once, leave the tree as it is, and not throw.
 */
export interface TierListener {
  /** The node's tokens from position `from` on lie in the tier now. */
  stored(node: RadixNode, tier: Tier, from: number): void;
  /** The node leaves the tier next; it still lies there. */
  leaving(node: RadixNode, tier: Tier): void;
}
