/** Documents of a set at most: a subset is a mask of 16 bits. */
const MAX_DOCUMENTS = 16;

/** Subsets of all sets together, each of which takes some ten bytes here and as many where it has a price. */
const MAX_SUBSETS = 2 ** 23;

/** Masks that are counted for all sets together: some seconds. */
const MAX_MASKS = 2 ** 27;

/** One step of the way from nothing to a set: the subset that is reached, by its slot, and the document it adds. */
export interface ChainStep {
  readonly slot: number;
  /** Place of the document in the set. */
  readonly place: number;
}

/** The sets that hold one subset: their numbers, and the subset's slot in each. */
export interface Holders {
  readonly sets: Int32Array;
  readonly slots: Int32Array;
}

/**
 * Of every set, the subsets that another set holds too: what a path can share. A subset is a mask by place in its set;
 * `masks[set]` are in ascending order, so that each stands behind all that it holds, and a slot is an index into it.
 */
export class SharedSubsets {
  readonly sets: readonly (readonly number[])[];
  /** By document. */
  readonly weights: readonly number[];
  readonly masks: readonly Uint16Array[];
  /** By set, for each of its masks: how many sets hold it. */
  readonly counts: readonly Int32Array[];
  /** By document: the sets that hold it, and its place in them. */
  readonly #lists = new Map<number, { readonly set: number; readonly place: number }[]>();
  readonly #holders = new Map<string, Holders>();
  /** Scratch memory by mask, of which 0 stays 0, by place, and by set. */
  readonly #cost = new Float64Array(1 << MAX_DOCUMENTS);
  readonly #tokens = new Float64Array(1 << MAX_DOCUMENTS);
  readonly #setWeights = new Float64Array(MAX_DOCUMENTS);
  readonly #seen: Int32Array;
  readonly #mask: Int32Array;

  private constructor(sets: readonly (readonly number[])[], weights: readonly number[]) {
    this.sets = sets;
    this.weights = weights;
    this.#seen = new Int32Array(sets.length);
    this.#mask = new Int32Array(sets.length);
    for (const [set, documents] of sets.entries()) {
      for (const [place, document] of documents.entries()) {
        const list = this.#lists.get(document);
        if (list === undefined) this.#lists.set(document, [{ set, place }]);
        else list.push({ set, place });
      }
    }
    const masks: Uint16Array[] = [];
    const counts: Int32Array[] = [];
    this.masks = masks;
    this.counts = counts;
    let total = 0;
    for (const documents of sets) {
      const found = this.#subsetsOf(documents);
      masks.push(found.masks);
      counts.push(found.counts);
      total += found.masks.length;
      if (total > MAX_SUBSETS) break;
    }
  }

  /**
   * The shared subsets of all sets; `undefined` if a set has more than 16 documents, or all have too many subsets. Sets
   * are sorted, none twice. O(sets² × k + sets × k 2^k).
   */
  static of(sets: readonly (readonly number[])[], weights: readonly number[]): SharedSubsets | undefined {
    if (sets.some(({ length }) => length > MAX_DOCUMENTS)) return undefined;
    if (sets.reduce((sum, { length }) => sum + 2 ** length, 0) > MAX_MASKS) return undefined;
    const subsets = new SharedSubsets(sets, weights);
    return subsets.masks.length < sets.length ? undefined : subsets;
  }

  /**
   * The cheapest way from nothing to a set, one document at a time, where a step costs its document's weight times the
   * price of the subset that it reaches, and a subset that no other set holds is paid in full. O(subsets × k).
   */
  cheapestChain(set: number, prices: Float64Array): { readonly cost: number; readonly steps: readonly ChainStep[] } {
    const masks = this.masks[set]!;
    const weights = this.#setWeights;
    const cost = this.#cost;
    const tokens = this.#tokens;
    let all = 0;
    for (const [place, document] of this.sets[set]!.entries()) all += weights[place] = this.weights[document]!;
    let least = all;
    let end = 0;
    for (let slot = 0; slot < masks.length; slot++) {
      const mask = masks[slot]!;
      const price = prices[slot]!;
      let best = Number.POSITIVE_INFINITY;
      for (let left = mask; left !== 0; left &= left - 1) {
        const bit = left & -left;
        const value = cost[mask ^ bit]! + price * weights[31 - Math.clz32(bit)]!;
        if (value < best) best = value;
      }
      cost[mask] = best;
      // What a set shares, it shares without its first document too: that mask was here before.
      tokens[mask] = tokens[mask & (mask - 1)]! + weights[31 - Math.clz32(mask & -mask)]!;
      const whole = best + all - tokens[mask]!;
      if (whole >= least) continue;
      least = whole;
      end = mask;
    }
    const steps: ChainStep[] = [];
    for (let mask = end; mask !== 0; ) {
      const slot = this.slotOf(set, mask);
      const place = this.#lastPlace(mask, prices[slot]!);
      steps.push({ slot, place });
      mask ^= 1 << place;
    }
    return { cost: least, steps: steps.reverse() };
  }

  /** The place of the document that the cheapest way to a mask adds last. Right behind its cost is known. */
  #lastPlace(mask: number, price: number): number {
    let best = Number.POSITIVE_INFINITY;
    let last = 0;
    for (let left = mask; left !== 0; left &= left - 1) {
      const place = 31 - Math.clz32(left & -left);
      const value = this.#cost[mask ^ (1 << place)]! + price * this.#setWeights[place]!;
      if (value < best) [best, last] = [value, place];
    }
    return last;
  }

  /** The slot of a mask that is one of the set's. O(log subsets). */
  slotOf(set: number, mask: number): number {
    const masks = this.masks[set]!;
    let low = 0;
    let high = masks.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (masks[middle]! < mask) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The sets that hold a subset. Remembered by subset. O(lists of its documents). */
  holdersOf(set: number, slot: number): Holders {
    const documents = this.#documentsOf(set, this.masks[set]![slot]!);
    const key = documents.join();
    const known = this.#holders.get(key);
    if (known !== undefined) return known;
    const seen = this.#seen;
    const mask = this.#mask;
    for (const [depth, document] of documents.entries()) {
      for (const holder of this.#lists.get(document)!) {
        if (depth === 0) mask[holder.set] = 0;
        else if (seen[holder.set] !== depth) continue;
        seen[holder.set] = depth + 1;
        mask[holder.set]! |= 1 << holder.place;
      }
    }
    const sets: number[] = [];
    for (const holder of this.#lists.get(documents.at(-1)!)!) {
      if (seen[holder.set] === documents.length) sets.push(holder.set);
    }
    for (const document of documents) for (const holder of this.#lists.get(document)!) seen[holder.set] = 0;
    const slots = sets.map((holder) => this.slotOf(holder, mask[holder]!));
    const holders = { sets: Int32Array.from(sets), slots: Int32Array.from(slots) };
    this.#holders.set(key, holders);
    return holders;
  }

  #documentsOf(set: number, mask: number): readonly number[] {
    return this.sets[set]!.filter((_, place) => (mask >> place) & 1);
  }

  /** Counts what every set has in common with this one, then adds up over all larger masks. */
  #subsetsOf(documents: readonly number[]): { readonly masks: Uint16Array; readonly counts: Int32Array } {
    const common = this.#mask.fill(0);
    for (const [place, document] of documents.entries()) {
      for (const { set } of this.#lists.get(document)!) common[set]! |= 1 << place;
    }
    const counts = new Int32Array(1 << documents.length);
    for (const mask of common) counts[mask]!++;
    for (let bit = 1; bit < counts.length; bit <<= 1) {
      for (let mask = 0; mask < counts.length; mask++) if ((mask & bit) === 0) counts[mask]! += counts[mask | bit]!;
    }
    const masks: number[] = [];
    for (let mask = 1; mask < counts.length; mask++) if (counts[mask]! > 1) masks.push(mask);
    return { masks: Uint16Array.from(masks), counts: Int32Array.from(masks, (mask) => counts[mask]!) };
  }
}
