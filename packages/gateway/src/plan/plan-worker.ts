import { parentPort, workerData } from 'node:worker_threads';
import { type ErrorCode, planBatch, WarmpathError } from '@warmpath/core';
import { type PlanLimits, readPlanRequest } from './plan-request.js';

/** What the thread is given. */
export interface PlanTask {
  /** The request's body. */
  readonly body: Uint8Array;
  readonly limits: PlanLimits;
}

/** What the thread says in the end. */
export type PlanOutcome =
  | { readonly json: Uint8Array<ArrayBuffer> }
  | { readonly error: { readonly code: ErrorCode; readonly path: string | undefined; readonly message: string } };

/**
 * Plans one batch on a thread of its own: reading and planning 100,000 contexts takes seconds in which nothing else
 * runs.
 */
function work({ body, limits }: PlanTask): PlanOutcome {
  try {
    const { contexts, options } = readPlanRequest(Buffer.from(body.buffer, body.byteOffset, body.length), limits);
    const start = performance.now();
    const { steps, ...summary } = planBatch(contexts, options);
    const ms = performance.now() - start;
    const rssMiB = process.resourceUsage().maxRSS / 1024;
    const answer = { object: 'plan', contexts: contexts.length, ...summary, ms, rssMiB, steps };
    return { json: new TextEncoder().encode(JSON.stringify(answer)) };
  } catch (error) {
    if (!WarmpathError.isInstance(error)) throw error;
    return { error: { code: error.code, path: error.path, message: error.message } };
  }
}

const outcome = work(workerData as PlanTask);
parentPort!.postMessage(outcome, 'json' in outcome ? [outcome.json.buffer] : []);
