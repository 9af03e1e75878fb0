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

/** Place of an item that is in no heap. */
export const ABSENT = -1;

/** A number with a key. The largest key comes first; among equal keys the smallest number. */
export interface KeyedNumber {
  readonly number: number;
  readonly key: number;
  place: number;
}

/** A heap of numbers by key. */
export function keyedHeap(): IndexedHeap<KeyedNumber> {
  return new IndexedHeap({
    before: (one, other) => one.key > other.key || (one.key === other.key && one.number < other.number),
    placeOf: ({ place }) => place,
    setPlace: (entry, place) => {
      entry.place = place;
    },
  });
}

/** The order of a heap, and access to the place stored in each item. */
export interface HeapOrder<Item> {
  before(one: Item, other: Item): boolean;
  placeOf(item: Item): number;
  setPlace(item: Item, place: number): void;
}

/** A binary heap whose items store their place, so that any item can be moved or removed. O(log items) an operation. */
export class IndexedHeap<Item> {
  readonly #order: HeapOrder<Item>;
  readonly #items: Item[] = [];

  constructor(order: HeapOrder<Item>) {
    this.#order = order;
  }

  get size(): number {
    return this.#items.length;
  }

  /** The first item. O(1). */
  get first(): Item | undefined {
    return this.#items[0];
  }

  /** Adds an item that is in no heap. */
  add(item: Item): void {
    this.#items.push(item);
    this.#rise(item, this.#items.length - 1);
  }

  /** Removes an item of this heap. */
  delete(item: Item): void {
    const place = this.#order.placeOf(item);
    this.#order.setPlace(item, ABSENT);
    const last = this.#items.pop()!;
    if (last === item) return;
    this.#order.setPlace(last, place);
    this.#items[place] = last;
    this.settle(last);
  }

  /** Moves an item of this heap to its place after its key changed. */
  settle(item: Item): void {
    this.#sink(item, this.#order.placeOf(item));
    this.#rise(item, this.#order.placeOf(item));
  }

  #rise(item: Item, from: number): void {
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!this.#order.before(item, this.#items[parent]!)) break;
      this.#put(place, this.#items[parent]!);
      place = parent;
    }
    this.#put(place, item);
  }

  #sink(item: Item, from: number): void {
    const items = this.#items;
    let place = from;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && this.#order.before(items[child + 1]!, items[child]!)) child++;
      if (!this.#order.before(items[child]!, item)) break;
      this.#put(place, items[child]!);
      place = child;
    }
    this.#put(place, item);
  }

  #put(place: number, item: Item): void {
    this.#items[place] = item;
    this.#order.setPlace(item, place);
  }
}
