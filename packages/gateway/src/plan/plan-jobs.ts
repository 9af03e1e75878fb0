import { Worker } from 'node:worker_threads';
import { WarmpathError } from '@warmpath/core';
import { RequestScheduler } from '@warmpath/core/internal';
import type { GatewayConfig } from '../config/schema.js';
import { documentLimits, timeoutsOf } from '../config/schema-server.js';
import type { PlanOutcome, PlanTask } from './plan-worker.js';

/** The built file, also when the sources run: a thread cannot start from TypeScript. */
const WORKER = new URL('../../dist/plan/plan-worker.js', import.meta.url);

/** A batch that is planned or waits. */
export interface PlanJob {
  /** The plan as JSON. Rejects with a WarmpathError, or with the error of a defect. */
  readonly result: Promise<Uint8Array>;
  /** Ends the job in any state: `result` rejects with `WARMPATH_CLIENT_CLOSED`. */
  abort(): void;
}

interface Task {
  readonly body: Uint8Array;
  resolve(json: Uint8Array): void;
  reject(error: unknown): void;
  worker: Worker | undefined;
  timer: NodeJS.Timeout | undefined;
}

type PlanConfig = Pick<GatewayConfig, 'upstream' | 'limits' | 'server'>;

/** Milliseconds of one job; fewer where an exchange with the engine gets less. */
const MAX_PLAN_MS = 60_000;
/** Contexts of one batch. */
const MAX_CONTEXTS = 100_000;
/** Jobs that wait. */
const MAX_WAITING_JOBS = 4;

/**
 * Plans batches one at a time, each on its own thread, which ends with its job. Time and memory of a job are bounded:
 * its heap may take `limits.memoryBytes` beside the gateway's own.
 */
export class PlanJobs {
  readonly #config: PlanConfig;
  readonly #waiting: RequestScheduler<Task>;
  readonly #running = new Set<Task>();

  constructor(config: PlanConfig) {
    this.#config = config;
    this.#waiting = new RequestScheduler({ capacity: MAX_WAITING_JOBS });
  }

  /** Jobs that wait. */
  get depth(): number {
    return this.#waiting.size;
  }

  /** Plans the batch of a request's body. @throws WarmpathError `WARMPATH_OVERLOADED` if too many jobs wait. */
  start(body: Uint8Array): PlanJob {
    let task!: Task;
    const result = new Promise<Uint8Array>((resolve, reject) => {
      task = { body, resolve, reject, worker: undefined, timer: undefined };
    });
    if (this.#running.size === 0) this.#run(task);
    else this.#waiting.push(task);
    return { result, abort: () => this.#end(task, new WarmpathError('WARMPATH_CLIENT_CLOSED')) };
  }

  #run(task: Task): void {
    this.#running.add(task);
    const { upstream, limits, server } = this.#config;
    const { documents } = documentLimits(server);
    const timeoutMs = Math.min(MAX_PLAN_MS, timeoutsOf(upstream).totalMs);
    const heapMiB = Math.ceil(limits.memoryBytes / 1_048_576);
    const workerData: PlanTask = { body: task.body, limits: { contexts: MAX_CONTEXTS, documents } };
    const worker = new Worker(WORKER, {
      workerData,
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: heapMiB },
    });
    task.worker = worker;
    task.timer = setTimeout(() => this.#end(task, tooMuch(`${timeoutMs} ms`)), timeoutMs);
    worker.once('message', (outcome: PlanOutcome) => {
      if ('json' in outcome) task.resolve(outcome.json);
      this.#end(task, 'error' in outcome ? fromThread(outcome.error) : undefined);
    });
    worker.once('error', (error: NodeJS.ErrnoException) => {
      this.#end(task, error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? tooMuch(`${heapMiB} MiB`) : error);
    });
  }

  /** Ends a task in any state and starts the next one. */
  #end(task: Task, error: unknown): void {
    task.reject(error);
    clearTimeout(task.timer);
    if (!this.#running.delete(task)) {
      this.#waiting.remove(task);
      return;
    }
    void task.worker!.terminate();
    const next = this.#waiting.next(0);
    if (next !== undefined) this.#run(next);
  }
}

function tooMuch(limit: string): WarmpathError {
  return new WarmpathError('WARMPATH_PLAN_LIMIT', { detail: `Planning this batch takes more than ${limit}.` });
}

function fromThread({ code, path, message }: Extract<PlanOutcome, { error: unknown }>['error']): WarmpathError {
  if (path === undefined) return new WarmpathError(code, { detail: message });
  return new WarmpathError(code, { path, detail: message.slice(path.length + 2) });
}
