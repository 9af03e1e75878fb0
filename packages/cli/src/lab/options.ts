import { type PolicyName, readPolicyName } from '@warmpath/core';
import { InvalidArgumentError, Option } from 'commander';

/** Seeds of one experiment; a bound on memory, for every request's outcome is kept until the report. */
const MAX_SEEDS = 1_000;

/** Parses names of policies, separated by commas; each counts once. Error: `WARMPATH_UNKNOWN_POLICY`. */
function policyNames(text: string): readonly PolicyName[] {
  return [...new Set(text.split(',').map((name) => readPolicyName(name.trim(), '--policies')))];
}

/** Parses seeds: single ones and ranges, separated by commas; each counts once. Error: `InvalidArgumentError`. */
function seedNumbers(text: string): readonly number[] {
  const numbers = new Set<number>();
  for (const part of text.split(',')) {
    const range = /^(\d{1,9})(?:\.\.(\d{1,9}))?$/.exec(part.trim());
    const first = Number(range?.[1]);
    const last = Number(range?.[2] ?? range?.[1]);
    if (range === null || last < first || last - first >= MAX_SEEDS) throw invalidSeeds();
    for (let seed = first; seed <= last; seed++) numbers.add(seed);
  }
  if (numbers.size > MAX_SEEDS) throw invalidSeeds();
  return [...numbers];
}

/** `--policies`, with what is compared when nothing is asked for. */
export function policiesOption(names: string): Option {
  return new Option('--policies <names>', 'ordering policies, separated by commas')
    .argParser(policyNames)
    .default(policyNames(names), names);
}

/** `--seeds`, with those that are taken when nothing is asked for. */
export function seedsOption(description: string, range: string): Option {
  return new Option('--seeds <range>', description).argParser(seedNumbers).default(seedNumbers(range), range);
}

function invalidSeeds(): InvalidArgumentError {
  return new InvalidArgumentError(`Whole numbers like 42, 1..10 or 1,5,7 were expected, at most ${MAX_SEEDS}.`);
}
