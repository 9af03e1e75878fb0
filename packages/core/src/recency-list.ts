/** Links of an object in a `RecencyList`. Only the list writes them. */
export interface RecencyLinks<Item> {
  older: Item | undefined;
  newer: Item | undefined;
}

/**
 * Objects in order of last use. An object is in one list at most. All operations are O(1). (Finding the first entry of
 * a `Map` takes time linear in the entries deleted before it.)
 */
export class RecencyList<Item extends RecencyLinks<Item>> {
  #oldest: Item | undefined;
  #newest: Item | undefined;

  /** The least recently used one. */
  get oldest(): Item | undefined {
    return this.#oldest;
  }

  /** The most recently used one. */
  get newest(): Item | undefined {
    return this.#newest;
  }

  /** Adds an object that is in no list. It counts as used now. */
  add(item: Item): void {
    item.older = this.#newest;
    item.newer = undefined;
    if (this.#newest === undefined) this.#oldest = item;
    else this.#newest.newer = item;
    this.#newest = item;
  }

  /** Removes an object of this list. */
  remove(item: Item): void {
    const { older, newer } = item;
    if (older === undefined) this.#oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.#newest = older;
    else newer.older = older;
    // A removed object must not keep others alive.
    item.older = undefined;
    item.newer = undefined;
  }

  /** Marks an object of this list as used now. */
  use(item: Item): void {
    if (item.newer === undefined) return;
    this.remove(item);
    this.add(item);
  }

  clear(): void {
    this.#oldest = undefined;
    this.#newest = undefined;
  }
}
