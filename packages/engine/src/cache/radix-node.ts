import type { EvictionCandidate } from './eviction.js';
import type { SequenceId } from './sequence-memory.js';

/**
 * One edge of the radix tree with the node at its end: a run of tokens that stands in the context of everything above.
 */
export class RadixNode implements EvictionCandidate {
  parent: RadixNode | undefined;
  /** Position of the first token of this node. */
  start: number;
  tokens: number[];
  readonly children = new Map<number, RadixNode>();
  /** The sequence that covers the whole path to this node; every leaf has one and no inner node has. */
  owner: SequenceId | undefined;
  /** Leases that end exactly here. */
  pins = 0;
  lastAccess: number;

  constructor(parent: RadixNode | undefined, start: number, tokens: number[], lastAccess: number) {
    this.parent = parent;
    this.start = start;
    this.tokens = tokens;
    this.lastAccess = lastAccess;
  }

  get end(): number {
    return this.start + this.tokens.length;
  }

  get tokenCount(): number {
    return this.tokens.length;
  }

  get depth(): number {
    return this.end;
  }

  get isLeaf(): boolean {
    return this.children.size === 0;
  }

  /**
   * @returns How many tokens of this node equal `tokens` from `offset` on, looking no further than `limit`.
   */
  commonLength(tokens: readonly number[], offset: number, limit: number): number {
    const most = Math.min(this.tokens.length, limit - offset);
    let length = 0;
    while (length < most && this.tokens[length] === tokens[offset + length]) {
      length++;
    }
    return length;
  }

  /**
   * Cuts this node after `length` of its tokens. This object stays the lower part, so leases that end here still do.
   *
   * @returns The new upper part.
   */
  splitAt(length: number): RadixNode {
    const upper = new RadixNode(this.parent, this.start, this.tokens.slice(0, length), this.lastAccess);
    this.parent?.children.set(upper.tokens[0]!, upper);
    this.tokens = this.tokens.slice(length);
    this.start += length;
    this.parent = upper;
    upper.children.set(this.tokens[0]!, this);
    return upper;
  }
}
