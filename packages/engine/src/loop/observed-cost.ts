import type { CostModel } from '@warmpath/core/internal';

/** How much each step weighs against the one after it: some hundred steps count. */
const DECAY = 0.99;

/** Positions are counted in thousands, so that both sums are of one order. */
const POSITION_UNIT = 1000;

/**
 * What prefill costs, learned from the steps: a share for each token and one for each token that it attends to, fitted
 * by least squares over the latest steps. Before the first step a token costs one millisecond. O(1) a step.
 */
export class ObservedCost implements CostModel {
  #tokensTokens = 0;
  #tokensPositions = 0;
  #positionsPositions = 0;
  #tokensMs = 0;
  #positionsMs = 0;
  #msPerToken = 1;
  #msPerPosition = 0;

  /** Whether a step was computed. */
  get isLearned(): boolean {
    return this.#tokensTokens > 0;
  }

  /** A step of so many tokens was computed, whose positions have this sum. */
  observe(tokens: number, positions: number, durationMs: number): void {
    const depth = positions / POSITION_UNIT;
    this.#tokensTokens = DECAY * this.#tokensTokens + tokens * tokens;
    this.#tokensPositions = DECAY * this.#tokensPositions + tokens * depth;
    this.#positionsPositions = DECAY * this.#positionsPositions + depth * depth;
    this.#tokensMs = DECAY * this.#tokensMs + tokens * durationMs;
    this.#positionsMs = DECAY * this.#positionsMs + depth * durationMs;
    this.#fit();
  }

  prefillMs(cachedTokens: number, newTokens: number): number {
    const depth = (newTokens * (cachedTokens + newTokens / 2)) / POSITION_UNIT;
    return this.#msPerToken * newTokens + this.#msPerPosition * depth;
  }

  #fit(): void {
    const determinant = this.#tokensTokens * this.#positionsPositions - this.#tokensPositions ** 2;
    const perToken = this.#tokensMs * this.#positionsPositions - this.#positionsMs * this.#tokensPositions;
    const perPosition = this.#positionsMs * this.#tokensTokens - this.#tokensMs * this.#tokensPositions;
    // Steps that are all alike, or noise, say nothing of the two shares apart, or that one is negative.
    const isClear = determinant > 1e-6 * this.#tokensTokens * this.#positionsPositions;
    if (isClear && perToken > 0 && perPosition >= 0) {
      this.#msPerToken = perToken / determinant;
      this.#msPerPosition = perPosition / determinant;
    } else {
      this.#msPerToken = this.#tokensMs / this.#tokensTokens;
      this.#msPerPosition = 0;
    }
  }
}
