import type { ResidencyView } from '../residency/view.js';
import { OPERATIONS_A_LOOK_UP, preambleNode } from '../tree/best-path.js';
import type { ConstraintRule } from './placement.js';
import type { Context } from './policy.js';

const FIRST_ROOM = 256;

/** Documents of a context at most, and so the depth of a path. */
const MAX_DOCUMENTS = 32;

/** Up to this many documents, the longest path within each set is tabled. */
const TABLED_DOCUMENTS = 8;

/**
 * All paths of the knowledge tree that use only documents of one context, the empty path included: as sets (bit masks
 * by retrieval rank), tokens, and whether the constraints allow them. In lexicographic order of ranks.
 *
 * Flat arrays that are reused: one instance serves call after call and must not be re-entered.
 */
export class CachedPaths {
  /** Paths found; path 0 is empty. */
  count = 0;
  /** Look-ups made by the last `collect`; checks of the constraints count by the operations they take. */
  lookUps = 0;
  sets = new Int32Array(FIRST_ROOM);
  tokens = new Int32Array(FIRST_ROOM);
  /** Places by which a path's documents stand away from their retrieval ranks. */
  moves = new Int32Array(FIRST_ROOM);
  /** 1 where the constraints allow the path. */
  allowed = new Uint8Array(FIRST_ROOM);
  /** The path without its last document, and that document's rank. */
  #above = new Int32Array(FIRST_ROOM);
  #last = new Int32Array(FIRST_ROOM);
  readonly #numbers = new Int32Array(MAX_DOCUMENTS);
  readonly #lengths = new Int32Array(MAX_DOCUMENTS);
  /** By depth and rank: the children of the nodes on the current path. */
  readonly #children = new Int32Array(MAX_DOCUMENTS * MAX_DOCUMENTS);
  /** By set: tokens of the longest path within it. */
  readonly #longest = new Int32Array(1 << TABLED_DOCUMENTS);
  #isTabled = false;
  readonly #prefix: number[] = [];
  #known = 0;
  #documents = 0;
  #view: ResidencyView | undefined;
  #rule: ConstraintRule | undefined;
  #maxLookUps = 0;

  /**
   * Collects the paths of up to 30 documents behind the preamble. False if that takes more than `maxLookUps` look-ups.
   * O(paths × documents).
   */
  collect(context: Context, view: ResidencyView, rule: ConstraintRule | undefined, maxLookUps: number): boolean {
    const { documents, preamble } = context;
    const { tree } = view;
    const start = preambleNode(tree, preamble);
    this.count = 1;
    this.sets[0] = 0;
    this.tokens[0] = 0;
    this.moves[0] = 0;
    this.allowed[0] = 1;
    this.lookUps = 0;
    this.#known = 0;
    this.#isTabled = false;
    if (start < 0) return true;
    this.#view = view;
    this.#rule = rule;
    this.#documents = documents.length;
    this.#maxLookUps = maxLookUps;
    let ranks = 0;
    for (let rank = 0; rank < documents.length; rank++) {
      this.#numbers[rank] = tree.numberOf(documents[rank]!.key);
      this.#lengths[rank] = documents[rank]!.tokens;
      if (this.#numbers[rank]! >= 0) ranks |= 1 << rank;
    }
    this.#known = ranks;
    this.#prefix.length = 0;
    this.#extend(0, start, 0);
    this.#view = undefined;
    this.#rule = undefined;
    if (this.lookUps > maxLookUps) return false;
    if (documents.length <= TABLED_DOCUMENTS) this.#tableLongest(documents.length);
    return true;
  }

  /** Tokens of the longest path that uses only documents of `set`. O(1) for up to 8 documents, else O(paths). */
  longestWithin(set: number): number {
    if (this.#isTabled) return this.#longest[set]!;
    let longest = 0;
    for (let path = 1; path < this.count; path++) {
      if ((this.sets[path]! & ~set) === 0 && this.tokens[path]! > longest) longest = this.tokens[path]!;
    }
    return longest;
  }

  /** The ranks along a path, in order. O(depth), allocates the answer. */
  ranksOf(path: number): number[] {
    const ranks: number[] = [];
    for (let at = path; at !== 0; at = this.#above[at]!) ranks.push(this.#last[at]!);
    return ranks.reverse();
  }

  #tableLongest(documents: number): void {
    const longest = this.#longest;
    const sets = 1 << documents;
    longest.fill(0, 0, sets);
    for (let path = 1; path < this.count; path++) {
      const set = this.sets[path]!;
      if (this.tokens[path]! > longest[set]!) longest[set] = this.tokens[path]!;
    }
    for (let bit = 1; bit < sets; bit <<= 1) {
      for (let set = 0; set < sets; set++) {
        if ((set & bit) !== 0 && longest[set ^ bit]! > longest[set]!) longest[set] = longest[set ^ bit]!;
      }
    }
    this.#isTabled = true;
  }

  #extend(path: number, node: number, depth: number): void {
    const tree = this.#view!.tree;
    const left = this.#known & ~this.sets[path]!;
    if (left === 0) return;
    this.lookUps += tree.lookUpsAmong(node, left);
    if (this.lookUps > this.#maxLookUps) return;
    const from = depth * MAX_DOCUMENTS;
    const found = tree.childrenAmong(node, this.#numbers, left, this.#children, from);
    for (let ranks = found; ranks !== 0; ranks &= ranks - 1) {
      const rank = 31 - Math.clz32(ranks & -ranks);
      this.#visit(path, rank, this.#children[from + rank]!, depth);
      if (this.lookUps > this.#maxLookUps) return;
    }
  }

  #visit(above: number, rank: number, node: number, depth: number): void {
    if (this.count === this.sets.length) this.#grow();
    const path = this.count++;
    this.sets[path] = this.sets[above]! | (1 << rank);
    this.tokens[path] = this.tokens[above]! + this.#lengths[rank]!;
    this.moves[path] = this.moves[above]! + Math.abs(depth - rank);
    this.#above[path] = above;
    this.#last[path] = rank;
    const rule = this.#rule;
    if (rule === undefined) {
      this.allowed[path] = 1;
    } else {
      this.allowed[path] = this.allowed[above] === 1 && rule.allows(this.#prefix, rank) ? 1 : 0;
      this.lookUps += this.#documents / OPERATIONS_A_LOOK_UP;
    }
    this.#prefix.push(rank);
    this.#extend(path, node, depth + 1);
    this.#prefix.pop();
  }

  #grow(): void {
    const room = 2 * this.sets.length;
    this.sets = enlarged(this.sets, room);
    this.tokens = enlarged(this.tokens, room);
    this.moves = enlarged(this.moves, room);
    this.#above = enlarged(this.#above, room);
    this.#last = enlarged(this.#last, room);
    const allowed = new Uint8Array(room);
    allowed.set(this.allowed);
    this.allowed = allowed;
  }
}

function enlarged(array: Int32Array, room: number): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(room);
  larger.set(array);
  return larger;
}
