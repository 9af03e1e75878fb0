import type { Batch } from './batch.js';

/** What is left of every set while its symbols are dealt out from the root of a plan tree down. */
export class Remainders {
  /** Set `s` still has `items[from[s]]` up to, not including, `items[to[s]]`. */
  readonly items: Int32Array;
  readonly from: Int32Array;
  readonly to: Int32Array;

  constructor({ items, starts, sets }: Batch) {
    this.items = items.slice();
    this.from = Int32Array.from(sets, (context) => starts[context]!);
    this.to = Int32Array.from(sets, (context) => starts[context + 1]!);
  }

  /** Takes a symbol out of a set, if it is there. Cost: O(k). */
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

  /** A copy of what is left of a set. */
  rest(set: number): number[] {
    return Array.from(this.items.subarray(this.from[set]!, this.to[set]!));
  }
}
