import type { PrefixCache } from '../cache/prefix-cache.js';
import type { NativeContext } from '../native/context.js';
import { ChunkLimit } from './chunk-limit.js';
import { ObservedCost } from './observed-cost.js';
import type { StepEntry, StepLimits } from './step-plan.js';
import type { GenerationTask } from './task.js';

/** Fewest tokens of a step from which the cost of prefill is learned. */
const LEARN_FROM_TOKENS = 32;

/** What steps take, learned from those that were computed, and what the next one may hold because of it. */
export class StepPacing {
  readonly #batchTokens: number;
  readonly #chunkLimit: ChunkLimit;
  /** What prefill costs. */
  readonly cost = new ObservedCost();

  /**
   * @param batchTokens Most tokens in one decode.
   * @param streamGap How many times longer than without prompts a step of running streams may take; 0 for no limit.
   */
  constructor(batchTokens: number, streamGap: number) {
    this.#batchTokens = batchTokens;
    this.#chunkLimit = new ChunkLimit(streamGap);
  }

  /** A step was computed. Call it before its tokens are settled: it tells prompts from answers by what is still to be computed. */
  learn(entries: readonly StepEntry[], durationMs: number): void {
    const tokens = entries.reduce((sum, { count }) => sum + count, 0);
    const promptTokens = entries.reduce((sum, { task, count }) => sum + (task.isDecoding ? 0 : count), 0);
    this.#chunkLimit.observe({ generating: tokens - promptTokens, promptTokens }, durationMs);
    // Steps of few tokens cost what reading the weights costs, which says nothing of prompts.
    if (tokens >= LEARN_FROM_TOKENS) {
      const positions = entries.reduce((sum, { task, count }) => sum + count * (task.computed + count / 2), 0);
      this.cost.observe(tokens, positions, durationMs);
    }
  }

  /**
   * What the next step may hold: as many prompt tokens as there is room for where nobody reads a stream, and else what keeps its
   * gap. What a small batch would be filled up with costs nothing, so there prompt tokens take that room.
   */
  limits(running: readonly GenerationTask[], context: NativeContext, cache: PrefixCache): StepLimits {
    const batchTokens = this.#batchTokens;
    const generating = running.filter(({ isDecoding }) => isDecoding);
    const next = running.find(({ isDecoding }) => !isDecoding);
    if (next === undefined || !generating.some(({ isStreamRead }) => isStreamRead)) {
      return { batchTokens, promptTokens: batchTokens };
    }
    const guessMs = this.cost.prefillMs(next.computed, batchTokens) / batchTokens;
    const tokens = Math.min(this.#chunkLimit.tokens(generating.length, guessMs), batchTokens);
    const padding = context.padding({
      rows: generating.length + tokens,
      attended: generating.reduce((sum, { computed }) => sum + computed, tokens * next.computed),
      span: cache.leasedCells(),
    });
    return { batchTokens, promptTokens: tokens + padding };
  }
}
