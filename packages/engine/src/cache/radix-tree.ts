import { RadixNode } from './radix-node.js';
import type { SequenceId } from './sequence-memory.js';

/**
 * A radix tree over tokens: the shape of what is cached, and when each part of it was last used. It knows which
 * sequence owns which leaf and does nothing to the engine's memory.
 *
 * Nodes are cut where a walk ends and are not joined again, so there are at most as many as cached tokens.
 */
export class RadixTree {
  readonly root = new RadixNode(undefined, 0, [], 0);
  readonly #leaves = new Set<RadixNode>();
  #clock = 0;

  /** Length of the longest stored prefix. Changes nothing. Cost: O(limit). */
  match(tokens: readonly number[], limit: number): number {
    const { node, length, inside } = this.#walk(this.root, tokens, 0, limit);
    return inside === 0 ? node.end : length;
  }

  /**
   * Walks from `node` along `tokens[offset …]`, and cuts the last node where the walk leaves it, so that it ends at a
   * node's end. Cost: O(limit - offset).
   *
   * @param limit Look at no token from this index on.
   */
  descend(node: RadixNode, tokens: readonly number[], offset: number, limit: number): RadixNode {
    const walk = this.#walk(node, tokens, offset, limit);
    return walk.inside === 0 ? walk.node : walk.node.splitAt(walk.inside);
  }

  /**
   * Adds a leaf below `parent`, which must have no child that begins with the same token.
   *
   * @returns The sequence that owned `parent`, which is no leaf any more and has no owner now.
   */
  addLeaf(parent: RadixNode, tokens: readonly number[], owner: SequenceId): { leaf: RadixNode; former?: SequenceId } {
    const leaf = new RadixNode(parent, parent.end, [...tokens], this.#clock);
    leaf.owner = owner;
    parent.children.set(tokens[0]!, leaf);
    this.#leaves.add(leaf);
    this.#leaves.delete(parent);
    const former = parent.owner;
    parent.owner = undefined;
    return { leaf, ...(former !== undefined && { former }) };
  }

  /**
   * Takes tokens off a leaf's end. An emptied leaf goes, and its owner passes to the parent if that is a leaf now.
   *
   * @returns Whether the owner has nothing left in the tree.
   */
  trimLeaf(leaf: RadixNode, count: number): boolean {
    if (count < leaf.tokenCount) {
      leaf.tokens.length -= count;
      return false;
    }
    const parent = leaf.parent!;
    parent.children.delete(leaf.tokens[0]!);
    this.#leaves.delete(leaf);
    if (parent === this.root || !parent.isLeaf) {
      return true;
    }
    parent.owner = leaf.owner;
    this.#leaves.add(parent);
    return false;
  }

  /** Any leaf's sequence covers the whole path to it. Cost: O(depth of the subtree). */
  sequenceBelow(node: RadixNode): SequenceId {
    for (let current = node; ; ) {
      if (current.owner !== undefined) {
        return current.owner;
      }
      const child = current.children.values().next();
      if (child.done) {
        throw new Error('A leaf of the prefix cache has no sequence');
      }
      current = child.value;
    }
  }

  /** Marks the whole path as used now, so that no node is ever older than what stands below it. Cost: O(depth). */
  touch(node: RadixNode): void {
    this.#clock++;
    for (let current: RadixNode | undefined = node; current !== undefined; current = current.parent) {
      current.lastAccess = this.#clock;
    }
  }

  /** Leaves at whose end no lease stands. There are at most as many leaves as sequence ids. */
  *unpinnedLeaves(): Iterable<RadixNode> {
    for (const leaf of this.#leaves) {
      if (leaf.pins === 0) {
        yield leaf;
      }
    }
  }

  /** Where a walk ends: in `node`, of which `inside` tokens are matched, or at its end when `inside` is 0. */
  #walk(
    start: RadixNode,
    tokens: readonly number[],
    offset: number,
    limit: number,
  ): { node: RadixNode; length: number; inside: number } {
    let node = start;
    let length = offset;
    while (length < limit) {
      const child = node.children.get(tokens[length]!);
      if (child === undefined) {
        break;
      }
      const common = child.commonLength(tokens, length, limit);
      length += common;
      node = child;
      if (common < child.tokenCount) {
        return { node, length, inside: common };
      }
    }
    return { node, length, inside: 0 };
  }
}
