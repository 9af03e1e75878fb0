import { LAB_POLICY_NAMES, type LabPolicyName, readLabPolicyName, readSeeds } from '@warmpath/lab';
import { Option } from 'commander';

/** Parses names of policies, separated by commas; each counts once. Error: `WARMPATH_UNKNOWN_POLICY`. */
function policyNames(text: string): readonly LabPolicyName[] {
  return [...new Set(text.split(',').map((name) => readLabPolicyName(name.trim(), '--policies')))];
}

/** `--policies`, with what is compared when nothing is asked for. */
export function policiesOption(names: string): Option {
  return new Option('--policies <names>', `ordering policies, separated by commas, of ${LAB_POLICY_NAMES.join(', ')}`)
    .argParser(policyNames)
    .default(policyNames(names), names);
}

/** `--seeds`, with those that are taken when nothing is asked for. */
export function seedsOption(description: string, range: string): Option {
  return new Option('--seeds <range>', description).argParser(readSeeds).default(readSeeds(range), range);
}
