/**
 * The layout of a node: 64 bytes, one cache line, in one flat buffer, so that a walk costs one memory access a node and
 * the garbage collector never sees the tree. Twelve 32-bit integers, then two 64-bit floats.
 */
export const NODE_SHIFT = 4;
export const PARENT = 0;
/** Number of the document in the interner. */
export const DOCUMENT = 1;
export const FIRST_CHILD = 2;
export const NEXT_SIBLING = 3;
export const PREVIOUS_SIBLING = 4;
export const CHILDREN = 5;
/** Tokens of this document alone. */
export const TOKENS = 6;
/** Requests that were served along this node. */
export const HITS = 7;
/** Neighbours in the list of all nodes by last use. */
export const NEWER = 8;
export const OLDER = 9;
/** See `ResidencyMark`. */
export const MARK = 10;
/** Document number of FIRST_CHILD, so that most walks that end here end without touching the child. */
export const FIRST_DOCUMENT = 11;

const FLOAT_SHIFT = 3;
const LAST_ACCESS = 6;
const LAST_TIME = 7;

const BYTES_PER_NODE = 64;

/**
 * Longer sibling lists are not followed: their nodes wait for each other's cache lines, probes of the table overlap
 * (measured).
 */
export const SCAN_UP_TO = 8;

/** Node 0 is the root; in the links of a node, 0 therefore means none. */
export const ROOT = 0;

/**
 * Allocates nodes in one growing buffer and keeps a free list. Knows nothing of trees but the layout.
 */
export class NodeStore {
  /** Replaced when the store grows: read it anew after `allocate`. */
  records: Int32Array;
  #floats: Float64Array;
  #capacity: number;
  #unused = 1;
  /** Freed nodes, linked through NEXT_SIBLING. */
  #free = 0;
  #size = 0;

  /** Room for `capacity` nodes beside the root. */
  constructor(capacity: number) {
    const buffer = new ArrayBuffer((capacity + 1) * BYTES_PER_NODE);
    this.records = new Int32Array(buffer);
    this.#floats = new Float64Array(buffer);
    this.#capacity = capacity;
  }

  /** Nodes in use, the root not counted. */
  get size(): number {
    return this.#size;
  }

  get capacity(): number {
    return this.#capacity;
  }

  /** Bytes of a store for `capacity` nodes beside the root. */
  static bytesFor(capacity: number): number {
    return (capacity + 1) * BYTES_PER_NODE;
  }

  /** Makes room for `capacity` nodes; the old buffer is copied. O(nodes). */
  grow(capacity: number): void {
    const buffer = new ArrayBuffer((capacity + 1) * BYTES_PER_NODE);
    const records = new Int32Array(buffer);
    records.set(this.records);
    this.records = records;
    this.#floats = new Float64Array(buffer);
    this.#capacity = capacity;
  }

  /** A zeroed node. There must be room. O(1). */
  allocate(): number {
    this.#size++;
    if (this.#free === 0) return this.#unused++;
    const node = this.#free;
    const record = node << NODE_SHIFT;
    this.#free = this.records[record + NEXT_SIBLING]!;
    this.records.fill(0, record, record + (1 << NODE_SHIFT));
    return node;
  }

  /** Gives a node back. O(1). */
  release(node: number): void {
    this.#size--;
    this.records[(node << NODE_SHIFT) + NEXT_SIBLING] = this.#free;
    this.#free = node;
  }

  /** Number of the insertion that used the node last. */
  lastAccess(node: number): number {
    return this.#floats[(node << FLOAT_SHIFT) + LAST_ACCESS]!;
  }

  /** Time of the last use, in milliseconds of the caller's clock. */
  lastTime(node: number): number {
    return this.#floats[(node << FLOAT_SHIFT) + LAST_TIME]!;
  }

  setLastUse(node: number, access: number, time: number): void {
    this.#floats[(node << FLOAT_SHIFT) + LAST_ACCESS] = access;
    this.#floats[(node << FLOAT_SHIFT) + LAST_TIME] = time;
  }
}
