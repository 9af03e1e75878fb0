import { DOCUMENT, NODE_SHIFT, PARENT } from './node-store.js';

/** A slot is two integers: the full hash of (node, document), and the child; child 0 (the root) means empty. */
const SLOT_SHIFT = 1;

/**
 * Open-addressing hash table from (node, document number) to the child node. Linear probing; deletion moves later
 * entries back, so there are no tombstones and probes stay short for ever. At most half full. The stored hash spares a
 * look at the node (a cache line elsewhere) for nearly all probes that end in nothing.
 */
export class ChildTable {
  #slots: Int32Array;
  #mask: number;

  /** For up to `nodes` children. */
  constructor(nodes: number) {
    const slots = slotsFor(nodes);
    this.#slots = new Int32Array(slots << SLOT_SHIFT);
    this.#mask = slots - 1;
  }

  /** Bytes of a table for `nodes` children. */
  static bytesFor(nodes: number): number {
    return (slotsFor(nodes) << SLOT_SHIFT) * Int32Array.BYTES_PER_ELEMENT;
  }

  /** The child of `node` for `document`, or -1. O(1) expected, no allocation. */
  find(records: Int32Array, node: number, document: number): number {
    const slots = this.#slots;
    const hash = hashOf(node, document);
    let slot = hash & this.#mask;
    for (;;) {
      const child = slots[(slot << SLOT_SHIFT) + 1]!;
      if (child === 0) return -1;
      if (slots[slot << SLOT_SHIFT] === hash) {
        const record = child << NODE_SHIFT;
        if (records[record + PARENT] === node && records[record + DOCUMENT] === document) return child;
      }
      slot = (slot + 1) & this.#mask;
    }
  }

  /** Adds a child that is not there yet. O(1) expected. */
  add(node: number, document: number, child: number): void {
    this.#put(hashOf(node, document), child);
  }

  /** Takes a child out that is there. O(1) expected. */
  remove(node: number, document: number, child: number): void {
    const slots = this.#slots;
    let hole = hashOf(node, document) & this.#mask;
    while (slots[(hole << SLOT_SHIFT) + 1] !== child) hole = (hole + 1) & this.#mask;
    for (let slot = (hole + 1) & this.#mask; slots[(slot << SLOT_SHIFT) + 1] !== 0; slot = (slot + 1) & this.#mask) {
      const home = slots[slot << SLOT_SHIFT]! & this.#mask;
      // An entry may move back only if its home does not lie between the hole and itself.
      if (((slot - home) & this.#mask) < ((slot - hole) & this.#mask)) continue;
      slots[hole << SLOT_SHIFT] = slots[slot << SLOT_SHIFT]!;
      slots[(hole << SLOT_SHIFT) + 1] = slots[(slot << SLOT_SHIFT) + 1]!;
      hole = slot;
    }
    slots[hole << SLOT_SHIFT] = 0;
    slots[(hole << SLOT_SHIFT) + 1] = 0;
  }

  /** Makes room for up to `nodes` children. O(table). */
  grow(nodes: number): void {
    const old = this.#slots;
    const slots = slotsFor(nodes);
    this.#slots = new Int32Array(slots << SLOT_SHIFT);
    this.#mask = slots - 1;
    for (let i = 0; i < old.length; i += 2) {
      if (old[i + 1] !== 0) this.#put(old[i]!, old[i + 1]!);
    }
  }

  #put(hash: number, child: number): void {
    const slots = this.#slots;
    let slot = hash & this.#mask;
    while (slots[(slot << SLOT_SHIFT) + 1] !== 0) slot = (slot + 1) & this.#mask;
    slots[slot << SLOT_SHIFT] = hash;
    slots[(slot << SLOT_SHIFT) + 1] = child;
  }
}

/** The smallest power of two that leaves the table at most half full. */
function slotsFor(nodes: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(2, 2 * nodes)));
}

function hashOf(node: number, document: number): number {
  let hash = Math.imul(node, 0x9e3779b1) ^ Math.imul(document, 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return hash ^ (hash >>> 13);
}
