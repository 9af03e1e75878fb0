import {
  createPolicy,
  createStatisticPolicy,
  nearestName,
  type OrderingPolicy,
  POLICY_NAMES,
  type PolicyName,
  WarmpathError,
} from '@warmpath/core';
import { createHotnessTreePolicy } from './hotness-tree.js';
import { createOraclePolicy } from './oracle.js';
import { createRandomPolicy } from './random.js';

/** Policies for comparison in experiments only; a gateway does not have them. */
const BASELINES = {
  random: () => createRandomPolicy(),
  /** Most recently seen documents first, documents never seen last (RAGCache++ §4.6, «APC + Recency»). */
  recency: () => createStatisticPolicy('recency', (hotness, key) => hotness.lastSeen(key)),
  /** Documents of most requests so far first: popularity without a window. */
  frequency: () => createStatisticPolicy('frequency', (hotness, key) => hotness.total(key)),
  'hotness-tree': createHotnessTreePolicy,
  oracle: createOraclePolicy,
} as const satisfies Record<string, () => OrderingPolicy>;

type BaselineName = keyof typeof BASELINES;

const BASELINE_NAMES = Object.keys(BASELINES) as readonly BaselineName[];

/** A policy of the core, or a baseline of experiments. */
export type LabPolicyName = PolicyName | BaselineName;

/** The ordering policies of experiments: those of the core, then the baselines. */
export const LAB_POLICY_NAMES: readonly LabPolicyName[] = [...POLICY_NAMES, ...BASELINE_NAMES];

/** The ordering policy of a name. Policies keep no state between calls and may be shared. */
export function createLabPolicy(name: LabPolicyName): OrderingPolicy {
  return isBaseline(name) ? BASELINES[name]() : createPolicy(name);
}

function isBaseline(name: LabPolicyName): name is BaselineName {
  return Object.hasOwn(BASELINES, name);
}

/**
 * Checks a policy's name from outside.
 *
 * @param path where the name stands in the caller's input
 * @throws WARMPATH_UNKNOWN_POLICY, which names the nearest known policy.
 */
export function readLabPolicyName(name: string, path = 'policy'): LabPolicyName {
  const known = LAB_POLICY_NAMES.find((candidate) => candidate === name);
  if (known !== undefined) return known;
  const nearest = nearestName(name, LAB_POLICY_NAMES);
  const advice = nearest === undefined ? '.' : `; did you mean \`${nearest}\`?`;
  const detail = `There is no ordering policy of that name${advice} Experiments also take ${BASELINE_NAMES.join(', ')}.`;
  throw new WarmpathError('WARMPATH_UNKNOWN_POLICY', { path, detail });
}
