import type { BatchEstimate } from '../native/tile-padding.js';

/** How much the latest step weighs. */
const WEIGHT = 0.4;
/** A step that takes many times what is known was disturbed by something else, and counts as this many times it. */
const MOST_TIMES_SLOWER = 2;
/** Milliseconds of a nanosecond: what an estimate says of itself before any step was seen. */
const UNKNOWN = 1e-6;

/**
 * How fast this machine computes, against what was estimated: learned apart for steps in tiles and steps row by row.
 */
export class StepSpeed {
  #tiled: number | undefined;
  #byRow: number | undefined;

  /** A step was computed. O(1). */
  observe({ nanoseconds, isTiled }: BatchEstimate, durationMs: number): void {
    const known = isTiled ? this.#tiled : this.#byRow;
    const seen = durationMs / nanoseconds;
    const next = known === undefined ? seen : known + WEIGHT * (Math.min(seen, MOST_TIMES_SLOWER * known) - known);
    if (isTiled) {
      this.#tiled = next;
    } else {
      this.#byRow = next;
    }
  }

  /** Whether a step of this kind was seen. */
  knows({ isTiled }: BatchEstimate): boolean {
    return (isTiled ? this.#tiled : this.#byRow) !== undefined;
  }

  /** Milliseconds that a step will take; a kind of which none was seen is taken for as fast as the other. */
  ms({ nanoseconds, isTiled }: BatchEstimate): number {
    const msPerNanosecond = isTiled ? (this.#tiled ?? this.#byRow) : (this.#byRow ?? this.#tiled);
    return nanoseconds * (msPerNanosecond ?? UNKNOWN);
  }
}
