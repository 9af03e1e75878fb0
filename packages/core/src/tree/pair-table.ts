/** Integers of a slot: the two halves of the key, and the value; value 0 means empty. */
const SLOT = 3;

/**
 * Open-addressing hash table from a pair of 32-bit integers to a positive integer, in one flat array. Linear probing;
 * deletion moves later entries back, so there are no tombstones and probes stay short for ever. At most half full.
 * A probe touches one cache line as a rule; nothing allocates but growth.
 */
export class PairTable {
  #slots: Int32Array;
  #mask: number;

  /** For up to `entries` entries. */
  constructor(entries: number) {
    const slots = slotsFor(entries);
    this.#slots = new Int32Array(slots * SLOT);
    this.#mask = slots - 1;
  }

  /** Bytes of a table for `entries` entries. */
  static bytesFor(entries: number): number {
    return slotsFor(entries) * SLOT * Int32Array.BYTES_PER_ELEMENT;
  }

  /** Bytes of this table. */
  get bytes(): number {
    return this.#slots.byteLength;
  }

  /** The value of a key, or 0. O(1) expected. */
  get(first: number, second: number): number {
    const slots = this.#slots;
    const mask = this.#mask;
    let slot = hashOf(first, second) & mask;
    for (;;) {
      const at = slot * SLOT;
      const value = slots[at + 2]!;
      if (value === 0 || (slots[at] === first && slots[at + 1] === second)) return value;
      slot = (slot + 1) & mask;
    }
  }

  /** Loads the slot where a key would be found first: a prefetch, since loads without a branch between them overlap. */
  preload(first: number, second: number): number {
    return this.#slots[(hashOf(first, second) & this.#mask) * SLOT]!;
  }

  /** Adds a key that is not there yet. There must be room. O(1) expected. */
  add(first: number, second: number, value: number): void {
    const slots = this.#slots;
    let slot = hashOf(first, second) & this.#mask;
    while (slots[slot * SLOT + 2] !== 0) slot = (slot + 1) & this.#mask;
    slots[slot * SLOT] = first;
    slots[slot * SLOT + 1] = second;
    slots[slot * SLOT + 2] = value;
  }

  /** Takes a key out that is there. O(1) expected. */
  remove(first: number, second: number): void {
    const slots = this.#slots;
    const mask = this.#mask;
    let hole = hashOf(first, second) & mask;
    while (slots[hole * SLOT] !== first || slots[hole * SLOT + 1] !== second) hole = (hole + 1) & mask;
    for (let slot = (hole + 1) & mask; slots[slot * SLOT + 2] !== 0; slot = (slot + 1) & mask) {
      const home = hashOf(slots[slot * SLOT]!, slots[slot * SLOT + 1]!) & mask;
      // An entry may move back only if its home does not lie between the hole and itself.
      if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
      slots.copyWithin(hole * SLOT, slot * SLOT, (slot + 1) * SLOT);
      hole = slot;
    }
    slots.fill(0, hole * SLOT, (hole + 1) * SLOT);
  }

  /** Makes room for up to `entries` entries. O(table). */
  grow(entries: number): void {
    const old = this.#slots;
    const slots = slotsFor(entries);
    this.#slots = new Int32Array(slots * SLOT);
    this.#mask = slots - 1;
    for (let at = 0; at < old.length; at += SLOT) {
      if (old[at + 2] !== 0) this.add(old[at]!, old[at + 1]!, old[at + 2]!);
    }
  }
}

/** The smallest power of two that leaves the table at most half full. */
function slotsFor(entries: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(2, 2 * entries)));
}

function hashOf(first: number, second: number): number {
  let hash = Math.imul(first, 0x9e3779b1) ^ Math.imul(second, 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return hash ^ (hash >>> 13);
}
