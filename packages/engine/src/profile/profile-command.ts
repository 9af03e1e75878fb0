import type { CommandOutput } from '../command.js';
import type { EngineOptions } from '../options.js';
import type { EngineProfile } from './engine-profile.js';
import { type ProfileHooks, profileEngine, type StoredEngineProfile } from './profile-engine.js';

/** The hooks of a measurement, and how the command speaks. */
export interface ProfileCommandHooks extends ProfileHooks {
  readonly output?: CommandOutput;
  /** Where it says how far it is; stderr by default. */
  readonly errors?: CommandOutput;
  /** One line of JSON instead of a table for people; by default what is not a terminal gets JSON. */
  readonly json?: boolean;
}

/**
 * Measures and stores a profile: `warmpath engine --profile` and `warmpath-engine --profile`. Says how far it is, and
 * in the end what came out and in which file it is.
 *
 * @throws What `profileEngine` throws.
 */
export async function runProfileCommand(options: EngineOptions, hooks: ProfileCommandHooks = {}): Promise<void> {
  const output = hooks.output ?? process.stdout;
  const errors = hooks.errors ?? process.stderr;
  const json = hooks.json ?? output.isTTY !== true;
  const stored = await profileEngine(options, {
    ...hooks,
    onMeasured: (progress) => {
      hooks.onMeasured?.(progress);
      if (errors.isTTY === true) {
        errors.write(`\r  measuring ${Math.round((100 * progress.tokens) / progress.totalTokens)} %`);
      }
    },
  });
  if (errors.isTTY === true) {
    errors.write('\r');
  }
  output.write(`${json ? JSON.stringify({ type: 'profiled', ...stored }) : profileText(stored)}\n`);
}

/** A profile in lines for people. */
export function profileText({ profile, file }: StoredEngineProfile): string {
  const { cachedTokens, newTokens, prefillMs } = profile.prefill;
  const cell = (text: string | number): string => String(text).padStart(10);
  const rows = prefillMs.map((row, index) =>
    [cachedTokens[index]!, ...row.map((value) => value.toFixed(1))].map(cell).join(''),
  );
  return [
    'Milliseconds to compute new tokens (across) behind cached ones (down):',
    ['', ...newTokens].map(cell).join(''),
    ...rows,
    ...copies(profile),
    `Later starts with ${profile.subject.threads} threads and batches of ${profile.subject.batchTokens} find it in ${file}.`,
  ].join('\n');
}

function copies({ hostCopy, disk }: EngineProfile): string[] {
  const rate = (msPerByte: number): string => `${(1e-6 / msPerByte).toFixed(2)} GB/s`;
  return [
    `To host memory ${rate(hostCopy.saveMsPerByte)}, back ${rate(hostCopy.restoreMsPerByte)}.`,
    ...(disk === undefined ? [] : [`To files ${rate(disk.writeMsPerByte)}, back ${rate(disk.readMsPerByte)}.`]),
  ];
}
