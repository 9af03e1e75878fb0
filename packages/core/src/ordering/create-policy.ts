import { createExactPolicy } from './exact.js';
import { createForesightPolicy } from './foresight.js';
import { createFrequencyPolicy } from './frequency.js';
import { createGreedyPolicy } from './greedy.js';
import { createHotnessPolicy } from './hotness.js';
import { createOraclePolicy } from './oracle.js';
import type { OrderingPolicy, PolicyName } from './policy.js';
import { createRandomPolicy } from './random.js';
import { createRecencyPolicy } from './recency.js';
import { createRetrievalPolicy } from './retrieval.js';
import { createSortedPolicy } from './sorted.js';

export interface PolicyOptions {
  /** Seed of the `random` policy. Default 0. */
  readonly seed?: number;
  /**
   * Operations that one call of `foresight` may count before it plans more simply or answers like `exact`. Default 65,536,
   * a fraction of a millisecond.
   */
  readonly maxOperations?: number;
}

/** The ordering policy of a name. Policies remember nothing between calls and may be shared. `readPolicyName` checks a name from outside. */
export function createPolicy(name: PolicyName, options: PolicyOptions = {}): OrderingPolicy {
  switch (name) {
    case 'retrieval':
      return createRetrievalPolicy();
    case 'sorted':
      return createSortedPolicy();
    case 'random':
      return createRandomPolicy(options.seed);
    case 'recency':
      return createRecencyPolicy();
    case 'frequency':
      return createFrequencyPolicy();
    case 'hotness':
      return createHotnessPolicy();
    case 'greedy':
      return createGreedyPolicy();
    case 'exact':
      return createExactPolicy();
    case 'oracle':
      return createOraclePolicy();
    case 'foresight':
      return createForesightPolicy(options.maxOperations);
  }
}
