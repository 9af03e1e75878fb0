import { GDSF } from './gdsf.js';
import { LFU } from './lfu.js';
import { LRFU } from './lrfu.js';
import { LRU } from './lru.js';
import { PGDSF } from './pgdsf.js';
import type { ReplacementPolicy, ReplacementPolicyName } from './policy.js';

const POLICIES: Readonly<Record<ReplacementPolicyName, ReplacementPolicy>> = {
  pgdsf: PGDSF,
  gdsf: GDSF,
  lru: LRU,
  lfu: LFU,
  lrfu: LRFU,
};

/** The replacement policy of a name. Policies hold no state and may be shared. */
export function replacementPolicy(name: ReplacementPolicyName): ReplacementPolicy {
  return POLICIES[name];
}
