import type { CostModel } from '@warmpath/core/internal';

/** What a step costs in which sequences get one token each. */
export interface DecodeCost {
  /** Milliseconds of a step however few sequences it has: the weights are read once. */
  readonly stepMs: number;
  /** Milliseconds that each sequence adds. */
  readonly sequenceMs: number;
}

/**
 * 16 ms a step and 0.15 ms a sequence, from RAGCache++'s Table 4 (RTX 4090, Qwen2.5-7B, 50 tokens an answer): one
 * request after another 1.19 a second, so 49 steps after the first token take 784 ms; 200 at once with all prompts
 * cached 82 a second, so a step of 200 sequences takes about 45 ms.
 */
export const RTX_4090_DECODE: DecodeCost = { stepMs: 16, sequenceMs: 0.15 };

/** Milliseconds to bring so many tokens' KV from host memory to the device. */
export type HostCopyCost = (hostTokens: number) => number;

/** What makes up the time of an engine's steps. */
export interface StepCostOptions {
  /** Time to the first token of a single prompt. */
  readonly latency: CostModel;
  readonly decode: DecodeCost;
  readonly hostCopy: HostCopyCost;
}

/**
 * The time of one engine step, from the time T(cached, new) that a prompt takes alone:
 *
 * - A prompt, or a chunk of one, that is the step's only prefill costs T(tokens before it, its tokens): a chunk attends
 *   to the chunks
 *   before it as new tokens attend to cached ones.
 * - T(0, 0) is what a step costs without any work: reading the weights, launching kernels, sampling. Prompts share it,
 *   so each
 *   further one in a step costs T less T(0, 0), and each further chunk of one prompt costs T(0, 0) more. RAGCache++'s
 * Table 8
 *   confirms it: without a cache, wall time over batch size is 114.7, 110.5, 103.4, 100.9 ms for batches of 1, 2, 4, 8,
 * and
 *   `20 / batch + 0.092 × 1,052` gives 116.8, 106.8, 101.8, 99.3.
 * - Sequences that decode add `sequenceMs` each. A step reads the weights once, so it takes the longer of its prefill
 *   and
 *   `stepMs`, as in engines that mix both (vLLM V1; Sarathi-Serve's «piggybacked» decodes).
 * - Copies from host memory stand before it all.
 *
 * A profile's T(0, 0) is its smallest measured prompt. One prompt alone takes exactly T.
 */
export class StepCost {
  readonly #latency: CostModel;
  readonly #decode: DecodeCost;
  readonly #hostCopy: HostCopyCost;
  readonly #emptyMs: number;
  #prefillMs = 0;
  #prefills = 0;
  #decodes = 0;
  #copyMs = 0;

  constructor({ latency, decode, hostCopy }: StepCostOptions) {
    this.#latency = latency;
    this.#decode = decode;
    this.#hostCopy = hostCopy;
    this.#emptyMs = latency.prefillMs(0, 0);
  }

  /** Begins the next step. */
  reset(): void {
    this.#prefillMs = 0;
    this.#prefills = 0;
    this.#decodes = 0;
    this.#copyMs = 0;
  }

  /** `newTokens` more tokens of a prompt of which `before` stand in memory. */
  addPrefill(before: number, newTokens: number): void {
    const alone = this.#latency.prefillMs(before, newTokens);
    this.#prefillMs += this.#prefills === 0 ? alone : Math.max(0, alone - this.#emptyMs);
    this.#prefills++;
  }

  /** One token of one sequence. */
  addDecode(): void {
    this.#decodes++;
  }

  addHostCopy(hostTokens: number): void {
    this.#copyMs += this.#hostCopy(hostTokens);
  }

  /** Whether there is anything to do in the step. */
  get isEmpty(): boolean {
    return this.#prefills + this.#decodes === 0;
  }

  /** Sequences that get a token or a chunk in the step. */
  get sequences(): number {
    return this.#prefills + this.#decodes;
  }

  /** Prompts of which a part is computed in the step. */
  get prefills(): number {
    return this.#prefills;
  }

  /** Sequences that get a token, but not their first. */
  get decodes(): number {
    return this.#decodes;
  }

  /** Milliseconds of the step. */
  get ms(): number {
    if (this.#decodes === 0) return this.#copyMs + this.#prefillMs;
    const { stepMs, sequenceMs } = this.#decode;
    return this.#copyMs + Math.max(stepMs, this.#prefillMs) + sequenceMs * this.#decodes;
  }
}
