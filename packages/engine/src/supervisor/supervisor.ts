import { WarmpathError } from '@warmpath/core';
import { describeExit, type EngineExit } from '../child-process.js';
import type { Worker } from './worker.js';

/** Crashes further back than this do not delay a restart. */
export const CRASH_WINDOW_MS = 60_000;

/** Before the second restart of a window; every further one waits twice as long. */
const FIRST_DELAY_MS = 200;
const LONGEST_DELAY_MS = 5_000;
/** Crashes after which the delay grows no more. */
const MAX_CRASHES = 16;

/** Starts that fail one after another before the engine is given up. */
export const MAX_FAILED_STARTS = 5;

/** How long to wait before a crashed worker is started again: pure, the clock is passed in. */
export class RestartDelay {
  readonly #crashesMs: number[] = [];

  /**
   * A crash, or a start that failed.
   *
   * @param nowMs Milliseconds since some moment.
   * @returns Milliseconds to wait: none after a crash that stands alone, ever more after further ones.
   */
  crashed(nowMs: number): number {
    const crashes = this.#crashesMs;
    while (crashes.length > 0 && crashes[0]! <= nowMs - CRASH_WINDOW_MS) {
      crashes.shift();
    }
    const earlier = crashes.push(nowMs) - 1;
    if (crashes.length > MAX_CRASHES) {
      crashes.shift();
    }
    return earlier === 0 ? 0 : Math.min(FIRST_DELAY_MS * 2 ** (earlier - 1), LONGEST_DELAY_MS);
  }
}

export interface SupervisorOptions<W> {
  /** Starts a worker; the signal ends the start. */
  readonly start: (signal: AbortSignal) => Promise<W>;
  /** Milliseconds since some moment. */
  readonly clock: () => number;
  /** Waits so many milliseconds, or rejects when the signal is raised. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Hears why a worker ended that nobody asked to. */
  readonly onCrash: (error: WarmpathError) => void;
}

/** What a supervisor must know of a worker. */
export type SupervisedWorker = Pick<Worker, 'exited' | 'stop'>;

/**
 * Keeps one worker running: starts another when it crashes, later each time. However often one crashes that has
 * listened, the next is started: what its requests do is for the front to see to. It is given up when starts fail one
 * after another.
 */
export class Supervisor<W extends SupervisedWorker> {
  readonly #options: SupervisorOptions<W>;
  readonly #closing = new AbortController();
  readonly #delay = new RestartDelay();
  #restarts = 0;
  #worker: W | undefined;
  #ready: Promise<W>;
  #settleReady: { resolve: (worker: W) => void; reject: (error: WarmpathError) => void };
  #watching: Promise<void> = Promise.resolve();
  #tellFailure: (error: WarmpathError) => void = () => undefined;

  /** Settles when the worker is not started again; never, when it does not come to that. */
  readonly failed = new Promise<WarmpathError>((resolve) => {
    this.#tellFailure = resolve;
  });

  constructor(options: SupervisorOptions<W>) {
    this.#options = options;
    [this.#ready, this.#settleReady] = deferred<W>();
  }

  /** Restarts since the start. */
  get restarts(): number {
    return this.#restarts;
  }

  /** The worker that runs, as far as is known; `undefined` while there is none. */
  get worker(): W | undefined {
    return this.#worker;
  }

  /**
   * Starts the first worker. What keeps it from starting will not go away by trying again, so it is thrown.
   *
   * @param signal Ends the start.
   * @throws What the worker's start throws.
   */
  async start(signal: AbortSignal | undefined): Promise<W> {
    const ends = signal === undefined ? this.#closing.signal : AbortSignal.any([this.#closing.signal, signal]);
    const worker = await this.#options.start(ends);
    this.#watching = this.#watch(worker);
    return worker;
  }

  /**
   * The worker, as soon as there is one.
   *
   * @throws WARMPATH_ENGINE_FAILED when it was given up, WARMPATH_SHUTTING_DOWN after `close`.
   */
  ready(): Promise<W> {
    return this.#ready;
  }

  /** Ends the worker and starts no other; what it computes may finish within `graceMs`. Safe to call again. */
  async close(graceMs: number): Promise<void> {
    if (!this.#closing.signal.aborted) {
      this.#closing.abort(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
      this.#turnAway(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
    }
    await this.#worker?.stop(graceMs);
    await this.#watching;
  }

  async #watch(first: W): Promise<void> {
    for (let worker: W | undefined = first; worker !== undefined; ) {
      this.#worker = worker;
      if (this.#closing.signal.aborted) {
        await worker.stop(0);
        return;
      }
      this.#settleReady.resolve(worker);
      const exit = await worker.exited;
      this.#worker = undefined;
      if (this.#closing.signal.aborted) {
        return;
      }
      [this.#ready, this.#settleReady] = deferred<W>();
      worker = await this.#restart(crash(exit));
    }
  }

  /** @returns `undefined` when it was closed or given up. */
  async #restart(cause: WarmpathError): Promise<W | undefined> {
    const { clock, wait, start, onCrash } = this.#options;
    const { signal } = this.#closing;
    let reason = cause;
    for (let failures = 0; ; failures++) {
      const delayMs = this.#delay.crashed(clock());
      onCrash(reason);
      if (failures === MAX_FAILED_STARTS) {
        const detail = `The engine could not be started again ${failures} times and was given up; the last time: ${reason.message}`;
        const error = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail, cause: reason });
        this.#turnAway(error);
        this.#tellFailure(error);
        return undefined;
      }
      try {
        await wait(delayMs, signal);
        const worker = await start(signal);
        this.#restarts++;
        return worker;
      } catch (error) {
        if (signal.aborted) {
          return undefined;
        }
        reason = WarmpathError.isInstance(error)
          ? error
          : new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: String(error), cause: error });
      }
    }
  }

  /** From now on there is no worker and none will come. */
  #turnAway(error: WarmpathError): void {
    this.#settleReady.reject(error);
    [this.#ready, this.#settleReady] = deferred<W>();
    this.#settleReady.reject(error);
  }
}

function crash(exit: EngineExit): WarmpathError {
  return new WarmpathError('WARMPATH_ENGINE_FAILED', {
    detail: `The engine process ended: ${describeExit(exit)}.`,
    ...(exit.error !== undefined && { cause: exit.error }),
  });
}

function deferred<T>(): [Promise<T>, { resolve: (value: T) => void; reject: (error: WarmpathError) => void }] {
  let settle: { resolve: (value: T) => void; reject: (error: WarmpathError) => void } | undefined;
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject };
  });
  // Nobody may be waiting for it.
  promise.catch(() => undefined);
  return [promise, settle!];
}
