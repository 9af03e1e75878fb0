import { createExactPolicy } from './exact.js';
import { createForesightPolicy } from './foresight.js';
import { createGreedyPolicy } from './greedy.js';
import { createHotnessPolicy } from './hotness.js';
import type { OrderingPolicy, PolicyName } from './policy.js';
import { createRetrievalPolicy } from './retrieval.js';
import { createSortedPolicy } from './sorted.js';

export interface PolicyOptions {
  /**
   * Most operations of one call of `foresight`. Above it, `foresight` plans more simply or answers like `exact`.
   * Default 65,536, a fraction of a millisecond.
   */
  readonly maxOperations?: number;
}

/**
 * The ordering policy of a name. Policies keep no state between calls and may be shared. `readPolicyName` checks a name
 * from outside.
 */
export function createPolicy(name: PolicyName, options: PolicyOptions = {}): OrderingPolicy {
  switch (name) {
    case 'retrieval':
      return createRetrievalPolicy();
    case 'sorted':
      return createSortedPolicy();
    case 'hotness':
      return createHotnessPolicy();
    case 'greedy':
      return createGreedyPolicy();
    case 'exact':
      return createExactPolicy();
    case 'foresight':
      return createForesightPolicy(options.maxOperations);
  }
}
