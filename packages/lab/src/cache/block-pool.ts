/** A physical block. Free blocks stand in a queue; those with a key can still be found. */
export interface Block {
  /** What it holds behind all blocks before it; undefined if that is nothing to be found. */
  key: number | undefined;
  /** The next block with the same key, where it was computed twice. */
  twin: Block | undefined;
  before: Block | undefined;
  after: Block | undefined;
  /** Prompts under way that use it; free at 0. */
  users: number;
}

/**
 * The blocks of a KV cache and the queue of free ones, least recently freed first. Blocks that were never used count
 * but do not exist, so that an unlimited pool costs what is used. All operations O(1).
 */
export class BlockPool {
  readonly capacity: number;
  #unused: number;
  #first: Block | undefined;
  #last: Block | undefined;
  #free: number;
  #created = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.#unused = capacity;
    this.#free = capacity;
  }

  /** Blocks that can be taken. */
  get free(): number {
    return this.#free;
  }

  /** Blocks that were used at least once. */
  get touched(): number {
    return this.#created;
  }

  /**
   * Takes the block that stood in the queue longest, unused ones first, for one user; undefined if none is free. Its
   * key is still set.
   */
  take(): Block | undefined {
    if (this.#unused > 0) {
      this.#unused--;
      this.#free--;
      this.#created++;
      return { key: undefined, twin: undefined, before: undefined, after: undefined, users: 1 };
    }
    const block = this.#first;
    if (block !== undefined) this.reserve(block);
    return block;
  }

  /** Adds a user; a free block leaves the queue. */
  reserve(block: Block): void {
    block.users++;
    if (block.users > 1) return;
    if (block.before === undefined) this.#first = block.after;
    else block.before.after = block.after;
    if (block.after === undefined) this.#last = block.before;
    else block.after.before = block.before;
    block.before = undefined;
    block.after = undefined;
    this.#free--;
  }

  /** Takes a user away; the last one's leaving puts the block at the end of the queue. */
  release(block: Block): void {
    block.users--;
    if (block.users > 0) return;
    block.before = this.#last;
    if (this.#last === undefined) this.#first = block;
    else this.#last.after = block;
    this.#last = block;
    this.#free++;
  }
}
