import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { WarmpathError } from '@warmpath/core';
import type { PrefillProfile } from '@warmpath/core/internal';
import type { NativeContext } from '../native/context.js';
import { StateStore } from '../store/state-store.js';
import type { EngineProfile } from './engine-profile.js';

/** The sequence that everything is measured on. */
const SEQUENCE = 1;
/** Numbers of new tokens that are measured, as far as half the context goes. */
const NEW_TOKENS = [1, 16, 64, 256, 1024, 4096];
/** Numbers of cached tokens, as shares of the context. */
const CACHED_SHARES = [0, 1 / 16, 1 / 4, 1 / 2];
/** Each point is measured so often, and the median counts; a point that takes long is measured once. */
const ROUNDS = 3;
const LONG_MS = 2_000;
/** Tokens of the state with which copies are measured. */
const COPY_TOKENS = 512;

/** How far measuring has come. */
export interface ProfileProgress {
  /** Tokens computed so far, and in all; what is measured in fewer rounds is counted as if it were not. */
  readonly tokens: number;
  readonly totalTokens: number;
}

export interface MeasureOptions {
  readonly context: NativeContext;
  /** Most tokens of one decode. */
  readonly batchTokens: number;
  /** Most tokens of a request. */
  readonly contextTokens: number;
  /** A folder on the disk to measure. */
  readonly diskFolder: string | undefined;
  readonly onProgress: (progress: ProfileProgress) => void;
  readonly signal: AbortSignal | undefined;
}

/**
 * Measures what computing tokens behind cached ones takes over a grid, and copying cells to host memory and back, and
 * files. Alone on the machine, or it measures the others too. Cost: up to ten contexts of tokens.
 *
 * @throws The signal's reason; WARMPATH_ENGINE_FAILED when a decode fails.
 */
export async function measureEngine(options: MeasureOptions): Promise<Omit<EngineProfile, 'version' | 'subject'>> {
  const prefill = await measurePrefill(options);
  const { context, diskFolder } = options;
  const state = await stateToCopy(options);
  const to = Math.min(COPY_TOKENS, options.contextTokens);
  const samples = { save: [] as number[], restore: [] as number[] };
  for (let round = 0; round < ROUNDS; round++) {
    samples.save.push(await timed(() => context.save(SEQUENCE, 0, to)));
    context.remove(SEQUENCE, 0, -1);
    samples.restore.push(await timed(() => crc32(state) >= 0 && context.restore(SEQUENCE, state, 0, to)));
  }
  context.remove(SEQUENCE, 0, -1);
  const hostCopy = {
    saveMsPerByte: median(samples.save) / state.length,
    restoreMsPerByte: median(samples.restore) / state.length,
  };
  return {
    prefill,
    hostCopy,
    ...(diskFolder !== undefined && { disk: await measureDisk(diskFolder, state) }),
  };
}

async function measurePrefill(options: MeasureOptions): Promise<PrefillProfile> {
  const { context, contextTokens, onProgress, signal } = options;
  const cachedTokens = [...new Set(CACHED_SHARES.map((share) => Math.floor(share * contextTokens)))];
  const newTokens = NEW_TOKENS.filter((count) => count <= contextTokens / 2);
  const perRow = ROUNDS * newTokens.reduce((sum, count) => sum + count, 0);
  const totalTokens = cachedTokens.length * perRow + cachedTokens.at(-1)!;
  let tokens = 0;
  const prefillMs: number[][] = [];
  let cached = 0;
  for (const wanted of cachedTokens) {
    await compute(options, cached, wanted - cached);
    tokens += wanted - cached;
    cached = wanted;
    const row: number[] = [];
    for (const count of newTokens) {
      const samples: number[] = [];
      while (samples.length < ROUNDS && (samples[0] ?? 0) < LONG_MS) {
        signal?.throwIfAborted();
        samples.push(await timed(() => compute(options, cached, count)));
        context.remove(SEQUENCE, cached, -1);
      }
      tokens += ROUNDS * count;
      onProgress({ tokens, totalTokens });
      row.push(median(samples));
    }
    prefillMs.push(row);
  }
  context.remove(SEQUENCE, 0, -1);
  return { cachedTokens, newTokens, prefillMs };
}

async function stateToCopy(options: MeasureOptions): Promise<Uint8Array> {
  const to = Math.min(COPY_TOKENS, options.contextTokens);
  await compute(options, 0, to);
  const state = options.context.save(SEQUENCE, 0, to);
  if (state === undefined) {
    throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'The cells of this model cannot be copied' });
  }
  return state;
}

async function measureDisk(folder: string, state: Uint8Array): Promise<NonNullable<EngineProfile['disk']>> {
  const directory = await mkdtemp(join(folder, 'profile-'));
  const { store } = await StateStore.open({
    directory,
    capacityBytes: Number.MAX_SAFE_INTEGER,
    identity: { model: '', library: '', cells: '' },
    clock: () => performance.now(),
    onWarning: () => undefined,
  });
  try {
    const samples = { write: [] as number[], read: [] as number[] };
    for (let round = 0; round < ROUNDS; round++) {
      const record = { salt: '', tokens: [round], from: 0, state, checksum: crc32(state), uses: 0 };
      const file = store.put(record);
      samples.write.push(await timed(() => store.settled()));
      samples.read.push(await timed(() => store.read(file)));
    }
    return {
      writeMsPerByte: median(samples.write) / state.length,
      readMsPerByte: median(samples.read) / state.length,
    };
  } finally {
    await store.close();
    await rm(directory, { recursive: true, force: true });
  }
}

/** Computes tokens behind what the sequence holds, as the engine does: in batches, with logits for the last one. */
async function compute({ context, batchTokens }: MeasureOptions, from: number, count: number): Promise<void> {
  for (let done = 0; done < count; done += batchTokens) {
    const end = Math.min(count, done + batchTokens);
    context.batch.clear();
    for (let index = done; index < end; index++) {
      // Any token will do: the time does not depend on which.
      context.batch.add(0, from + index, SEQUENCE, index === count - 1);
    }
    const code = await context.decode();
    if (code !== 0) {
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: `llama_decode gave ${code}` });
    }
  }
}

async function timed(work: () => unknown): Promise<number> {
  const startedMs = performance.now();
  await work();
  return performance.now() - startedMs;
}

function median(numbers: readonly number[]): number {
  return [...numbers].sort((a, b) => a - b)[numbers.length >> 1]!;
}
