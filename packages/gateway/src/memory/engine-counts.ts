import type { Usage } from '../apis/usage.js';

/** What an engine counted of one prompt, as far as it reported. */
export interface EngineTokens {
  readonly promptTokens?: number | undefined;
  readonly cachedTokens?: number | undefined;
  readonly answerTokens?: number | undefined;
}

/** What one model of an engine has shown that it reports, to whichever tenant. */
export interface ShownCounts {
  cachedTokens: boolean;
}

/** Weight of the newest observation in the moving average: about the last ten requests count. */
const NEWEST_WEIGHT = 0.2;
/** No tokenizer of natural language is further than this from the estimate; beyond it, a count is a mistake. */
const FACTOR_MIN = 0.25;
const FACTOR_MAX = 4;

/**
 * What is learned about one model's way of counting. The gateway has no tokenizer: core's estimate counts characters
 * by kind. An engine's `usage.prompt_tokens` tells how far off it was, and the moving average of actual / estimated,
 * kept within 0.25 and 4, turns estimates into that model's tokens. Orders do not depend on it (the estimate keeps the
 * ratio between documents), so the knowledge tree stays in estimated tokens and only what is shown is scaled.
 */
export class EngineCounts {
  #factor = 1;
  #observed = false;
  readonly #shown: ShownCounts;

  constructor(shown: ShownCounts = { cachedTokens: false }) {
    this.#shown = shown;
  }

  /** Actual tokens per estimated token. */
  get factor(): number {
    return this.#factor;
  }

  /** An estimate in this model's tokens. */
  toEngineTokens(estimated: number): number {
    return Math.round(estimated * this.#factor);
  }

  /** A count of the engine in estimated tokens. */
  toEstimatedTokens(counted: number): number {
    return Math.round(counted / this.#factor);
  }

  /** What became of a prompt as the knowledge tree compares it: in estimated tokens. */
  outcome({ promptTokens, cachedTokens, answerTokens }: EngineTokens): EngineTokens {
    return {
      promptTokens: promptTokens && this.toEstimatedTokens(promptTokens),
      cachedTokens: cachedTokens && this.toEstimatedTokens(cachedTokens),
      answerTokens: answerTokens && this.toEstimatedTokens(answerTokens),
    };
  }

  /** Learns from a request whose prompt was estimated at `estimated` tokens. */
  observe(estimated: number, usage: Usage): void {
    if (usage.cachedTokens !== undefined) this.#shown.cachedTokens = true;
    if (estimated <= 0 || usage.promptTokens <= 0) return;
    const factor = Math.min(FACTOR_MAX, Math.max(FACTOR_MIN, usage.promptTokens / estimated));
    this.#factor += (this.#observed ? NEWEST_WEIGHT : 1) * (factor - this.#factor);
    this.#observed = true;
  }

  /**
   * The engine's cached tokens. Several engines leave the field out when it is 0, so its absence means 0 once this
   * model of the engine has ever sent it, to anybody, and nothing before.
   */
  cachedTokens(usage: Usage): number | undefined {
    return usage.cachedTokens ?? (this.#shown.cachedTokens ? 0 : undefined);
  }
}
