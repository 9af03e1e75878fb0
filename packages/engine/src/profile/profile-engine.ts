import { mkdir } from 'node:fs/promises';
import { printableJson, printableLine } from '@warmpath/core/internal';
import type { CommandOutput } from '../command.js';
import type { ModelProgressListener } from '../models/download.js';
import { resolveModel } from '../models/resolve.js';
import { llamaFor } from '../native/bindings.js';
import { NativeContext } from '../native/context.js';
import { findLibraryDirectory } from '../native/library.js';
import { NativeModel } from '../native/model.js';
import { type EngineOptions, parseEngineOptions } from '../options.js';
import { type EngineProfile, newProfile, profileSubject, storeProfile } from './engine-profile.js';
import { measureEngine, type ProfileProgress } from './measure-engine.js';

/** What accompanies a measurement and is no configuration. */
export interface ProfileHooks {
  /** Hears of downloads and other work on the model. */
  readonly onProgress?: ModelProgressListener;
  /** Hears how far measuring has come. */
  readonly onMeasured?: (progress: ProfileProgress) => void;
  /** Ends it. */
  readonly signal?: AbortSignal;
}

/** A profile and the file in which later starts find it. */
export interface StoredEngineProfile {
  readonly profile: EngineProfile;
  readonly file: string;
}

/**
 * Measures what computing and copying take with this model on this machine, and keeps it in the cache folder, where
 * every later start with the same threads, batch and type of keys and values finds it. The machine should have nothing
 * else to do.
 *
 * @throws What `startEngineServer` throws of the model and the library; the signal's reason.
 */
export async function profileEngine(
  options: EngineOptions = {},
  { onProgress, onMeasured = () => undefined, signal }: ProfileHooks = {},
): Promise<StoredEngineProfile> {
  const settings = parseEngineOptions(options);
  const { threads, batchTokens, kvType, cacheDir, diskTier } = settings;
  findLibraryDirectory(settings); // Before a model is downloaded that nothing could compute.
  const resolved = await resolveModel(settings.model, {
    ...(cacheDir !== undefined && { cacheDir }),
    onProgress,
    signal,
  });
  const subject = await profileSubject(resolved.path, settings, cacheDir);
  const bindings = await llamaFor(resolved.path, settings, true);
  const model = await NativeModel.load(bindings, resolved.path, settings.gpuLayers);
  try {
    const cells = settings.contextTokens;
    const context = await NativeContext.create(bindings, model, { cells, batchTokens, outputs: 1, threads, kvType });
    try {
      if (diskTier !== undefined) {
        await mkdir(diskTier, { recursive: true, mode: 0o700 });
      }
      const contextTokens = Math.min(model.trainedContext, context.cells);
      const measured = await measureEngine({
        context,
        batchTokens,
        contextTokens,
        diskFolder: diskTier,
        onProgress: onMeasured,
        signal,
      });
      const profile = newProfile({ subject, ...measured });
      return { profile, file: await storeProfile(profile, cacheDir) };
    } finally {
      context.free();
    }
  } finally {
    await model.free();
  }
}

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
  const lines = json ? [printableJson(JSON.stringify({ type: 'profiled', ...stored }))] : profileLines(stored);
  output.write(`${lines.join('\n')}\n`);
}

/** A profile in lines for people. */
export function profileLines({ profile, file }: StoredEngineProfile): readonly string[] {
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
    `Later starts with ${profile.subject.threads} threads and batches of ${profile.subject.batchTokens} find it in ${printableLine(file)}.`,
  ];
}

function copies({ hostCopy, disk }: EngineProfile): string[] {
  const rate = (msPerByte: number): string => `${(1e-6 / msPerByte).toFixed(2)} GB/s`;
  return [
    `To host memory ${rate(hostCopy.saveMsPerByte)}, back ${rate(hostCopy.restoreMsPerByte)}.`,
    ...(disk === undefined ? [] : [`To files ${rate(disk.writeMsPerByte)}, back ${rate(disk.readMsPerByte)}.`]),
  ];
}
