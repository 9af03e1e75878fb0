/** Ratio of neighbouring bounds: a percentile is off by half of it at most. */
const STEP = 1.01;
const LOG_STEP = Math.log(STEP);

/**
 * Mean and percentiles of any number of values of 0 or more in constant memory: the mean exact, percentiles within half
 * a percent, from counts in steps of one percent. 0 and values below 0.001 count as 0.
 */
export class Distribution {
  /** By step; the first stands for 0. */
  readonly #counts = new Map<number, number>();
  #count = 0;
  #sum = 0;

  get count(): number {
    return this.#count;
  }

  get sum(): number {
    return this.#sum;
  }

  /** 0 for no values. */
  get mean(): number {
    return this.#count === 0 ? 0 : this.#sum / this.#count;
  }

  /** O(1). */
  add(value: number): void {
    const step = value < 0.001 ? -1 : Math.round(Math.log(value / 0.001) / LOG_STEP);
    this.#counts.set(step, (this.#counts.get(step) ?? 0) + 1);
    this.#count++;
    this.#sum += value;
  }

  /** The value at `floor(n × share)` of the sorted list, within half a percent; 0 for none. O(steps log steps). */
  percentile(share: number): number {
    const place = Math.min(this.#count - 1, Math.floor(this.#count * share));
    let before = 0;
    for (const step of [...this.#counts.keys()].sort((a, b) => a - b)) {
      before += this.#counts.get(step)!;
      if (before > place) return step < 0 ? 0 : 0.001 * STEP ** step;
    }
    return 0;
  }
}
