/** What a piece of text became: what may go out now, and whether a stop string was completed. */
export interface StopResult {
  readonly text: string;
  readonly stopped: boolean;
}

/**
 * Ends a text at the first stop string. The stop string itself is never passed on, nor any beginning of it: text that
 * could still become one is held back until it is decided.
 */
export class StopStrings {
  readonly #stops: readonly string[];
  #held = '';
  #matched: string | undefined;

  /** @param stops Non-empty strings; none means that everything passes at once. */
  constructor(stops: readonly string[]) {
    this.#stops = stops;
  }

  /** The stop string that ended the text, once one did. */
  get matched(): string | undefined {
    return this.#matched;
  }

  /** Cost: O(text × stops × length of a stop). */
  push(text: string): StopResult {
    if (this.#stops.length === 0) return { text, stopped: false };
    const all = this.#held + text;
    let first = -1;
    for (const stop of this.#stops) {
      const at = all.indexOf(stop);
      if (at >= 0 && (first < 0 || at < first)) {
        first = at;
        this.#matched = stop;
      }
    }
    if (first >= 0) {
      this.#held = '';
      return { text: all.slice(0, first), stopped: true };
    }
    const keep = this.#openLength(all);
    this.#held = all.slice(all.length - keep);
    return { text: all.slice(0, all.length - keep), stopped: false };
  }

  /** @returns What was held back; the text ended and it became no stop string. */
  flush(): string {
    const rest = this.#held;
    this.#held = '';
    return rest;
  }

  /** Length of the longest end of `text` that a stop string begins with. */
  #openLength(text: string): number {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
        if (text.endsWith(stop.slice(0, length))) {
          longest = length;
          break;
        }
      }
    }
    return longest;
  }
}
