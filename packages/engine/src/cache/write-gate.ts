import type { RadixNode } from './radix-node.js';

/** Fewest nodes of a kind whose fate is known before any of the kind is left out. */
const MIN_KNOWN = 256;
/**
 * Share that must come back. Writing and reading a node costs about a hundredth of computing it, so that less than this
 * costs more than it saves.
 */
const MIN_RETURNING = 1 / 64;
/** Most nodes that are remembered until their fate is known; each takes about a hundred bytes. */
const MAX_OPEN = 16_384;

/** What became of the nodes of one kind, the latest counting most. */
interface Fates {
  known: number;
  returned: number;
}

/**
 * Which nodes that leave host memory are not worth a file: leaves that were used once, of a size of which too few come
 * back. What comes back is learned, by the power of two of the length, for a question and its answer come back more
 * seldom than a document. A node has come back when it is used again, and has not when its file gave way to others
 * first; one that was left out, when as many others were left out since as there are files. So nothing is left out
 * before the disk is full, nor where what was written once is asked for again, and what is left out in vain is noticed.
 *
 * Bounded, and without a clock or chance: the same requests give the same files.
 */
export class WriteGate {
  readonly #fates = new Map<number, Fates>();
  /** Nodes that were written when they had been used once, and those that were left out, with their kinds. */
  readonly #written = new Map<string, number>();
  readonly #leftOut = new Map<string, number>();

  /**
   * Whether a node that leaves host memory is to have a file.
   *
   * @param uses How often it was used, as far as anybody remembers.
   */
  isWorthWriting(node: RadixNode, uses: number): boolean {
    if (node.children.size > 0 || uses > 1) {
      return true;
    }
    const { known, returned } = this.#fatesOf(kindOf(node));
    return known < MIN_KNOWN || returned >= MIN_RETURNING * known;
  }

  /** A node was written. */
  wrote(node: RadixNode, uses: number): void {
    if (node.children.size === 0 && uses <= 1) {
      this.#written.set(node.pathKey(), kindOf(node));
      // What became of the oldest will not be known.
      this.#oldest(this.#written, MAX_OPEN);
    }
  }

  /** A node was left out, and there are so many files. */
  leftOut(node: RadixNode, files: number): void {
    this.#leftOut.set(node.pathKey(), kindOf(node));
    const kind = this.#oldest(this.#leftOut, Math.min(files, MAX_OPEN));
    if (kind !== undefined) {
      this.#learn(kind, 0);
    }
  }

  /** A node was used. Cost: O(tokens) the first time that it is. */
  used(node: RadixNode): void {
    if (this.#written.size + this.#leftOut.size > 0) {
      this.#decide(node, 1);
    }
  }

  /** A node's file gave way to others. */
  evicted(node: RadixNode): void {
    this.#decide(node, 0);
  }

  #decide(node: RadixNode, returned: 0 | 1): void {
    const key = node.pathKey();
    const kind = this.#written.get(key) ?? this.#leftOut.get(key);
    if (kind !== undefined) {
      this.#written.delete(key);
      this.#leftOut.delete(key);
      this.#learn(kind, returned);
    }
  }

  #learn(kind: number, returned: 0 | 1): void {
    const fates = this.#fatesOf(kind);
    fates.known++;
    fates.returned += returned;
    if (fates.known >= 4 * MIN_KNOWN) {
      fates.known /= 2;
      fates.returned /= 2;
    }
  }

  #fatesOf(kind: number): Fates {
    let fates = this.#fates.get(kind);
    if (fates === undefined) {
      fates = { known: 0, returned: 0 };
      this.#fates.set(kind, fates);
    }
    return fates;
  }

  /** Takes out the oldest where there are more than so many. */
  #oldest(open: Map<string, number>, most: number): number | undefined {
    const first = open.size > most ? open.entries().next().value : undefined;
    if (first !== undefined) {
      open.delete(first[0]);
    }
    return first?.[1];
  }
}

/** Nodes of about the same length: the power of two below it. */
function kindOf({ tokenCount }: RadixNode): number {
  return 31 - Math.clz32(tokenCount);
}
