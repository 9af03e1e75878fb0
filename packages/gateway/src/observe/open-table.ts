/** Places at first. A power of two, as every length of the table. */
const FEWEST = 16;

/**
 * What is open at the moment, by number: a map for entries that come and go all the time. A Map of them replaces its
 * table again and again, and each table points to the next one; so once one of them is in V8's old space, all later
 * ones, and every request that they ever named, live until the next full collection (a scavenge then copies megabytes).
 * Here a table is only replaced when it must grow: linear probing, at most half full. O(1) an operation.
 */
export class OpenTable<Value extends object> {
  #numbers = new Uint32Array(FEWEST);
  #values: (Value | undefined)[] = Array.from({ length: FEWEST }, () => undefined);
  #size = 0;
  #last = 0;

  get size(): number {
    return this.#size;
  }

  /** Takes a value in, under a number of 32 bits that no other one has. */
  add(value: Value): number {
    do this.#last = (this.#last + 1) >>> 0;
    while (this.get(this.#last) !== undefined);
    this.set(this.#last, value);
    return this.#last;
  }

  /** Takes a value in under a number of 32 bits, in place of the one that has it. */
  set(number: number, value: Value): void {
    let place = this.#placeOf(number);
    if (this.#values[place] === undefined) {
      if (2 * (this.#size + 1) > this.#values.length) {
        this.#grow();
        place = this.#placeOf(number);
      }
      this.#numbers[place] = number;
      this.#size++;
    }
    this.#values[place] = value;
  }

  get(number: number): Value | undefined {
    return this.#values[this.#placeOf(number)];
  }

  /** Takes a value out; false if there is none of that number. */
  delete(number: number): boolean {
    const mask = this.#values.length - 1;
    let gap = this.#placeOf(number);
    if (this.#values[gap] === undefined) return false;
    // What was kept from its own place, or from one before the gap, moves up: a search ends at the first empty place.
    for (let place = (gap + 1) & mask; this.#values[place] !== undefined; place = (place + 1) & mask) {
      const own = this.#ownPlaceOf(this.#numbers[place]!);
      if (((place - own) & mask) < ((place - gap) & mask)) continue;
      this.#numbers[gap] = this.#numbers[place]!;
      this.#values[gap] = this.#values[place];
      gap = place;
    }
    this.#values[gap] = undefined;
    this.#size--;
    return true;
  }

  /** All values as they are now, in no order. O(the most that were ever open at once). */
  values(): Value[] {
    return this.#values.filter((value) => value !== undefined);
  }

  /** Where a number stands, or would. */
  #placeOf(number: number): number {
    const mask = this.#values.length - 1;
    let place = this.#ownPlaceOf(number);
    while (this.#values[place] !== undefined && this.#numbers[place] !== number) place = (place + 1) & mask;
    return place;
  }

  /** Multiplicative hashing with the golden ratio: numbers that are given in turn lie far apart. */
  #ownPlaceOf(number: number): number {
    return Math.imul(number, 0x9e3779b1) >>> (Math.clz32(this.#values.length) + 1);
  }

  #grow(): void {
    const [numbers, values] = [this.#numbers, this.#values];
    this.#numbers = new Uint32Array(2 * numbers.length);
    this.#values = Array.from({ length: 2 * values.length }, () => undefined);
    for (const [from, value] of values.entries()) {
      if (value === undefined) continue;
      const place = this.#placeOf(numbers[from]!);
      this.#numbers[place] = numbers[from]!;
      this.#values[place] = value;
    }
  }
}
