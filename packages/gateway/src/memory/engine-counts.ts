import type { Usage } from '../apis/usage.js';

/** An engine's token counts of one prompt, as far as it reported them. */
export interface EngineTokens {
  readonly promptTokens?: number | undefined;
  readonly cachedTokens?: number | undefined;
  readonly answerTokens?: number | undefined;
}

/** Weight of the newest observation in the moving average. */
const NEWEST_WEIGHT = 0.2;
/** Bounds of the factor. No tokenizer of natural language differs more from the estimate. */
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
 * Scales estimated tokens to one model's tokens, because the gateway has no tokenizer: by the moving average of
 * `usage.prompt_tokens` / estimate. Orders do not depend on it, so the knowledge tree has estimated tokens, and only
 * figures that are shown are scaled.
 */
export class EngineCounts {
  #factor = 1;
  #observed = false;

  /** Actual tokens per estimated token. */
  get factor(): number {
    return this.#factor;
  }

  /** Converts an estimate into this model's tokens. */
  toEngineTokens(estimated: number): number {
    return Math.round(estimated * this.#factor);
  }

  /** Converts a count of the engine into estimated tokens. */
  toEstimatedTokens(counted: number): number {
    return Math.round(counted / this.#factor);
  }

  /** Converts an engine's counts of a prompt into estimated tokens. */
  outcome({ promptTokens, cachedTokens, answerTokens }: EngineTokens): EngineTokens {
    return {
      promptTokens: promptTokens && this.toEstimatedTokens(promptTokens),
      cachedTokens: cachedTokens && this.toEstimatedTokens(cachedTokens),
      answerTokens: answerTokens && this.toEstimatedTokens(answerTokens),
    };
  }

  /** Learns from a request whose prompt has `estimated` tokens by the estimate. */
  observe(estimated: number, usage: Usage): void {
    if (estimated <= 0 || usage.promptTokens <= 0) return;
    const factor = Math.min(FACTOR_MAX, Math.max(FACTOR_MIN, usage.promptTokens / estimated));
    this.#factor += (this.#observed ? NEWEST_WEIGHT : 1) * (factor - this.#factor);
    this.#observed = true;
  }
}
