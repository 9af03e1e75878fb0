import { RequestScheduler, type ReuseLookup, type Scheduler, type SchedulerName } from '@warmpath/core/internal';
import type { WorkloadRequest } from '../workloads/workload.js';

/** A request that waits at a replica. */
export interface QueuedRequest {
  /** Place in the workload. */
  readonly number: number;
  readonly request: WorkloadRequest;
  /** Milliseconds of virtual time at which the client sent it. */
  readonly arrivedMs: number;
  /** Prompt tokens that it was expected to compute when it was routed. */
  readonly expectedTokens: number;
}

/** What a queue discipline is made from. */
export interface SchedulerContext {
  /** What a waiting request, arranged now, would find in the cache. */
  readonly lookup: ReuseLookup<QueuedRequest>;
  /** Requests of the run: the queue never holds more. */
  readonly capacity: number;
}

/** A queue for one replica of one run. */
export type CreateScheduler = (context: SchedulerContext) => Scheduler<QueuedRequest>;

/** Queue disciplines by name. */
export const SCHEDULERS: Readonly<Record<SchedulerName, CreateScheduler>> = {
  fifo: ({ capacity }) => new RequestScheduler({ capacity }),
  'cache-aware': (context) => new RequestScheduler(context),
};
