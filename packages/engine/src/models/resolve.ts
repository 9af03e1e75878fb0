import { stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WarmpathError } from '@warmpath/core';
import { cacheFolder, hubCacheSnapshot } from './cache-folder.js';
import { download, type ModelProgressListener } from './download.js';
import { checkGgufFile, isGgufFile } from './gguf-file.js';
import { chooseHubFile } from './hub-choice.js';
import {
  type HubReference,
  hubFilePath,
  hubFileUrl,
  hubReferenceText,
  hubTextOf,
  isModelUrl,
  modelUrlPath,
  modelUrlText,
  parseHubUrl,
  parseModelUrl,
  splitParts,
} from './model-name.js';
import type { RemoteFile } from './request-file.js';

/** The demo model that comes with this package; the same place from the sources and from the build. */
const DEMO_PATH = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));
/** Its name in `/v1/models`, and `general.name` of its file. */
export const DEMO_NAME = 'warmpath-tiny';

const ACCEPTED_FORMS =
  'a path to a .gguf file, hf:org/repo/file.gguf or hf:org/repo[:Q4_K_M] (each may have @revision behind repo), https://host/file.gguf, or demo';

export interface ResolveModelOptions {
  /** Folder for downloaded models; by default what {@link cacheFolder} says. */
  readonly cacheDir?: string;
  readonly onProgress?: ModelProgressListener | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface ResolvedModel {
  /** Absolute path of the GGUF file. */
  readonly path: string;
  readonly name: string;
  readonly kind: 'demo' | 'file' | 'hub' | 'url';
}

/**
 * Turns the name of a model into a file, downloaded where needed: `demo` (or nothing), `hf:org/repo[:quantisation]`,
 * `hf:org/repo/file.gguf`, a URL, or a path. Files that the Hugging Face tools have downloaded are used in place.
 *
 * @throws WARMPATH_MODEL_SPEC with the accepted forms, WARMPATH_MODEL_FILE, WARMPATH_DOWNLOAD_FAILED, the signal's
 *   reason.
 */
export async function resolveModel(
  spec: string | undefined,
  options: ResolveModelOptions = {},
): Promise<ResolvedModel> {
  if (spec === undefined || spec === 'demo') return { path: DEMO_PATH, name: DEMO_NAME, kind: 'demo' };
  const hubText = spec.startsWith('hf:') ? spec.slice('hf:'.length) : hubTextOf(spec, parseHubUrl());
  if (hubText !== undefined) return resolveHub(hubText, options);
  return isModelUrl(spec) ? resolveUrl(spec, options) : resolveFile(spec);
}

async function resolveHub(text: string, options: ResolveModelOptions): Promise<ResolvedModel> {
  const cacheDir = resolve(options.cacheDir ?? cacheFolder());
  const hubUrl = parseHubUrl();
  const token = process.env['HF_TOKEN']?.trim() || undefined;
  const reference = await chooseHubFile(text, { cacheDir, hubUrl, token, signal: options.signal });
  const parts = splitParts(reference.segments.join('/')).map((path) => ({ ...reference, segments: path.split('/') }));
  const kept = await inHubCache(parts);
  const files = parts.map((part) => hubFile(part, { cacheDir, hubUrl, token }));
  const path = kept ?? (await downloadAll(files, options));
  return { path, name: modelName(path), kind: 'hub' };
}

/** A file of the hub and its place in the cache folder. */
export function hubFile(
  reference: HubReference,
  { cacheDir, hubUrl, token }: { readonly cacheDir: string; readonly hubUrl: URL; readonly token?: string | undefined },
): RemoteFile {
  const name = hubReferenceText(reference);
  return { name, url: hubFileUrl(reference, hubUrl), path: hubFilePath(reference, cacheDir), server: 'hub', token };
}

/** Path of the first part in the cache of the Hugging Face tools; `undefined` unless all parts are whole there. */
async function inHubCache(parts: readonly HubReference[]): Promise<string | undefined> {
  const snapshot = await hubCacheSnapshot(parts[0]!);
  if (snapshot === undefined) return undefined;
  const paths = parts.map(({ segments }) => join(snapshot, ...segments));
  for (const path of paths) {
    if (!(await isGgufFile(path))) return undefined;
  }
  return paths[0];
}

async function resolveUrl(spec: string, options: ResolveModelOptions): Promise<ResolvedModel> {
  const cacheDir = resolve(options.cacheDir ?? cacheFolder());
  const given = parseModelUrl(spec);
  const files = splitParts(given.pathname).map((pathname): RemoteFile => {
    const url = new URL(given);
    url.pathname = pathname;
    return { name: modelUrlText(url), url, path: modelUrlPath(url, cacheDir), server: 'server' };
  });
  const path = await downloadAll(files, options);
  return { path, name: modelName(path), kind: 'url' };
}

/** @returns The path of the first part: llama.cpp finds the others by its name. */
async function downloadAll(files: readonly RemoteFile[], options: ResolveModelOptions): Promise<string> {
  for (const file of files) await download(file, options);
  return files[0]!.path;
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
  await checkGgufFile(path, spec);
  return { path, name: modelName(path), kind: 'file' };
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
