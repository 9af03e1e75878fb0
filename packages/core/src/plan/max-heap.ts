/** A binary heap of numbered items, the largest key on top; among equal keys the smallest item. O(log n) a change. */
export class MaxHeap {
  readonly #items: number[] = [];
  readonly #keys: number[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** The item with the largest key, or -1 if the heap is empty. */
  top(): number {
    return this.#items[0] ?? -1;
  }

  /** The largest key; 0 if the heap is empty. */
  topKey(): number {
    return this.#keys[0] ?? 0;
  }

  push(item: number, key: number): void {
    let at = this.#items.push(item) - 1;
    this.#keys.push(key);
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!this.#before(item, key, above)) break;
      this.#move(above, at);
      at = above;
    }
    this.#items[at] = item;
    this.#keys[at] = key;
  }

  /** Removes the top, if there is one. */
  pop(): void {
    const item = this.#items.pop();
    const key = this.#keys.pop();
    const size = this.#items.length;
    if (item === undefined || key === undefined || size === 0) return;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= size) break;
      if (below + 1 < size && this.#before(this.#items[below + 1]!, this.#keys[below + 1]!, below)) below++;
      if (this.#before(item, key, below)) break;
      this.#move(below, at);
      at = below;
    }
    this.#items[at] = item;
    this.#keys[at] = key;
  }

  #before(item: number, key: number, other: number): boolean {
    const otherKey = this.#keys[other]!;
    return key > otherKey || (key === otherKey && item < this.#items[other]!);
  }

  #move(from: number, to: number): void {
    this.#items[to] = this.#items[from]!;
    this.#keys[to] = this.#keys[from]!;
  }
}
