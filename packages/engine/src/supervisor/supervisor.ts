import { WarmpathError } from '@warmpath/core';
import type { Worker } from './worker.js';

/** A worker that ran this long before it crashed is replaced at once. */
export const STABLE_MS = 60_000;

/** Delay before the second restart in a row; every further one waits twice as long. */
const FIRST_DELAY_MS = 200;
const MAX_DELAY_MS = 5_000;

/** Starts that fail in a row before the engine is given up. */
export const MAX_FAILED_STARTS = 5;

export interface SupervisorOptions<W> {
  readonly start: (signal: AbortSignal) => Promise<W>;
  /** Milliseconds since some moment. */
  readonly clock: () => number;
  /** Waits so many milliseconds, or rejects when the signal is raised. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Gets the reason of every crash and of every restart that failed. */
  readonly onCrash: (error: WarmpathError) => void;
}

export type SupervisedWorker = Pick<Worker, 'exited' | 'stop'>;

/**
 * Keeps one worker running. Starts another when it ends: at once, or later when crashes follow each other. The engine
 * is given up when starts fail in a row.
 */
export class Supervisor<W extends SupervisedWorker> {
  readonly #options: SupervisorOptions<W>;
  readonly #closing = new AbortController();
  #worker: W | undefined;
  #ready = deferred<W>();
  #restarts = 0;
  /** Crashes and failed starts since a worker was stable. */
  #crashes = 0;
  #watching: Promise<void> = Promise.resolve();
  #tellFailure: (error: WarmpathError) => void = () => undefined;

  /** Settles when the engine is given up; stays pending otherwise. */
  readonly failed = new Promise<WarmpathError>((resolve) => {
    this.#tellFailure = resolve;
  });

  constructor(options: SupervisorOptions<W>) {
    this.#options = options;
  }

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
    return this.#ready.promise;
  }

  /** Ends the worker and starts no other; what it computes may finish within `graceMs`. Safe to call again. */
  async close(graceMs: number): Promise<void> {
    if (!this.#closing.signal.aborted) {
      const error = new WarmpathError('WARMPATH_SHUTTING_DOWN');
      this.#closing.abort(error);
      this.#turnAway(error);
    }
    await this.#worker?.stop(graceMs);
    await this.#watching;
  }

  async #watch(first: W): Promise<void> {
    const { clock } = this.#options;
    for (let worker: W | undefined = first; worker !== undefined; ) {
      this.#worker = worker;
      if (this.#closing.signal.aborted) {
        await worker.stop(0);
        return;
      }
      this.#ready.resolve(worker);
      const startedMs = clock();
      const reason = await worker.exited;
      this.#worker = undefined;
      if (this.#closing.signal.aborted) return;
      this.#ready = deferred();
      if (clock() - startedMs >= STABLE_MS) this.#crashes = 0;
      worker = await this.#restart(reason);
    }
  }

  /** @returns `undefined` when it was closed or given up. */
  async #restart(cause: WarmpathError): Promise<W | undefined> {
    const { wait, start, onCrash } = this.#options;
    const { signal } = this.#closing;
    let reason = cause;
    for (let failures = 0; failures < MAX_FAILED_STARTS; failures++) {
      onCrash(reason);
      const delayMs = this.#crashes === 0 ? 0 : Math.min(FIRST_DELAY_MS * 2 ** (this.#crashes - 1), MAX_DELAY_MS);
      this.#crashes++;
      try {
        await wait(delayMs, signal);
        const worker = await start(signal);
        this.#restarts++;
        return worker;
      } catch (error) {
        if (signal.aborted) return undefined;
        reason = WarmpathError.isInstance(error)
          ? error
          : new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: String(error), cause: error });
      }
    }
    onCrash(reason);
    const error = new WarmpathError('WARMPATH_ENGINE_FAILED', {
      detail: `The engine could not be started again ${MAX_FAILED_STARTS} times and was given up; the last time: ${reason.message}`,
      cause: reason,
    });
    this.#turnAway(error);
    this.#tellFailure(error);
    return undefined;
  }

  /** From now on there is no worker and none will come. */
  #turnAway(error: WarmpathError): void {
    this.#ready.reject(error);
    this.#ready = deferred();
    this.#ready.reject(error);
  }
}

interface Deferred<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(error: WarmpathError): void;
}

function deferred<T>(): Deferred<T> {
  let settle: Omit<Deferred<T>, 'promise'>;
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject };
  });
  promise.catch(() => undefined);
  return { promise, ...settle! };
}
