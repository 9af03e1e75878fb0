/**
 * The best `capacity` rows that a search has seen, sorted, each once expanded or not: the beam of a graph search and
 * the result of a scan in one. Equal scores keep the order in which they came.
 */
export class CandidatePool {
  capacity: number;
  size = 0;
  scores: Float32Array;
  /** Twice the row's number, plus one when it was expanded. */
  #entries: Int32Array;
  /** No entry before this one is unexpanded. */
  #cursor = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.scores = new Float32Array(capacity);
    this.#entries = new Int32Array(capacity);
  }

  /** Empties the pool. Arrays only grow. */
  reset(capacity: number): void {
    if (capacity > this.scores.length) {
      this.scores = new Float32Array(capacity);
      this.#entries = new Int32Array(capacity);
    }
    this.capacity = capacity;
    this.size = 0;
    this.#cursor = 0;
  }

  /** The score below which nothing is taken. */
  get threshold(): number {
    return this.size < this.capacity ? Number.NEGATIVE_INFINITY : this.scores[this.size - 1]!;
  }

  row(position: number): number {
    return this.#entries[position]! >> 1;
  }

  /** Takes a row that is not in the pool, if it is good enough. O(log capacity + places moved). */
  add(row: number, score: number): void {
    const { scores } = this;
    const entries = this.#entries;
    let { size } = this;
    if (size === this.capacity) {
      if (score <= scores[size - 1]!) return;
      size--;
    }
    let low = 0;
    let high = size;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (scores[middle]! >= score) low = middle + 1;
      else high = middle;
    }
    for (let i = size; i > low; i--) {
      scores[i] = scores[i - 1]!;
      entries[i] = entries[i - 1]!;
    }
    scores[low] = score;
    entries[low] = row << 1;
    this.size = size + 1;
    if (low < this.#cursor) this.#cursor = low;
  }

  /** Marks the best row that was not expanded, and returns it; -1 if there is none. */
  expandNext(): number {
    const entries = this.#entries;
    let cursor = this.#cursor;
    while (cursor < this.size && (entries[cursor]! & 1) === 1) cursor++;
    this.#cursor = cursor;
    if (cursor === this.size) return -1;
    entries[cursor] = entries[cursor]! | 1;
    return entries[cursor]! >> 1;
  }
}
