import type { CostModel } from '@warmpath/core/internal';
import type { OfflineSolver } from '../bounds/offline.js';
import type { PrefixCacheModel } from '../cache/prefix-cache.js';
import type { LabPolicyName } from '../ordering/lab-policies.js';

/** What to replay a log with. */
export interface ReplaySettings {
  /** Name of the log in the report. */
  readonly log: string;
  readonly policies: readonly LabPolicyName[];
  /** Engine caches as the report calls them, and as they are made. */
  readonly caches: readonly { readonly name: string; readonly create: () => PrefixCacheModel }[];
  /** Coming requests that are looked at, 0 to 64; see `SimulateOptions`. Default 0. */
  readonly queue?: number;
  /** Requests at the start that are served but not counted. Default 0. */
  readonly warmUp?: number;
  /** Tokens in front of the documents, the same for all requests. Default 28, as in the papers. */
  readonly preambleTokens?: number;
  /** Time to the first token, and the machine that has it. */
  readonly latency: { readonly name: string; readonly model: CostModel };
  /** Finds the offline bound of the log (`loadOfflineSolver`), if it has at most 10,000 requests. Default: none. */
  readonly offline?: OfflineSolver;
  /** Milliseconds of a monotonic clock, to time `arrange`. */
  readonly clock: () => number;
}
