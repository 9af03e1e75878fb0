import { type ChildProcess, fork } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type GgufHeader, readGgufHeader } from '../gguf/reader.js';
import { cacheFolder } from '../models/cache-folder.js';
import { builtLibraries, hasWideVectors, processorIdentity } from './built-libraries.js';
import { type HeadShape, headShape, isUnsure, prefersNarrowVectors } from './head-shape.js';
import { LLAMA_RELEASE } from './library.js';

/** Argument that makes the entry point a process that times one variant of llama.cpp. */
export const VARIANT_ARGUMENT = '--time-variant';

/** Version of the notes; another one is not read. */
const NOTE_VERSION = 1;
/** Longest that a start may wait for the measurement. */
const LIMIT_MS = 3_000;
/** Pairs of timings, and the fewest that decide anything. */
const PAIRS = 7;
const MIN_PAIRS = 5;

/** Whether to compute without AVX-512, or with the best variant for this processor. */
export type VectorWidth = 'narrow' | 'wide';

/** What the same work took in both variants, one right behind the other, in milliseconds. */
export interface TimedPair {
  readonly narrow: number;
  readonly wide: number;
}

/** What a process is to time: the model, and the llama.cpp that computes it. */
export interface VariantToTime {
  readonly model: string;
  readonly threads: number;
  readonly narrowVectors: boolean;
  /** Folder of the libraries; the prebuilt ones when left out. */
  readonly directory?: string;
}

export interface VariantSettings {
  readonly threads: number;
  /** The cache folder. */
  readonly cacheDir?: string | undefined;
}

export interface VariantHooks {
  /** Measures anew what was measured before. */
  readonly again?: boolean;
  /** Injected for tests. */
  readonly time?: typeof timeVariants;
  readonly isWide?: boolean;
}

interface Note {
  readonly version: typeof NOTE_VERSION;
  readonly variant: VectorWidth | 'undecided';
  readonly pairs: readonly TimedPair[];
}

/**
 * The width of the vectors that suits a model: by the shape of its heads where that leaves no doubt, else as it was
 * measured when a model of its shape was first started on this processor. The shape decides as well where measuring
 * fails or the pairs contradict each other; that too is remembered, so that it costs one start alone.
 *
 * @param model Path of the model's file.
 * @throws WARMPATH_MODEL_FILE
 */
export async function chooseVectorWidth(
  model: string,
  { threads, cacheDir: folder = cacheFolder() }: VariantSettings,
  { again = false, time = timeVariants, isWide = hasWideVectors() }: VariantHooks = {},
): Promise<VectorWidth> {
  const header = await readGgufHeader(model);
  const shape = headShape(header);
  const byShape = prefersNarrowVectors(shape) ? 'narrow' : 'wide';
  if (!isWide || !isUnsure(shape)) {
    return byShape;
  }
  const directory = builtLibraries(folder);
  const file = noteFile(folder, { shape, header, isBuilt: directory !== undefined });
  let note = again ? undefined : await readFile(file, 'utf8').then(parseNote, () => undefined);
  if (note === undefined) {
    const pairs = await time({ model, threads, ...(directory !== undefined && { directory }) }).catch(() => []);
    note = { version: NOTE_VERSION, variant: decide(pairs) ?? 'undecided', pairs };
    // A cache folder that cannot be written costs the time to measure again and nothing else.
    await remember(file, note).catch(() => undefined);
  }
  return note.variant === 'undecided' ? byShape : note.variant;
}

/**
 * What pairs of timings say. Load by other programs comes and goes and falls on both of a pair, so a difference that
 * counts shows in each of them.
 *
 * @returns `undefined` where there are too few, or they do not agree.
 */
export function decide(pairs: readonly TimedPair[]): VectorWidth | undefined {
  if (pairs.length < MIN_PAIRS) {
    return undefined;
  }
  const faster = new Set(pairs.map(({ narrow, wide }) => (narrow < wide ? 'narrow' : 'wide')));
  return faster.size === 1 ? [...faster][0] : undefined;
}

/**
 * Times both variants in processes of their own, for a process loads one: in turns, one waiting for the other.
 *
 * @param limitMs After that the pairs made so far count.
 * @throws AbortError when one of them ends by itself.
 */
export async function timeVariants(
  { model, threads, directory }: Omit<VariantToTime, 'narrowVectors'>,
  limitMs: number = LIMIT_MS,
): Promise<TimedPair[]> {
  const limit = AbortSignal.timeout(limitMs);
  const pairs: TimedPair[] = [];
  const narrow = startTiming({ model, threads, narrowVectors: true });
  const wide = startTiming({ model, threads, narrowVectors: false, ...(directory !== undefined && { directory }) });
  try {
    await Promise.all([answerOf(narrow, limit), answerOf(wide, limit)]);
    while (pairs.length < PAIRS) {
      pairs.push({ narrow: await round(narrow, limit), wide: await round(wide, limit) });
    }
  } catch (error) {
    if (!limit.aborted) {
      throw error;
    }
  } finally {
    narrow.kill('SIGKILL');
    wide.kill('SIGKILL');
  }
  return pairs;
}

function startTiming(variant: VariantToTime): ChildProcess {
  const child = fork(fileURLToPath(new URL('../../dist/main.js', import.meta.url)), [VARIANT_ARGUMENT], {
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    execArgv: [],
  });
  child.on('error', () => undefined);
  child.send(variant, () => undefined);
  return child;
}

function round(child: ChildProcess, limit: AbortSignal): Promise<number> {
  child.send('round', () => undefined);
  return answerOf(child, limit);
}

async function answerOf(child: ChildProcess, limit: AbortSignal): Promise<number> {
  const gone = new AbortController();
  const onExit = (): void => gone.abort();
  child.once('exit', onExit);
  try {
    if (child.exitCode !== null || child.signalCode !== null) {
      onExit();
    }
    const [answer] = await once(child, 'message', { signal: AbortSignal.any([limit, gone.signal]) });
    return answer as number;
  } finally {
    child.off('exit', onExit);
  }
}

/** What the choice may depend on; the size of the file tells quantised weights from others. */
function noteFile(
  folder: string,
  { shape, header, isBuilt }: { readonly shape: HeadShape; readonly header: GgufHeader; readonly isBuilt: boolean },
): string {
  const subject = [NOTE_VERSION, LLAMA_RELEASE, isBuilt, processorIdentity(), shape, header.expectedBytes];
  return join(folder, 'variants', `${hash('sha256', JSON.stringify(subject)).slice(0, 32)}.json`);
}

async function remember(file: string, note: Note): Promise<void> {
  await mkdir(join(file, '..'), { recursive: true });
  const temporary = `${file}.${process.pid}.tmp`;
  await writeFile(temporary, `${JSON.stringify(note)}\n`);
  await rename(temporary, file);
}

/** @returns `undefined` for a note that was cut short or is of another version. */
function parseNote(text: string): Note | undefined {
  try {
    const note = JSON.parse(text) as Note | null;
    const isKnown = ['narrow', 'wide', 'undecided'].includes(String(note?.variant));
    return note?.version === NOTE_VERSION && isKnown ? note : undefined;
  } catch {
    return undefined;
  }
}
