const ABSENT = -1;

/**
 * The nodes of one tier that may be evicted, lowest priority first; of equals, the one whose priority was set longest
 * ago. A binary heap over node handles in typed arrays: O(log candidates) an operation, 20 bytes a handle and 4 a
 * candidate.
 *
 * Handles are small whole numbers; memory grows with the largest.
 */
export class EvictionQueue {
  #priorities = new Float64Array(0);
  /** When the priority was set: the number of the setting. */
  #settings = new Float64Array(0);
  /** Place in the heap, or `ABSENT`. */
  #places = new Int32Array(0);
  #heap = new Int32Array(16);
  #size = 0;
  #settled = 0;
  #clock = 0;

  /** Nodes that may be evicted. */
  get size(): number {
    return this.#size;
  }

  /** The highest priority that was evicted; starts at 0 and never falls. */
  get clock(): number {
    return this.#clock;
  }

  /** Gives a node its priority, whether or not it may be evicted now. */
  setPriority(node: number, priority: number): void {
    this.#ensure(node);
    this.#priorities[node] = priority;
    this.#settings[node] = ++this.#settled;
    const place = this.#places[node]!;
    if (place === ABSENT) return;
    this.#sink(place);
    this.#rise(this.#places[node]!);
  }

  /** The node may be evicted from now on. Its priority must have been set. */
  offer(node: number): void {
    if (this.#places[node]! !== ABSENT) return;
    if (this.#size === this.#heap.length) this.#heap = grown(this.#heap, this.#size + 1);
    this.#put(this.#size++, node);
    this.#rise(this.#size - 1);
  }

  /** The node may not be evicted any more; nothing happens if it could not. */
  withdraw(node: number): void {
    const place = this.#places[node] ?? ABSENT;
    if (place === ABSENT) return;
    this.#places[node] = ABSENT;
    const last = this.#heap[--this.#size]!;
    if (last === node) return;
    this.#put(place, last);
    this.#sink(place);
    this.#rise(this.#places[last]!);
  }

  /** The candidate of lowest priority, which stays. O(1). */
  lowest(): number | undefined {
    return this.#size === 0 ? undefined : this.#heap[0];
  }

  /** Takes out the candidate of lowest priority and moves the clock up to it. */
  evict(): number | undefined {
    const node = this.lowest();
    if (node === undefined) return undefined;
    this.#clock = Math.max(this.#clock, this.#priorities[node]!);
    this.withdraw(node);
    return node;
  }

  #ensure(node: number): void {
    const known = this.#places.length;
    if (node < known) return;
    this.#priorities = grown(this.#priorities, node + 1);
    this.#settings = grown(this.#settings, node + 1);
    this.#places = grown(this.#places, node + 1);
    this.#places.fill(ABSENT, known);
  }

  #rise(from: number): void {
    const node = this.#heap[from]!;
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!this.#before(node, this.#heap[parent]!)) break;
      this.#put(place, this.#heap[parent]!);
      place = parent;
    }
    this.#put(place, node);
  }

  #sink(from: number): void {
    const node = this.#heap[from]!;
    let place = from;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= this.#size) break;
      if (child + 1 < this.#size && this.#before(this.#heap[child + 1]!, this.#heap[child]!)) child++;
      if (!this.#before(this.#heap[child]!, node)) break;
      this.#put(place, this.#heap[child]!);
      place = child;
    }
    this.#put(place, node);
  }

  #put(place: number, node: number): void {
    this.#heap[place] = node;
    this.#places[node] = place;
  }

  #before(a: number, b: number): boolean {
    const difference = this.#priorities[a]! - this.#priorities[b]!;
    return difference < 0 || (difference === 0 && this.#settings[a]! < this.#settings[b]!);
  }
}

/** A larger copy with room for at least `length` values; at least doubled, so that growth is O(1) a value. */
export function grown<Values extends Float64Array<ArrayBuffer> | Int32Array<ArrayBuffer>>(
  values: Values,
  length: number,
): Values {
  const Typed = values.constructor as new (length: number) => Values;
  const larger = new Typed(Math.max(length, values.length * 2, 16));
  larger.set(values);
  return larger;
}
