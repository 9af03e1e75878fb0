import { replacementPolicy, WarmpathError } from '@warmpath/core';
import type { DiskTierOptions } from '../cache/disk-tier.js';
import { HotCopies } from '../cache/hot-copies.js';
import { PrefixCache } from '../cache/prefix-cache.js';
import { reportTree, type TreeReport, type TreeReportOptions } from '../cache/tree-report.js';
import { NativeContext } from '../native/context.js';
import { SEQUENCE_IDS } from '../native/sequence-ids.js';
import type { Vocabulary } from '../native/vocabulary.js';
import { StateStore } from '../store/state-store.js';
import { LoopAnnouncer } from './announcer.js';
import type { FinishReason, GenerationHandle, GenerationListener, GenerationRequest } from './generation.js';
import { isolatedListener } from './isolated-listener.js';
import type { EngineLoopOptions, LoopStats, StoreOptions } from './loop-options.js';
import { StepPacing } from './step-pacing.js';
import { planStep, type StepEntry } from './step-plan.js';
import { GenerationTask } from './task.js';
import { WaitingTasks } from './waiting-tasks.js';

/** `llama_decode`'s code for a batch that finds no place in the KV memory. */
const NO_FREE_CELLS = 1;

/** How many requests at the head of the queue have what the disk holds of them read beside the decodes. */
const PREFETCH_AHEAD = 4;
/** How long the loop, with nothing to compute, waits for the disk before it looks whether a request lost its patience. */
const DISK_POLL_MS = 10;

type OpenStore = Awaited<ReturnType<typeof StateStore.open>>;

/**
 * The engine's one loop: continuous batching over all running requests.
 *
 * Every turn ends what was aborted, admits what fits, plans one decode (a token for every stream, then chunks of
 * prompts), computes it on a native thread and hands out the tokens. It alone holds the native context and the prefix
 * cache, and it does nothing with them while a decode is in flight; everything outside only adds requests to the queue
 * and raises flags.
 */
export class EngineLoop {
  readonly #options: EngineLoopOptions;
  readonly #context: NativeContext;
  readonly #cache: PrefixCache;
  readonly #hot: HotCopies | undefined;
  readonly #pacing: StepPacing;
  readonly #vocabulary: Vocabulary;
  readonly #announcer: LoopAnnouncer;
  readonly #waiting: WaitingTasks;
  /** What was aborted since the last turn. */
  readonly #aborted: GenerationTask[] = [];
  readonly #running: GenerationTask[] = [];
  /** Held until they are released, without cells. */
  readonly #held = new Set<GenerationTask>();
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

  private constructor(
    options: EngineLoopOptions,
    context: NativeContext,
    { disk, hot }: { readonly disk: DiskTierOptions | undefined; readonly hot: OpenStore | undefined },
  ) {
    this.#options = options;
    this.#context = context;
    this.#vocabulary = options.model.vocabulary;
    this.#announcer = new LoopAnnouncer(options.name, options.observer);
    this.#pacing = new StepPacing(options.batchTokens, options.streamGap ?? 0);
    const { policy = 'lru', hostTierBytes = 0, cost = this.#pacing.cost, kvEvents, verifyCache = false } = options;
    const { restoreMsPerByte } = options;
    this.#cache = new PrefixCache({
      memory: context,
      cells: context.cells,
      sequences: SEQUENCE_IDS,
      policy: replacementPolicy(policy),
      cost,
      ...(hostTierBytes > 0 && {
        host: {
          memory: context,
          capacityBytes: hostTierBytes,
          clock,
          ...(restoreMsPerByte !== undefined && { msPerByte: restoreMsPerByte.host }),
        },
      }),
      ...(disk !== undefined && { disk }),
      ...(kvEvents !== undefined && { listener: kvEvents.listener }),
      verify: verifyCache,
    });
    this.#hot = hot && new HotCopies({ ...hot, cache: this.#cache, memory: context });
    this.#waiting = new WaitingTasks({
      discipline: options.schedule ?? 'fifo',
      ...(options.window !== undefined && { window: options.window }),
      capacity: Math.max(1, options.queueLimit),
      cache: this.#cache,
      cost,
    });
    this.contextTokens = Math.min(options.model.trainedContext, context.cells);
    this.#ended = this.#run();
  }

  /**
   * Creates the native context and starts the loop. Errors: those of `NativeContext.create` and `StateStore.open`, and
   * WARMPATH_CONFIG_INVALID for a host tier with a model of sliding windows.
   */
  static async start(options: EngineLoopOptions): Promise<EngineLoop> {
    if (options.model.hasSlidingWindow && (options.hostTierBytes ?? 0) > 0) {
      throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
        path: 'hostTier',
        detail: 'Some layers of this model attend to a sliding window, and their cells cannot be cut at documents.',
      });
    }
    const context = await NativeContext.create(options.bindings, options.model, {
      cells: options.cells,
      batchTokens: options.batchTokens,
      outputs: options.maxRunning,
      threads: options.threads,
      padding: true,
    });
    try {
      const msPerByte = options.restoreMsPerByte?.disk;
      const disk = options.diskTier && {
        ...(await openStore(options.diskTier)),
        clock,
        ...(msPerByte !== undefined && { msPerByte }),
      };
      // A state of cells behind a sliding window leaves out what lies before it.
      const hotCopies = options.model.hasSlidingWindow ? undefined : options.hotCopies;
      const hot = hotCopies && (await openStore(hotCopies).catch(warn));
      return new EngineLoop(options, context, { disk, hot });
    } catch (error) {
      context.free();
      throw error;
    }
  }

  /** What the cache holds, in counts and sizes. Cost: O(nodes), during which nothing else happens. */
  report(options: TreeReportOptions): TreeReport {
    return reportTree(this.#cache.roots, options);
  }

  /** Exact figures, also while a decode is in flight. Cost: O(1). */
  get stats(): LoopStats {
    return {
      ...this.#cache.stats,
      running: this.#running.length,
      waiting: this.#waiting.size,
      held: this.#held.size,
      ...(this.#hot !== undefined && { hot: this.#hot.stats }),
    };
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
    this.#checkOpen();
    if (request.prompt.length === 0) {
      throw new WarmpathError('WARMPATH_EMPTY_PROMPT');
    }
    if (request.prompt.length + request.maxTokens > this.contextTokens) {
      throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', {
        detail: `The prompt has ${request.prompt.length} tokens and ${request.maxTokens} are asked for, but the context holds ${this.contextTokens}.`,
      });
    }
    if (this.#waiting.size >= this.#options.queueLimit) {
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail: `${this.#waiting.size} requests are waiting already.` });
    }
    const abort = (): void => this.#abort(task);
    const isolated = isolatedListener(listener, (cause) => {
      process.emitWarning(cause instanceof Error ? cause : String(cause));
      abort();
    });
    const task = new GenerationTask(request, isolated, performance.now());
    this.#waiting.push(task);
    this.#wakeUp();
    return { abort, release: () => this.#release(task) };
  }

  /**
   * Ends the loop: nothing new is accepted, what has not begun is refused, what has may finish, and is ended when it
   * takes longer than `graceMs`. What is cached goes to the disk tier, as far as there is room and time. Frees the context.
   * Safe to call again.
   */
  async close(graceMs: number): Promise<void> {
    if (this.#state === 'open') {
      this.#state = 'draining';
      this.#refuse([...this.#waiting].filter((task) => !task.hasStarted));
    }
    this.#closeByMs ??= performance.now() + graceMs;
    const timer = setTimeout(() => {
      for (const task of [...this.#running, ...this.#waiting].filter((candidate) => !candidate.aborted)) {
        task.listener.onError(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
        this.#abort(task);
      }
    }, graceMs);
    this.#wakeUp();
    await this.#ended;
    clearTimeout(timer);
  }

  async #run(): Promise<void> {
    try {
      await this.#hot?.restore();
      for (;;) {
        this.#reapAborted();
        this.#cache.settle();
        this.#admit();
        this.#prefetch();
        this.#options.kvEvents?.flush();
        if (this.#running.length > 0) {
          this.#hot?.step(false);
          await this.#step();
        } else if (this.#waiting.size > 0) {
          // Nobody is left who could give anything back, so waiting on would be for ever.
          throw new Error('A request cannot be admitted although nothing runs');
        } else if (this.#state === 'draining') {
          break;
        } else if (this.#hot?.step(true) === true) {
          // Requests that have come meanwhile go first.
          await new Promise((resolve) => setImmediate(resolve));
        } else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
          this.#wake = undefined;
        }
      }
    } catch (cause) {
      this.#fail(cause);
    }
    this.#refuse([...this.#held]);
    // After a failure nothing is written any more.
    await this.#cache.close(() => this.#state !== 'failed' && performance.now() < (this.#closeByMs ?? 0));
    this.#options.kvEvents?.end();
    await this.#hot?.close();
    this.#context.free();
  }

  /** Has the disk tier read what it holds of the prompts that wait longest, while others are computed. */
  #prefetch(): void {
    let ahead = 0;
    for (const task of this.#waiting) {
      if (ahead++ === PREFETCH_AHEAD) {
        return;
      }
      if (!task.isPrefetched) {
        task.isPrefetched = true;
        this.#cache.prefetch(task.tokens, task.sharedAtMost, task.request.salt);
      }
    }
  }

  async #waitForDisk(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const poll = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, DISK_POLL_MS);
    });
    await Promise.race([this.#cache.news(), poll]);
    clearTimeout(timer);
  }

  /** A defect, or a native library that broke its word: nothing that the loop holds can be trusted any more. */
  #fail(cause: unknown): void {
    this.#state = 'failed';
    const detail = cause instanceof Error ? cause.message : String(cause);
    for (const task of [...this.#running.splice(0), ...this.#waiting, ...this.#held]) {
      this.#waiting.remove(task);
      this.#held.delete(task);
      if (!task.aborted) {
        task.listener.onError(new WarmpathError('WARMPATH_ENGINE_FAILED', { cause }));
      }
      this.#announcer.end(task, 'failed');
    }
    this.#tellFailure(new WarmpathError('WARMPATH_ENGINE_FAILED', { detail, cause }));
  }

  #checkOpen(): void {
    if (this.#state === 'draining') {
      throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
    }
    if (this.#state === 'failed') {
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', {
        detail: 'The engine has stopped after an error; start it again.',
      });
    }
  }

  #refuse(tasks: GenerationTask[]): void {
    for (const task of tasks) {
      this.#waiting.remove(task);
      this.#held.delete(task);
      if (!task.aborted) {
        task.listener.onError(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
      }
      this.#announcer.end(task, 'failed');
    }
  }

  #wakeUp(): void {
    this.#wake?.();
  }

  #abort(task: GenerationTask): void {
    if (!task.aborted) {
      task.aborted = true;
      this.#aborted.push(task);
      this.#wakeUp();
    }
  }

  #release(task: GenerationTask): void {
    task.released = true;
    if (this.#held.delete(task)) {
      this.#waiting.putBack(task);
      this.#wakeUp();
    }
  }

  #reapAborted(): void {
    for (const task of this.#aborted.splice(0)) {
      if (this.#running.includes(task)) {
        this.#end(task, 'aborted');
      } else if (this.#waiting.remove(task) || this.#held.delete(task)) {
        this.#announcer.end(task, 'aborted');
      }
    }
  }

  /** Takes requests from the queue as long as there are places, and cells for the prompt of the one that goes next. */
  #admit(): void {
    while (this.#running.length < this.#options.maxRunning) {
      const task = this.#waiting.next();
      if (task === undefined) {
        return;
      }
      const { boundaries, salt } = task.request;
      const lease = this.#cache.acquire(task.tokens, task.sharedAtMost, boundaries, salt);
      if (lease === undefined) {
        this.#waiting.putBack(task);
        return;
      }
      const promised = this.#running.reduce((sum, running) => sum + running.pending, 0);
      const needed = task.tokens.length - lease.length;
      if (this.#running.length > 0 && this.#cache.availableCells() < promised + needed) {
        this.#cache.release(lease, false);
        this.#waiting.putBack(task);
        return;
      }
      this.#running.push(task);
      task.lease = lease;
      task.share({ device: lease.length, host: 0, disk: 0 });
      task.markStarted(performance.now());
    }
  }

  async #step(): Promise<void> {
    const limits = this.#pacing.limits(this.#running, this.#context, this.#cache);
    const entries = planStep(this.#running, this.#cache, limits);
    const isAnyDone = this.#finishPrefills();
    if (entries.length === 0 && isAnyDone) {
      return;
    }
    if (entries.length === 0 && this.#running.some(({ isAwaitingDisk }) => isAwaitingDisk)) {
      await this.#waitForDisk();
      return;
    }
    if (entries.length === 0) {
      // The running requests hold each other's cells: the youngest gives way. One alone always has enough, because no
      // request is longer than all cells; were it ever otherwise, it would be admitted and give way for ever.
      if (this.#running.length === 1) {
        throw new Error('A request that runs alone finds no cells');
      }
      this.#requeue(this.#running[this.#running.length - 1]!);
      return;
    }
    const outputs = this.#fillBatch(entries);
    const startedMs = performance.now();
    const code = await this.#context.decode(this.#cache.leasedCells());
    const durationMs = performance.now() - startedMs;
    this.#announcer.step(entries, durationMs);
    if (code === 0) {
      this.#pacing.learn(entries, durationMs);
      this.#settle(entries, outputs);
    } else if (code === NO_FREE_CELLS) {
      // By the cache's account there were enough, so the account is wrong and every later decode would fail too.
      throw new Error('llama_decode finds no free cells where there should be some');
    } else {
      this.#failEntries(entries, code);
    }
  }

  /** @returns For each entry, the index of its last token in the batch when its logits are wanted. */
  #fillBatch(entries: readonly StepEntry[]): (number | undefined)[] {
    const batch = this.#context.batch;
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
      if (!wasDecoding) {
        this.#commitComputed(task);
      }
    }
    this.#finishPrefills();
    for (const [index, { task }] of entries.entries()) {
      const output = outputs[index];
      if (output === undefined || task.aborted) {
        continue;
      }
      const isFirst = task.generated === 0;
      const finish = task.advance(
        this.#context.logits(output),
        this.#vocabulary,
        this.contextTokens,
        performance.now(),
      );
      if (isFirst) {
        this.#announcer.prompt(task);
      } else {
        this.#announcer.token(task);
      }
      if (finish !== undefined) {
        this.#end(task, 'finished', finish);
      } else if (task.isHeld) {
        this.#takeCells(task);
        this.#held.add(task);
      }
    }
  }

  /** Ends the requests that wanted nothing but their prompt in the cache, and have it there; says whether there were any. */
  #finishPrefills(): boolean {
    const done = this.#running.filter(({ isPrefillOnly, pending }) => isPrefillOnly && pending === 0);
    for (const task of done) {
      const finish = task.finishPrefill(performance.now());
      this.#announcer.prompt(task);
      this.#end(task, 'finished', finish);
    }
    return done.length > 0;
  }

  /** Puts what a task has computed into the tree, as far as it is to be cached; the rest stays private to it. */
  #commitComputed(task: GenerationTask): void {
    const lease = task.lease!;
    const end = Math.min(task.computed, task.cachedAtMost(this.#options.cachedDocuments));
    this.#cache.commit(lease, task.tokens.slice(lease.length, end));
  }

  #failEntries(entries: readonly StepEntry[], code: number): void {
    for (const { task } of entries) {
      if (!task.aborted) {
        task.listener.onError(new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: `llama_decode gave ${code}` }));
      }
      // What this decode left in the cells is not to be trusted; what was committed before it is.
      this.#leave(task);
      this.#announcer.end(task, 'failed');
    }
  }

  #end(task: GenerationTask, outcome: 'finished' | 'aborted', reason: FinishReason = 'stop'): void {
    this.#commitComputed(task);
    this.#leave(task);
    if (outcome === 'finished') {
      task.listener.onFinish(task.result(reason));
    }
    this.#announcer.end(task, outcome, reason);
  }

  #leave(task: GenerationTask): void {
    this.#cache.release(task.lease!);
    this.#hot?.noteUse();
    task.lease = undefined;
    this.#running.splice(this.#running.indexOf(task), 1);
  }

  #requeue(task: GenerationTask): void {
    this.#takeCells(task);
    this.#waiting.putBack(task);
    this.#announcer.preemption();
  }

  /** Takes a task's cells away; what they hold stays cached until it is evicted, and the task goes on from there. */
  #takeCells(task: GenerationTask): void {
    this.#commitComputed(task);
    this.#leave(task);
    task.loseCells();
  }
}

function clock(): number {
  return performance.now();
}

/** What is only kept to begin faster next time must not keep the engine from starting. */
function warn(error: Error): undefined {
  process.emitWarning(error);
}

function openStore(options: StoreOptions): Promise<OpenStore> {
  return StateStore.open({ ...options, clock, onWarning: (message) => process.emitWarning(message) });
}
