import type { Usage } from '../apis/usage.js';

/** What an engine counted of one prompt, as far as it reported. */
export interface EngineTokens {
  readonly promptTokens?: number | undefined;
  readonly cachedTokens?: number | undefined;
  readonly answerTokens?: number | undefined;
}

/** Weight of the newest observation in the moving average: about the last ten requests count. */
const NEWEST_WEIGHT = 0.2;
/** No tokenizer of natural language is further than this from the estimate; beyond it, a count is a mistake. */
const FACTOR_MIN = 0.25;
const FACTOR_MAX = 4;

/** Cached tokens that an engine is expected to report, at least, for its silence to say anything. */
const MIN_EXPECTED_TOKENS = 64;
/** Prompts with so many expected tokens after which an engine that was silent each time does not report any. */
const MAX_SILENT_PROMPTS = 3;

/** How one model of an engine reports cached tokens, to whichever tenant. */
export class ReportedCounts {
  readonly #leavesOutZero: boolean;
  #isReported = false;
  #silentPrompts = 0;

  /** @param leavesOutZero whether its kind of engine leaves the count out when it is 0. */
  constructor(leavesOutZero: boolean) {
    this.#leavesOutZero = leavesOutZero;
  }

  /**
   * The engine's cached tokens. A count that is left out means 0 once this model has sent one, and before that in
   * dialects that leave out 0. `undefined` where prompts were expected to be cached and the engine never sent a count.
   *
   * @param expected tokens that should have been cached
   */
  cachedTokens({ cachedTokens }: Usage, expected: number): number | undefined {
    if (cachedTokens !== undefined) {
      this.#isReported = true;
      return cachedTokens;
    }
    if (this.#isReported) return 0;
    if (!this.#leavesOutZero) return undefined;
    if (expected >= MIN_EXPECTED_TOKENS) this.#silentPrompts++;
    return this.#silentPrompts < MAX_SILENT_PROMPTS ? 0 : undefined;
  }
}

/**
 * What is learned about one model's way of counting. The gateway has no tokenizer: core's estimate counts characters
 * by kind. An engine's `usage.prompt_tokens` tells how far off it was, and the moving average of actual / estimated,
 * kept within 0.25 and 4, turns estimates into that model's tokens. Orders do not depend on it (the estimate keeps the
 * ratio between documents), so the knowledge tree stays in estimated tokens and only what is shown is scaled.
 */
export class EngineCounts {
  #factor = 1;
  #observed = false;

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
    if (estimated <= 0 || usage.promptTokens <= 0) return;
    const factor = Math.min(FACTOR_MAX, Math.max(FACTOR_MIN, usage.promptTokens / estimated));
    this.#factor += (this.#observed ? NEWEST_WEIGHT : 1) * (factor - this.#factor);
    this.#observed = true;
  }
}
