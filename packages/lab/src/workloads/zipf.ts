import { MersenneTwister } from './mersenne-twister.js';
import type { Trace } from './trace.js';

/** Size and skew of a Zipf trace. */
export interface ZipfOptions {
  readonly documents: number;
  readonly requests: number;
  readonly k: number;
  /** The i-th document has weight `i^-exponent`. */
  readonly exponent: number;
}

/** Draws numbers 0, 1, 2, … with probability proportional to `(number + 1)^-exponent`. */
export class ZipfDistribution {
  readonly #cumulative: readonly number[];

  constructor(size: number, exponent: number) {
    let sum = 0;
    this.#cumulative = Array.from({ length: size }, (_, i) => {
      sum += (i + 1) ** -exponent;
      return sum;
    });
  }

  /** One draw. O(log size). */
  draw(random: MersenneTwister): number {
    const cumulative = this.#cumulative;
    const target = random.random() * cumulative.at(-1)!;
    let low = 0;
    let high = cumulative.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (cumulative[middle]! > target) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** `count` different draws, in the order drawn. */
  drawDistinct(random: MersenneTwister, count: number): number[] {
    const drawn = new Set<number>();
    while (drawn.size < count) drawn.add(this.draw(random));
    return [...drawn];
  }
}

/** Independent requests for `k` different documents of Zipf popularity; every question is another. */
export function zipfTrace(seed: number, options: ZipfOptions): Trace {
  const random = new MersenneTwister(seed);
  const popularity = new ZipfDistribution(options.documents, options.exponent);
  return Array.from({ length: options.requests }, (_, number) => ({
    documents: popularity.drawDistinct(random, options.k),
    question: number,
  }));
}
