import { stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WarmpathError } from '@warmpath/core';
import { type GgufHeader, readGgufHeader } from '../gguf/reader.js';
import { cacheFolder } from './cache-folder.js';
import { hubCacheSnapshot } from './hub-cache.js';
import { chooseHubFile } from './hub-choice.js';
import { downloadFromHub, downloadFromUrl, isIntact, parseHubUrl } from './hub-download.js';
import { type HubReference, hubParts } from './hub-reference.js';
import { hubTextOf, isModelUrl, modelUrlParts, parseModelUrl } from './model-url.js';
import type { ModelProgressListener } from './progress.js';

/** The demo model that comes with this package; the same place from the sources and from the build. */
const DEMO_PATH = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));
/** Its name in `/v1/models`, and `general.name` of its file. */
const DEMO_NAME = 'warmpath-tiny';
const DEMO_NOTICE =
  'This is a tiny demonstration model: it answers simple questions from the documents it is given and is no general model.';

const ACCEPTED_FORMS =
  'a path to a .gguf file, hf:org/repo/file.gguf or hf:org/repo[:Q4_K_M] (each may have @revision behind repo), https://host/file.gguf, or demo';

export interface ResolveModelOptions {
  /** Folder for downloaded models; by default what {@link cacheFolder} says. */
  readonly cacheDir?: string;
  readonly onProgress?: ModelProgressListener | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Base address of the hub; by default `$HF_ENDPOINT`, else the public one. */
  readonly hubUrl?: string;
  /** The hub's access token; by default `$HF_TOKEN`. */
  readonly token?: string;
  /** Where the demo model lies; by default inside this package. */
  readonly demoPath?: string;
}

/** A model file that is on this machine and whose header was checked. */
export interface ResolvedModel {
  /** Absolute path of the GGUF file. */
  readonly path: string;
  /** What `/v1/models` calls it. */
  readonly name: string;
  readonly kind: 'demo' | 'file' | 'hub' | 'url';
  /** One plain line that the user ought to see. */
  readonly notice?: string;
}

/**
 * Turns the name of a model into a file: `demo` (or nothing), `hf:org/repo[:quantisation]`, `hf:org/repo/file.gguf`,
 * the URL of a file, or a path. Downloads where needed. A URL of the hub means the hub's file. Files of
 * the hub that the Hugging Face tools have downloaded are used where they lie.
 *
 * Errors: `WARMPATH_MODEL_SPEC` (not a name of a model; says the accepted forms), `WARMPATH_MODEL_FILE`,
 * `WARMPATH_DOWNLOAD_FAILED`, the signal's reason.
 */
export async function resolveModel(
  spec: string | undefined,
  options: ResolveModelOptions = {},
): Promise<ResolvedModel> {
  if (spec === undefined || spec === 'demo') return resolveDemo(options);
  if (spec.startsWith('hf:')) return resolveHub(spec.slice('hf:'.length), options);
  if (isModelUrl(spec)) {
    const hubText = hubTextOf(spec, parseHubUrl(options.hubUrl));
    return hubText === undefined ? resolveUrl(spec, options) : resolveHub(hubText, options);
  }
  return resolveFile(spec);
}

async function resolveDemo(options: ResolveModelOptions): Promise<ResolvedModel> {
  const path = resolve(options.demoPath ?? DEMO_PATH);
  return describe({ path, name: DEMO_NAME, kind: 'demo' }, await readGgufHeader(path));
}

/** The demo model is known by what its file says, whatever the file is called. */
function describe(model: ResolvedModel, { metadata }: GgufHeader): ResolvedModel {
  return metadata.get('general.name')?.value === DEMO_NAME ? { ...model, kind: 'demo', notice: DEMO_NOTICE } : model;
}

async function resolveHub(text: string, options: ResolveModelOptions): Promise<ResolvedModel> {
  const { onProgress, signal } = options;
  const settings = {
    cacheDir: cacheDirOf(options),
    hubUrl: parseHubUrl(options.hubUrl),
    token: options.token ?? (process.env['HF_TOKEN']?.trim() || undefined),
    onProgress,
    signal,
  };
  const parts = hubParts(await chooseHubFile(text, settings));
  const paths = (await inHubCache(parts)) ?? [];
  if (paths.length === 0) for (const part of parts) paths.push(await downloadFromHub(part, settings));
  // llama.cpp finds the other parts by the name of the first.
  const path = paths[0]!;
  return { path, name: modelName(path), kind: 'hub' };
}

/** Paths of all parts in the cache of the Hugging Face tools; `undefined` where one is missing or cut short. */
async function inHubCache(parts: readonly HubReference[]): Promise<string[] | undefined> {
  const snapshot = await hubCacheSnapshot(parts[0]!);
  if (snapshot === undefined) return undefined;
  const paths = parts.map(({ segments }) => join(snapshot, ...segments));
  for (const path of paths) if (!(await isIntact(path))) return undefined;
  return paths;
}

async function resolveUrl(spec: string, options: ResolveModelOptions): Promise<ResolvedModel> {
  const { onProgress, signal } = options;
  const settings = { cacheDir: cacheDirOf(options), onProgress, signal };
  const paths: string[] = [];
  for (const part of modelUrlParts(parseModelUrl(spec))) paths.push(await downloadFromUrl(part, settings));
  const path = paths[0]!;
  return { path, name: modelName(path), kind: 'url' };
}

async function resolveFile(spec: string): Promise<ResolvedModel> {
  const looksLikePath = /[\\/]|\.gguf$/i.test(spec) && !/^[a-z][a-z0-9+.-]+:/i.test(spec);
  if (!looksLikePath && (spec === '' || !(await exists(spec)))) {
    throw new WarmpathError('WARMPATH_MODEL_SPEC', {
      path: 'model',
      detail: `${JSON.stringify(spec)} names no model; use ${ACCEPTED_FORMS}`,
    });
  }
  const path = resolve(spec);
  return describe({ path, name: modelName(path), kind: 'file' }, await readGgufHeader(path, spec));
}

function cacheDirOf({ cacheDir }: ResolveModelOptions): string {
  return cacheDir === undefined ? cacheFolder() : resolve(cacheDir);
}

/** The name of its file, without the number of a part. */
function modelName(path: string): string {
  return basename(path).replace(/(-\d{5}-of-\d{5})?\.gguf$/i, '');
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return false;
    throw new WarmpathError('WARMPATH_MODEL_FILE', { path, detail: `cannot be read: ${code}`, cause: error });
  }
}
