import { ABSENT, keyedHeap } from '../intrusive-collections.js';
import type { Batch } from './batch.js';
import type { PlanTree } from './plan-tree.js';

/** Sets that share all symbols on the path to `node`, to be attached below it. */
export interface Group {
  readonly node: number;
  readonly sets: readonly number[];
}

/** Attaches the sets of a group below its node. */
export type FinishGroup = (group: Group) => void;

/**
 * Greedy group recursion: the document that saves most in a group (its tokens times the contexts with it, less one)
 * leads these contexts; the others are split on; recurse. This is the order of an FP-tree, chosen anew in each group.
 *
 * Groups of at most `groupLimit` sets go to `finish`, and so do sets that share nothing. O(total documents × depth +
 * splits × log documents).
 */
export function groupRecursion(tree: PlanTree, remainders: Remainders, groupLimit: number, finish: FinishGroup): void {
  const counter = new GroupCounter(tree.batch.weights, remainders);
  const pending: Group[] = [{ node: tree.root, sets: [...tree.batch.sets.keys()] }];
  for (let group = pending.pop(); group !== undefined; group = pending.pop()) {
    if (group.sets.length <= groupLimit) {
      finish(group);
      continue;
    }
    const { node, sets } = group;
    let rest = sets;
    counter.start(sets);
    while (rest.length > groupLimit) {
      const symbol = counter.takeBest();
      if (symbol < 0) break;
      const holders: number[] = [];
      const others: number[] = [];
      for (const set of rest) (remainders.take(set, symbol) ? holders : others).push(set);
      if (holders.length === sets.length && node !== tree.root) {
        tree.labels[node]!.push(symbol);
        continue;
      }
      rest = others;
      for (const set of holders) counter.subtract(set);
      const child = tree.create([symbol]);
      tree.attach(child, node);
      pending.push({ node: child, sets: holders });
    }
    counter.stop();
    if (rest.length > 0) finish({ node, sets: rest });
    tree.collapse(node);
  }
}

/** By symbol: sets of the current group that have it. Counts only fall, so the heap is corrected at its top. */
class GroupCounter {
  readonly #weights: Float64Array;
  readonly #remainders: Remainders;
  readonly #counts: Int32Array;
  #touched: number[] = [];
  #heap = keyedHeap();

  constructor(weights: Float64Array, remainders: Remainders) {
    this.#weights = weights;
    this.#remainders = remainders;
    this.#counts = new Int32Array(weights.length);
  }

  start(sets: readonly number[]): void {
    const { items, from, to } = this.#remainders;
    for (const set of sets) {
      for (let i = from[set]!; i < to[set]!; i++) {
        const symbol = items[i]!;
        if (this.#counts[symbol]!++ === 0) this.#touched.push(symbol);
      }
    }
    for (const symbol of this.#touched) this.#offer(symbol);
  }

  /** The symbol that saves most if it leads its sets, each symbol once; -1 if none saves anything. */
  takeBest(): number {
    for (let entry = this.#heap.first; entry !== undefined; entry = this.#heap.first) {
      const { number: symbol, key: stated } = entry;
      this.#heap.delete(entry);
      if (this.#saving(symbol) === stated) return symbol;
      this.#offer(symbol);
    }
    return -1;
  }

  subtract(set: number): void {
    const { items, from, to } = this.#remainders;
    for (let i = from[set]!; i < to[set]!; i++) this.#counts[items[i]!]! -= 1;
  }

  stop(): void {
    for (const symbol of this.#touched) this.#counts[symbol] = 0;
    this.#touched = [];
    this.#heap = keyedHeap();
  }

  #offer(symbol: number): void {
    const saving = this.#saving(symbol);
    if (saving > 0) this.#heap.add({ number: symbol, key: saving, place: ABSENT });
  }

  #saving(symbol: number): number {
    return (this.#counts[symbol]! - 1) * this.#weights[symbol]!;
  }
}

/** The rest of each set, while symbols move from it to the labels of a plan tree. */
export class Remainders {
  /** The rest of set `s` is `items[from[s]]` up to, not including, `items[to[s]]`. */
  readonly items: Int32Array;
  readonly from: Int32Array;
  readonly to: Int32Array;

  constructor({ items, starts, sets }: Batch) {
    this.items = items.slice();
    this.from = Int32Array.from(sets, (context) => starts[context]!);
    this.to = Int32Array.from(sets, (context) => starts[context + 1]!);
  }

  /** Removes a symbol from a set, if it is there. O(k). */
  take(set: number, symbol: number): boolean {
    const { items } = this;
    const from = this.from[set]!;
    const to = this.to[set]!;
    for (let i = from; i < to; i++) {
      if (items[i] !== symbol) continue;
      items[i] = items[from]!;
      items[from] = symbol;
      this.from[set] = from + 1;
      return true;
    }
    return false;
  }

  /** A copy of the rest of a set. */
  rest(set: number): number[] {
    return Array.from(this.items.subarray(this.from[set]!, this.to[set]!));
  }
}
