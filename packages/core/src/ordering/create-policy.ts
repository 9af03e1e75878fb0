import { createExactPolicy } from './exact.js';
import { createForesightPolicy } from './foresight.js';
import { createGreedyPolicy } from './greedy.js';
import { createHotnessPolicy } from './hotness.js';
import type { OrderingPolicy, PolicyName } from './policy.js';
import { createRetrievalPolicy } from './retrieval.js';
import { createSortedPolicy } from './sorted.js';

export interface PolicyOptions {
  /**
   * Operations that one decision of `greedy`, `exact` or `foresight` may take; `foresight` takes at most twice as many:
   * once for all that it looks up in the tree, and once for the steps of its plan. Default 65,536, a fraction of a
   * millisecond. `trace.cutShort` says what was done with too few.
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
      return createGreedyPolicy(options.maxOperations);
    case 'exact':
      return createExactPolicy(options.maxOperations);
    case 'foresight':
      return createForesightPolicy(options.maxOperations);
  }
}
