import type { BatchAttention, BatchEstimate } from '../native/tile-padding.js';
import { ChunkLimit } from './chunk-limit.js';
import type { ObservedCost } from './observed-cost.js';
import type { StepEntry, StepLimits } from './step-plan.js';
import type { GenerationTask } from './task.js';

/** Fewest tokens of a step from which the cost of prefill is learned. */
const LEARN_FROM_TOKENS = 32;

export interface StepPacingOptions {
  /** Most tokens in one decode. */
  readonly batchTokens: number;
  /** How many times longer than without prompts a step of running streams may take; 0 for no limit. */
  readonly streamGap: number;
  /** Learns what prefill costs. */
  readonly cost: ObservedCost;
  /** What a batch is estimated to take. */
  readonly estimate: (batch: BatchAttention) => BatchEstimate;
}

/** A run of tokens of one sequence. */
interface TokenRun {
  readonly from: number;
  readonly count: number;
}

/** What steps take, learned from those that were computed, and what the next one may hold because of it. */
export class StepPacing {
  readonly #batchTokens: number;
  readonly #chunkLimit: ChunkLimit;
  readonly #estimate: (batch: BatchAttention) => BatchEstimate;
  readonly #cost: ObservedCost;

  constructor({ batchTokens, streamGap, cost, estimate }: StepPacingOptions) {
    this.#cost = cost;
    this.#estimate = estimate;
    this.#batchTokens = batchTokens;
    this.#chunkLimit = new ChunkLimit(streamGap);
  }

  /**
   * A step was computed. Call it before its tokens are settled: it tells prompts from answers by what is still to be
   * computed.
   *
   * @param cells Cells that all running requests attended to.
   */
  learn(entries: readonly StepEntry[], cells: number, durationMs: number): void {
    const runs = entries.map(({ task, count }) => ({ from: task.computed, count }));
    const estimate = this.#estimate(attention(runs, cells));
    const tokens = entries.reduce((sum, { count }) => sum + count, 0);
    const promptTokens = entries.reduce((sum, { task, count }) => sum + (task.isDecoding ? 0 : count), 0);
    this.#chunkLimit.observe({ generating: tokens - promptTokens, promptTokens, estimate }, durationMs);
    // Steps of few tokens cost what reading the weights costs, which says nothing of prompts.
    if (tokens >= LEARN_FROM_TOKENS) {
      const positions = entries.reduce((sum, { task, count }) => sum + count * (task.computed + count / 2), 0);
      this.#cost.observe(tokens, positions, durationMs);
    }
  }

  /**
   * What a step is expected to take, rather more than less: before any of its kind was computed, as long as its tokens
   * one after another.
   *
   * @param tokenMs What one token alone took.
   */
  expectedMs(entries: readonly StepEntry[], cells: number, tokenMs: number): number {
    const batch = attention(
      entries.map(({ task, count }) => ({ from: task.computed, count })),
      cells,
    );
    return this.#chunkLimit.expectedMs(this.#estimate(batch)) ?? batch.rows * tokenMs;
  }

  /**
   * What the next step may hold: as many prompt tokens as there is room for where nobody reads a stream, and else what
   * keeps its gap. O(sizes that are considered × prompts).
   *
   * @param cells Cells that all running requests attend to.
   */
  limits(running: readonly GenerationTask[], cells: number): StepLimits {
    const batchTokens = this.#batchTokens;
    const generating = running.filter(({ isDecoding }) => isDecoding);
    const prompts = running.filter(({ isDecoding }) => !isDecoding);
    const pending = prompts.reduce((sum, task) => sum + task.pending, 0);
    const most = Math.min(batchTokens - generating.length, pending);
    if (most <= 0 || !generating.some(({ isStreamRead }) => isStreamRead)) {
      return { batchTokens, promptTokens: batchTokens };
    }
    const answers = generating.map(({ computed }) => ({ from: computed, count: 1 }));
    const promptTokens = this.#chunkLimit.tokens({
      prompt: prompts[0]!,
      generating: generating.length,
      most,
      estimate: (tokens) => this.#estimate(attention([...answers, ...firstTokens(prompts, tokens)], cells)),
    });
    return { batchTokens, promptTokens };
  }
}

/** What a batch of such runs attends to, of no more cells than these. */
function attention(runs: readonly TokenRun[], cells: number): BatchAttention {
  let rows = 0;
  let attended = 0;
  let span = 0;
  for (const { from, count } of runs) {
    rows += count;
    attended += count * (from + (count + 1) / 2);
    span += from + count;
  }
  return { rows, attended, span: Math.min(span, cells) };
}

/** The next tokens of the prompts, in their order, as a step takes them. */
function firstTokens(prompts: readonly GenerationTask[], tokens: number): TokenRun[] {
  const runs: TokenRun[] = [];
  let rest = tokens;
  for (const { computed, pending } of prompts) {
    const count = Math.min(rest, pending);
    if (count === 0) {
      break;
    }
    runs.push({ from: computed, count });
    rest -= count;
  }
  return runs;
}
