import { readFile } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import {
  type CostModel,
  describeJsonError,
  fileErrorReason,
  type PrefillProfile,
  profiledCost,
} from '@warmpath/core/internal';
import { RTX_4060_TI, RTX_4090 } from '@warmpath/lab';
import { Option } from 'commander';

/** Times to the first token that come along, by the machine and model that they were fitted to. */
const LATENCIES: Readonly<Record<string, CostModel>> = {
  'rtx-4090-qwen2.5-7b': RTX_4090,
  'rtx-4060-ti-qwen2.5-1.5b': RTX_4060_TI,
};

const LATENCY_NAMES = Object.keys(LATENCIES);

/** Bytes of a profile; a grid of some hundred points has some kilobytes. */
const MAX_PROFILE_LENGTH = 4_000_000;

/** A time to the first token by name. */
export interface NamedLatency {
  readonly name: string;
  readonly model: CostModel;
  /** Where it was measured rather than fitted. */
  readonly profile?: PrefillProfile;
}

/** `--latency`. */
export function latencyOption(): Option {
  return new Option(
    '--latency <name>',
    `time to the first token: ${LATENCY_NAMES.join(', ')}, or a file that \`lab profile\` wrote`,
  ).default(LATENCY_NAMES[0]);
}

/**
 * The latency that `--latency` names. Errors: `WARMPATH_USAGE` if it is no name and no file that can be read,
 * `WARMPATH_INVALID_JSON`, `WARMPATH_INVALID_REQUEST` with the path of what is wrong with a profile.
 */
export async function readLatency(text: string): Promise<NamedLatency> {
  const model = Object.hasOwn(LATENCIES, text) ? LATENCIES[text] : undefined;
  if (model !== undefined) return { name: text, model };
  const profile = readProfile(await parseFile(text));
  return { name: text, model: profiledCost(profile), profile };
}

async function parseFile(file: string): Promise<unknown> {
  let content: string;
  try {
    content = await readFile(file, 'utf8');
  } catch (cause) {
    const reason = fileErrorReason(cause);
    const detail = `${file} is none of ${LATENCY_NAMES.join(', ')}, and as a file cannot be read: ${reason}`;
    throw new WarmpathError('WARMPATH_USAGE', { path: '--latency', detail, cause });
  }
  if (content.length > MAX_PROFILE_LENGTH) {
    const detail = `${file} has more than ${MAX_PROFILE_LENGTH} characters, as no profile has`;
    throw new WarmpathError('WARMPATH_INVALID_JSON', { path: '--latency', detail });
  }
  try {
    return JSON.parse(content);
  } catch (cause) {
    const detail = `${file}: ${describeJsonError(content)}`;
    throw new WarmpathError('WARMPATH_INVALID_JSON', { path: '--latency', detail, cause });
  }
}

/** The grid of a profile; what else the file says is for people. */
function readProfile(value: unknown): PrefillProfile {
  const { cachedTokens, newTokens, prefillMs } = (value ?? {}) as Record<string, unknown>;
  if (!Array.isArray(prefillMs)) throw invalid('prefillMs', 'rows of milliseconds were expected');
  return {
    cachedTokens: numbers(cachedTokens, 'cachedTokens'),
    newTokens: numbers(newTokens, 'newTokens'),
    prefillMs: prefillMs.map((row: unknown, place) => numbers(row, `prefillMs[${place}]`)),
  };
}

function numbers(value: unknown, path: string): readonly number[] {
  if (!Array.isArray(value)) throw invalid(path, 'an array of numbers was expected');
  const wrong = value.findIndex((each) => typeof each !== 'number');
  if (wrong >= 0) throw invalid(`${path}[${wrong}]`, 'a number was expected');
  return value as readonly number[];
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path: `--latency: ${path}`, detail });
}
