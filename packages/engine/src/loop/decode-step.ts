import { availableParallelism, loadavg } from 'node:os';
import { WarmpathError } from '@warmpath/core';
import type { PrefixCache } from '../cache/prefix-cache.js';
import type { NativeContext } from '../native/context.js';
import type { LoopAnnouncer } from './events.js';
import type { FinishReason } from './generation.js';
import type { RequestPlaces } from './request-places.js';
import { planStep, type StepEntry, type StepLimits } from './step-plan.js';
import type { TokenPieces } from './task.js';

/** How much longer than expected a decode may take, and how long it may take whatever was expected. */
const HANG_FACTOR = 20;
const MIN_HANG_MS = 8_000;

/** A decode that the native thread computes. */
export interface DecodeInFlight {
  /** Which one, counted from the start. */
  readonly step: number;
  readonly expectedMs: number;
  /** After so many milliseconds it will not come back. */
  readonly limitMs: number;
}

/**
 * When a decode counts as hanging: what is expected is rough, and other programs may use the cores too.
 *
 * @param load Threads that want to run on each core.
 */
export function hangLimitMs(expectedMs: number, load: number): number {
  return Math.max(MIN_HANG_MS, HANG_FACTOR * expectedMs * Math.max(1, load));
}

/** `llama_decode`'s code for a batch that finds no place in the KV memory. */
const NO_FREE_CELLS = 1;

export interface DecodeStepOptions {
  readonly context: NativeContext;
  readonly cache: PrefixCache;
  readonly places: RequestPlaces;
  readonly limits: StepLimits;
  readonly announcer: LoopAnnouncer;
  readonly vocabulary: TokenPieces;
  /** Most tokens of one request, prompt and answer. */
  readonly contextTokens: number;
}

/** One step of the running requests: what it holds is planned and computed, and its tokens are handed out. */
export class DecodeStep {
  readonly #options: DecodeStepOptions;
  /** Decodes so far. */
  #steps = 0;
  /** What the decode in flight is expected to take. */
  #expectedMs: number | undefined;
  #shortestMs: number;

  constructor(options: DecodeStepOptions) {
    this.#options = options;
    this.#shortestMs = options.context.warmUpMs;
  }

  /** The decode in flight, if there is one. */
  get decoding(): DecodeInFlight | undefined {
    const expectedMs = this.#expectedMs;
    return expectedMs === undefined
      ? undefined
      : { step: this.#steps, expectedMs, limitMs: hangLimitMs(expectedMs, loadavg()[0]! / availableParallelism()) };
  }

  /**
   * Computes the next step. When nothing can be computed and nothing is to be read, it preempts a request. Throws when
   * the account of the cells is wrong.
   */
  async run(): Promise<void> {
    const { cache, limits, places } = this.#options;
    const { running } = places;
    const entries = planStep(running, cache, limits);
    const isAnyDone = places.finishPrefills();
    if (entries.length > 0) {
      await this.#compute(entries);
    } else if (!isAnyDone && !running.some(({ isAwaitingDisk }) => isAwaitingDisk)) {
      places.preemptYoungest();
    }
  }

  async #compute(entries: readonly StepEntry[]): Promise<void> {
    const outputs = this.#fillBatch(entries);
    const startedMs = performance.now();
    this.#steps++;
    // Rather more than less: each token as long as the shortest step so far.
    this.#expectedMs = this.#shortestMs * entries.reduce((sum, { count }) => sum + count, 0);
    const code = await this.#options.context.decode();
    this.#expectedMs = undefined;
    const durationMs = performance.now() - startedMs;
    this.#options.announcer.step(entries, durationMs);
    if (code === 0) {
      this.#shortestMs = Math.min(durationMs, this.#shortestMs);
      this.#settle(entries, outputs);
    } else if (code === NO_FREE_CELLS) {
      // By the cache's account there were enough, so the account is wrong and every later decode would fail too.
      throw new Error('llama_decode finds no free cells where there should be some');
    } else {
      const error = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: `llama_decode gave ${code}` });
      this.#options.places.failRunning(
        entries.map(({ task }) => task),
        error,
      );
    }
  }

  /** @returns For each entry, the index of its last token in the batch when its logits are wanted. */
  #fillBatch(entries: readonly StepEntry[]): (number | undefined)[] {
    const batch = this.#options.context.batch;
    batch.clear();
    return entries.map(({ task, count }) => {
      const end = task.computed + count;
      const isComplete = end === task.tokens.length;
      let last: number | undefined;
      for (let position = task.computed; position < end; position++) {
        const output = isComplete && position === end - 1;
        last = batch.add(task.tokens[position]!, position, task.lease!.sequence, output && !task.isPrefillOnly);
      }
      return isComplete && !task.isPrefillOnly ? last : undefined;
    });
  }

  #settle(entries: readonly StepEntry[], outputs: readonly (number | undefined)[]): void {
    // Prompts go into the tree before any answer does, so that the tokens of a step are counted before one ends.
    for (const { task, count } of entries) {
      const wasDecoding = task.isDecoding;
      task.computed += count;
      if (!wasDecoding && (task.endsAtCheckpoint || !this.#options.cache.checkpoints)) {
        this.#options.places.commit(task);
      }
    }
    this.#options.places.finishPrefills();
    for (const [index, { task }] of entries.entries()) {
      const output = outputs[index];
      if (output === undefined || task.aborted) {
        continue;
      }
      const logits = this.#options.context.logits(output);
      let finish: FinishReason | undefined;
      try {
        finish = task.advance(logits, this.#options.vocabulary, this.#options.contextTokens, performance.now());
      } catch (error) {
        if (!WarmpathError.isInstance(error)) {
          throw error;
        }
        this.#options.places.failRunning([task], error);
        continue;
      }
      this.#options.announcer.token(task);
      if (finish !== undefined) {
        this.#options.places.end(task, 'finished', finish);
      }
    }
  }
}
