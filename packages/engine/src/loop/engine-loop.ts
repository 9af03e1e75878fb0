import { WarmpathError } from '@warmpath/core';
import type { Tier } from '@warmpath/core/internal';
import type { TokensByTier } from '../cache/tokens-by-tier.js';
import { reportTree } from '../cache/tree-report.js';
import type { EngineReuse } from '../native/model.js';
import { type DecodeInFlight, DecodeStep } from './decode-step.js';
import { LoopAnnouncer } from './events.js';
import {
  type GenerationHandle,
  type GenerationListener,
  type GenerationRequest,
  isolatedListener,
} from './generation.js';
import { type LoopMemory, openLoopMemory, reuseOf } from './loop-memory.js';
import type { EngineLoopOptions, LoopStats } from './loop-options.js';
import { RequestPlaces } from './request-places.js';
import { GenerationTask } from './task.js';
import { WaitingTasks } from './waiting-tasks.js';

/**
 * The engine's one loop: continuous batching over all running requests. Every turn ends aborted requests, admits those
 * that fit, plans one decode (a token for every stream, then chunks of prompts), computes it on a native thread and
 * hands out the tokens. It alone holds the native context and the prefix cache, and touches neither while a decode is
 * in flight; everything outside only adds requests to the queue and raises flags.
 */
export class EngineLoop {
  readonly #options: EngineLoopOptions;
  readonly #memory: LoopMemory;
  readonly #places: RequestPlaces;
  readonly #step: DecodeStep;
  /** What is to be dropped from the cache when the step in flight has ended. */
  readonly #flushes: (() => void)[] = [];
  #isOver = false;
  #state: 'open' | 'draining' | 'failed' = 'open';
  #wake: (() => void) | undefined;
  #closeByMs: number | undefined;
  readonly #ended: Promise<void>;
  #tellFailure: (error: WarmpathError) => void = () => undefined;

  /** Settles when the loop has failed and nothing will be computed any more; never, when it does not. */
  readonly failed = new Promise<WarmpathError>((resolve) => {
    this.#tellFailure = resolve;
  });

  /** Most tokens of one request, prompt and answer: what the model was trained for, or all cells if they are fewer. */
  readonly contextTokens: number;

  private constructor(options: EngineLoopOptions, memory: LoopMemory) {
    const { context, cache } = memory;
    const { maxRunning } = options;
    this.#options = options;
    this.#memory = memory;
    this.contextTokens = Math.min(options.model.trainedContext, context.cells);
    const announcer = new LoopAnnouncer(options.name, options.observer);
    const waiting = new WaitingTasks(cache);
    this.#places = new RequestPlaces({
      cache,
      waiting,
      announcer,
      maxRunning,
      reuse: this.reuse,
    });
    this.#step = new DecodeStep({
      context,
      cache,
      places: this.#places,
      limits: {
        batchTokens: options.batchTokens,
        isOnGpu: options.model.usesGpu,
        sharesPrompts: this.reuse !== 'none',
      },
      announcer,
      vocabulary: options.model.vocabulary,
      contextTokens: this.contextTokens,
    });
    this.#ended = this.#run();
  }

  /** Creates the native context and starts the loop. Errors: those of `openLoopMemory`. */
  static async start(options: EngineLoopOptions): Promise<EngineLoop> {
    return new EngineLoop(options, await openLoopMemory(options));
  }

  /** What the cache holds, in counts and sizes. Cost: O(nodes), during which nothing else happens. */
  report(paths: number): ReturnType<typeof reportTree> {
    return reportTree(this.#memory.cache.roots, paths);
  }

  /** What a prompt would find in the cache now, by tier; changes nothing. Cost: O(tokens). */
  lookup(tokens: readonly number[], salt?: string): TokensByTier {
    return this.#memory.cache.match(tokens, tokens.length, salt);
  }

  /** Where what a request computed may serve another. */
  get reuse(): EngineReuse {
    return reuseOf(this.#options);
  }

  /** Exact figures, also while a decode is in flight. Cost: O(1). */
  get stats(): LoopStats {
    return { ...this.#memory.cache.stats, ...this.#places.counts };
  }

  /** The decode in flight, if there is one. */
  get decoding(): DecodeInFlight | undefined {
    return this.#step.decoding;
  }

  /** Whether requests are accepted. */
  get isOpen(): boolean {
    return this.#state === 'open';
  }

  /**
   * Hands in a request. The listener hears of it only after this call has returned.
   *
   * @throws WARMPATH_EMPTY_PROMPT, WARMPATH_CONTEXT_TOO_LONG, WARMPATH_OVERLOADED, WARMPATH_SHUTTING_DOWN,
   *   WARMPATH_ENGINE_FAILED.
   */
  submit(request: GenerationRequest, listener: GenerationListener): GenerationHandle {
    this.#check(request);
    const abort = (): void => {
      this.#places.abort(task);
      this.#wakeUp();
    };
    const isolated = isolatedListener(listener, (cause) => {
      process.emitWarning(cause instanceof Error ? cause : String(cause));
      abort();
    });
    const task = new GenerationTask(request, isolated, performance.now());
    this.#places.add(task);
    this.#wakeUp();
    return { abort };
  }

  /**
   * Drops what is cached and no running request needs; with a salt, only what its prompts left.
   *
   * @returns Tokens that were dropped from each tier. @throws WARMPATH_SHUTTING_DOWN
   */
  flush(tiers: readonly Tier[], salt?: string): Promise<TokensByTier> {
    return new Promise((resolve, reject) => {
      this.#flushes.push(() =>
        this.#isOver
          ? reject(new WarmpathError('WARMPATH_SHUTTING_DOWN'))
          : resolve(this.#memory.cache.flush(tiers, salt)),
      );
      if (this.#isOver) {
        this.#flush();
      }
      this.#wakeUp();
    });
  }

  /**
   * Ends the loop: refuses waiting requests, lets running ones finish within `graceMs`, writes the cache to the disk
   * tier as far as there is room and time, and frees the context. Safe to call again.
   */
  async close(graceMs: number): Promise<void> {
    if (this.#state === 'open') {
      this.#state = 'draining';
      this.#places.refuseUnstarted();
    }
    this.#closeByMs ??= performance.now() + graceMs;
    const timer = setTimeout(() => {
      this.#places.expire();
      this.#wakeUp();
    }, graceMs);
    this.#wakeUp();
    await this.#ended;
    clearTimeout(timer);
  }

  async #run(): Promise<void> {
    const { context, cache } = this.#memory;
    const { kvEvents } = this.#options;
    try {
      let isGoingOn = true;
      while (isGoingOn) {
        this.#places.reapAborted();
        this.#places.admit();
        cache.clearIdle();
        this.#flush();
        await this.#places.load();
        kvEvents?.flush();
        isGoingOn = await this.#turn();
      }
    } catch (cause) {
      this.#fail(cause);
    }
    this.#isOver = true;
    this.#flush();
    // After a failure nothing is written any more.
    await cache.close(() => this.#state !== 'failed' && performance.now() < (this.#closeByMs ?? 0));
    kvEvents?.end();
    context.free();
  }

  #flush(): void {
    for (const flush of this.#flushes.splice(0)) {
      flush();
    }
  }

  /** Computes a step, or does what is to be done where nothing runs; says whether there is a next turn. */
  async #turn(): Promise<boolean> {
    const { running, waiting } = this.#places.counts;
    if (running > 0) {
      await this.#step.run();
    } else if (waiting > 0) {
      // Nobody is left who could give anything back, so waiting on would be for ever.
      throw new Error('A request cannot be admitted although nothing runs');
    } else if (this.#state === 'draining') {
      return false;
    } else {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    return true;
  }

  /** A defect, or a native library that broke its word: nothing that the loop holds can be trusted any more. */
  #fail(cause: unknown): void {
    this.#state = 'failed';
    const detail = cause instanceof Error ? cause.message : String(cause);
    this.#places.failAll(new WarmpathError('WARMPATH_ENGINE_FAILED', { cause }));
    this.#tellFailure(new WarmpathError('WARMPATH_ENGINE_FAILED', { detail, cause }));
  }

  #check({ prompt, maxTokens }: GenerationRequest): void {
    if (this.#state === 'draining') {
      throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
    }
    if (this.#state === 'failed') {
      const detail = 'The engine has stopped after an error; start it again.';
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail });
    }
    if (!this.#options.model.generatesText) {
      const detail = 'This model makes embeddings alone: ask /v1/embeddings';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'model', detail });
    }
    if (prompt.length === 0) {
      throw new WarmpathError('WARMPATH_EMPTY_PROMPT');
    }
    if (prompt.length + maxTokens > this.contextTokens) {
      throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', {
        detail: `The maximum context length is ${this.contextTokens} tokens, but the prompt has ${prompt.length} and ${maxTokens} more are asked for.`,
      });
    }
    const { waiting, running } = this.#places.counts;
    // What came since the last step waits for the next one, though there is a place for it.
    const places = Math.max(0, this.#options.maxRunning - running);
    if (waiting - places >= this.#options.queueLimit) {
      const detail = `${waiting} requests are waiting already (\`--queue-limit\`).`;
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail });
    }
  }

  #wakeUp(): void {
    this.#wake?.();
  }
}
