import { type PolicyName, readPolicyName } from '@warmpath/core';

/** Parses names of policies, separated by commas; each counts once. Error: `WARMPATH_UNKNOWN_POLICY`. */
export function policyNames(text: string): readonly PolicyName[] {
  return [...new Set(text.split(',').map((name) => readPolicyName(name.trim(), '--policies')))];
}
