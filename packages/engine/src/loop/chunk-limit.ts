/** Latest steps without a prompt that count, for each number of streams. */
const QUIET_STEPS = 15;
/** Share of the allowed gap that is aimed at: steps of one size do not all take the same time. */
const AIM = 0.75;
/** How much the latest step weighs in what a prompt token costs. */
const WEIGHT = 0.4;
/** Prompt tokens that go into every step, however long it takes, so that no prompt waits for ever. */
const LEAST_TOKENS = 4;
/** A chunk grows no faster than this from step to step: the first ones are guesses. */
const GROWTH = 1.5;

/**
 * How many prompt tokens may be computed beside running streams, so that these get their next token in time: no later than
 * `gap` times what a step takes without any prompt. Both are learned from the steps: the median of the quiet ones, and what a
 * prompt token added to the latest ones, which grows with what stands before it.
 */
export class ChunkLimit {
  readonly #gap: number;
  readonly #quiet = new Map<number, number[]>();
  #msPerToken: number | undefined;
  #lastTokens = LEAST_TOKENS;

  /** @param gap How many times longer than without prompts a step may take; 0 for no limit. */
  constructor(gap: number) {
    this.#gap = gap;
  }

  /** A step was computed: a token for each of `generating` sequences, and `promptTokens` of prompts. O(1). */
  observe({ generating, promptTokens }: { generating: number; promptTokens: number }, durationMs: number): void {
    if (generating === 0) {
      return;
    }
    if (promptTokens === 0) {
      const steps = this.#quiet.get(generating) ?? [];
      steps.push(durationMs);
      if (steps.length > QUIET_STEPS) {
        steps.shift();
      }
      this.#quiet.set(generating, steps);
      return;
    }
    this.#lastTokens = promptTokens;
    const quietMs = this.#quietMs(generating);
    if (quietMs !== undefined) {
      const cost = Math.max(0, durationMs - quietMs) / promptTokens;
      this.#msPerToken = this.#msPerToken === undefined ? cost : this.#msPerToken + WEIGHT * (cost - this.#msPerToken);
    }
  }

  /**
   * Most prompt tokens for the next step. O(numbers of streams that were seen).
   *
   * @param generating Sequences that generate in it.
   * @param guessMs What a prompt token costs, as long as no step has shown it.
   */
  tokens(generating: number, guessMs: number): number {
    const quietMs = this.#quietMs(generating);
    if (this.#gap === 0 || quietMs === undefined) {
      return this.#gap === 0 ? Number.POSITIVE_INFINITY : LEAST_TOKENS;
    }
    const roomMs = (AIM * this.#gap - 1) * quietMs;
    const tokens = roomMs / Math.max(this.#msPerToken ?? guessMs, Number.EPSILON);
    const most = this.#msPerToken === undefined ? tokens : GROWTH * this.#lastTokens;
    return Math.max(LEAST_TOKENS, Math.floor(Math.min(tokens, most)));
  }

  /** Median of the latest steps without a prompt, of as many streams or, where there were none, of the nearest number. */
  #quietMs(generating: number): number | undefined {
    let nearest: number | undefined;
    for (const streams of this.#quiet.keys()) {
      if (nearest === undefined || Math.abs(streams - generating) < Math.abs(nearest - generating)) {
        nearest = streams;
      }
    }
    if (nearest === undefined) {
      return undefined;
    }
    const steps = [...this.#quiet.get(nearest)!].sort((a, b) => a - b);
    return steps[steps.length >> 1];
  }
}
