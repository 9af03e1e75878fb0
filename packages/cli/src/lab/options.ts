import { type CostModel, type PolicyName, readPolicyName } from '@warmpath/core';
import { RTX_4060_TI, RTX_4090 } from '@warmpath/lab';
import { Option } from 'commander';

/** Times to the first token that come along, by the machine and model that they were fitted to. */
export const LATENCIES = {
  'rtx-4090-qwen2.5-7b': RTX_4090,
  'rtx-4060-ti-qwen2.5-1.5b': RTX_4060_TI,
} as const satisfies Record<string, CostModel>;

export type LatencyName = keyof typeof LATENCIES;

/** `--latency`. */
export function latencyOption(): Option {
  return new Option('--latency <name>', 'machine and model whose time to the first token is taken')
    .choices(Object.keys(LATENCIES))
    .default('rtx-4090-qwen2.5-7b' satisfies LatencyName);
}

/** Parses names of policies, separated by commas; each counts once. Error: `WARMPATH_UNKNOWN_POLICY`. */
export function policyNames(text: string): readonly PolicyName[] {
  return [...new Set(text.split(',').map((name) => readPolicyName(name.trim(), '--policies')))];
}
