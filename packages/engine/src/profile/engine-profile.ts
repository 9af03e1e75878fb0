import { hash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { arch, cpus, platform } from 'node:os';
import { join } from 'node:path';
import { type CostModel, type PrefillProfile, profiledCost } from '@warmpath/core/internal';
import { cacheFolder } from '../models/cache-folder.js';
import { modelFingerprint } from '../models/fingerprint.js';
import { builtLibraries } from '../native/built-libraries.js';
import { LLAMA_RELEASE } from '../native/library.js';
import type { KvType } from '../native/structs.js';
import type { ResolvedEngineOptions } from '../options.js';

/** Version of the files; another one is not read. */
const PROFILE_VERSION = 1;

/** What a profile was measured with: what is measured with anything else says nothing about it. */
export interface ProfileSubject {
  /** SHA-256 of the model's file. */
  readonly model: string;
  readonly library: string;
  readonly processor: string;
  readonly processors: number;
  readonly threads: number;
  /** Most tokens in one decode. */
  readonly batchTokens: number;
  /** How keys and values stand in the cells. */
  readonly kvType: KvType;
  /** Layers that a GPU computes, where there are any. */
  readonly gpuLayers?: number;
}

/** The settings that a profile depends on. */
type ProfileSettings = Pick<ResolvedEngineOptions, 'threads' | 'batchTokens' | 'kvType' | 'gpuLayers'>;

/** What computing and copying take on one machine with one model. */
export interface EngineProfile {
  readonly version: typeof PROFILE_VERSION;
  readonly subject: ProfileSubject;
  /** Time to compute tokens behind cached ones. */
  readonly prefill: PrefillProfile;
  readonly hostCopy: {
    /** Milliseconds a byte from the cells to host memory. */
    readonly saveMsPerByte: number;
    /** Milliseconds a byte back, checksum included. */
    readonly restoreMsPerByte: number;
  };
  /**
   * Measured where there was a folder for a disk tier. Reads are of files just written: what the file system holds in
   * memory.
   */
  readonly disk?: {
    readonly writeMsPerByte: number;
    readonly readMsPerByte: number;
  };
}

/** What a profile of this model would be measured with here. Cost: see `modelFingerprint`. */
export async function profileSubject(
  modelPath: string,
  { threads, batchTokens, kvType, gpuLayers }: ProfileSettings,
  folder?: string,
): Promise<ProfileSubject> {
  const processors = cpus();
  return {
    model: await modelFingerprint(modelPath, folder),
    library: `llama.cpp ${LLAMA_RELEASE}${builtLibraries(folder) === undefined ? '' : ', built here'}`,
    processor: `${platform()} ${arch()} ${processors[0]?.model ?? 'unknown'}`,
    processors: processors.length,
    threads,
    batchTokens,
    kvType,
    ...(gpuLayers > 0 && { gpuLayers }),
  };
}

/** Keeps a profile in the cache folder, in place of an earlier one of the same subject. @returns Its file. */
export async function storeProfile(profile: EngineProfile, folder: string = cacheFolder()): Promise<string> {
  const file = fileOf(profile.subject, folder);
  await mkdir(join(folder, 'profiles'), { recursive: true });
  const temporary = `${file}.${process.pid}.tmp`;
  await writeFile(temporary, `${JSON.stringify(profile, undefined, 2)}\n`);
  await rename(temporary, file);
  return file;
}

/**
 * The profile that was stored for this model, machine, number of threads, batch and type of keys and values.
 *
 * @returns `undefined` when there is none, or its file is damaged. Where no profile was ever stored, the model is not
 *   read.
 */
export async function storedProfile(
  modelPath: string,
  settings: ProfileSettings,
  folder: string = cacheFolder(),
): Promise<EngineProfile | undefined> {
  const files = await readdir(join(folder, 'profiles')).catch(() => []);
  if (files.length === 0) {
    return undefined;
  }
  const subject = await profileSubject(modelPath, settings, folder);
  try {
    const profile = JSON.parse(await readFile(fileOf(subject, folder), 'utf8')) as EngineProfile;
    costOf(profile);
    return profile.version === PROFILE_VERSION && isAmount(profile.hostCopy.restoreMsPerByte) ? profile : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The cost model of a profile: bilinear over its grid (RAGCache Algorithm 1). More new tokens than were measured cost
 * what their parts cost, one behind the other.
 *
 * @throws WARMPATH_INVALID_REQUEST when the grid is none.
 */
export function costOf({ prefill }: EngineProfile): CostModel {
  const cost = profiledCost(prefill);
  const most = prefill.newTokens.at(-1)!;
  return {
    prefillMs: (cachedTokens, newTokens) => {
      let total = 0;
      for (let done = 0; done < newTokens; done += most) {
        total += cost.prefillMs(cachedTokens + done, Math.min(most, newTokens - done));
      }
      return total;
    },
  };
}

export function newProfile(measured: Omit<EngineProfile, 'version'>): EngineProfile {
  return { version: PROFILE_VERSION, ...measured };
}

function fileOf(subject: ProfileSubject, folder: string): string {
  return join(folder, 'profiles', `${hash('sha256', JSON.stringify(subject)).slice(0, 32)}.json`);
}

function isAmount(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
