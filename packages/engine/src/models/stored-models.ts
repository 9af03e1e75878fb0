import { readdir, rm, stat } from 'node:fs/promises';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { cacheFolder } from './cache-folder.js';
import { acquireFileLock } from './file-lock.js';
import { isOfQuantisation } from './hub-choice.js';
import { parseHubUrl } from './hub-download.js';
import { hubFilePath, hubReferenceText, parseHubReference, splitPartNames } from './hub-reference.js';
import { hubTextOf, isModelUrl, modelUrlPath, modelUrlText, parseModelUrl } from './model-url.js';

/** A model in the cache folder. */
export interface StoredModel {
  /** As `--model` takes it. */
  readonly model: string;
  /** Absolute path of the file, or of the first part. */
  readonly path: string;
  /** Bytes on disk of all parts together. */
  readonly bytes: number;
  /** False where a download was broken off; the next one resumes it. */
  readonly complete: boolean;
}

export interface RemoveModelOptions {
  /** Folder for downloaded models; by default what {@link cacheFolder} says. */
  readonly cacheDir?: string | undefined;
  /** Base address of the hub; by default `$HF_ENDPOINT`, else the public one. */
  readonly hubUrl?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called once, when another process downloads the model. */
  readonly onWait?: (() => void) | undefined;
}

const HUB_FOLDER = 'hub';
const URL_FOLDERS = ['https', 'http'] as const;
const PARTIAL = /\.partial$/;

/** The models that were downloaded, by name. */
export async function listModels(cacheDir: string = cacheFolder()): Promise<readonly StoredModel[]> {
  const root = resolve(cacheDir);
  const sizes = new Map<string, { bytes: number; complete: boolean }>();
  for (const folder of [HUB_FOLDER, ...URL_FOLDERS]) {
    for (const file of await readdir(join(root, folder), { recursive: true }).catch(() => [])) {
      if (!/\.gguf(\.partial)?$/i.test(file)) continue;
      const path = join(root, folder, file);
      const status = await stat(path).catch(() => undefined);
      if (status?.isFile() !== true) continue;
      sizes.set(path.replace(PARTIAL, ''), { bytes: status.size, complete: !PARTIAL.test(path) });
    }
  }
  const models: StoredModel[] = [];
  for (const path of new Set([...sizes.keys()].map((file) => partsOf(file)[0]!))) {
    const model = modelOf(relative(root, path));
    if (model === undefined) continue;
    const parts = partsOf(path).map((part) => sizes.get(part));
    const bytes = parts.reduce((sum, part) => sum + (part?.bytes ?? 0), 0);
    models.push({ model, path, bytes, complete: parts.every((part) => part?.complete === true) });
  }
  return models.toSorted((one, other) => (one.model < other.model ? -1 : 1));
}

/**
 * Deletes a model that was downloaded, all parts of it and what an unfinished download left behind.
 *
 * @param spec A name as `listModels` has it, `hf:org/repo` where one file of it is there, or a path.
 * @returns what was deleted
 * @throws WarmpathError `WARMPATH_USAGE` where it is not there, or several are; `WARMPATH_MODEL_SPEC`.
 */
export async function removeModel(spec: string, options: RemoveModelOptions): Promise<StoredModel> {
  const { cacheDir = cacheFolder(), signal, onWait } = options;
  const found = find(spec, await listModels(cacheDir), options);
  const [stored] = found;
  if (stored === undefined || found.length > 1) {
    const detail =
      stored === undefined
        ? `${JSON.stringify(spec)} was not downloaded by Warmpath; \`warmpath models list\` shows what was`
        : `${JSON.stringify(spec)} names several models: ${found.map(({ model }) => model).join(', ')}`;
    throw new WarmpathError('WARMPATH_USAGE', { path: 'model', detail });
  }
  for (const part of partsOf(stored.path)) {
    const lock = await acquireFileLock(`${part}.lock`, { signal, onWait });
    try {
      for (const file of [part, `${part}.partial`, `${part}.partial.json`]) await rm(file, { force: true });
    } finally {
      await lock.release();
    }
  }
  return stored;
}

function find(spec: string, models: readonly StoredModel[], options: RemoveModelOptions): readonly StoredModel[] {
  const { cacheDir = cacheFolder(), hubUrl } = options;
  const root = resolve(cacheDir);
  const hubText = spec.startsWith('hf:') ? spec.slice('hf:'.length) : hubTextOf(spec, parseHubUrl(hubUrl));
  if (hubText === undefined) {
    const path = isModelUrl(spec) ? modelUrlPath(parseModelUrl(spec), root) : resolve(spec);
    return models.filter((model) => model.path === partsOf(path)[0]);
  }
  const [, repository, quantisation] = /^([^/]+\/[^/:]+)(?::([\w.-]+))?$/.exec(hubText) ?? [];
  const text = repository === undefined ? hubText : `${repository}/any.gguf`;
  const path = hubFilePath(parseHubReference(text), root);
  if (repository === undefined) return models.filter((model) => model.path === partsOf(path)[0]);
  const folder = `${dirname(path)}${sep}`;
  return models
    .filter((model) => model.path.startsWith(folder))
    .filter((model) => quantisation === undefined || isOfQuantisation(relative(folder, model.path), quantisation));
}

function partsOf(path: string): readonly string[] {
  const folder = dirname(path);
  return splitPartNames(path.slice(folder.length + 1)).map((file) => join(folder, file));
}

/** The name of a model by its path below the cache folder; `undefined` for what no download has put there. */
function modelOf(path: string): string | undefined {
  const [folder, place = '', ...rest] = path.split(sep);
  try {
    if (folder === HUB_FOLDER) {
      const [revision = '', ...segments] = rest;
      const [organisation, ...repository] = place.split('--');
      const at = `${organisation}/${repository.join('--')}@${revision}`;
      return hubReferenceText(parseHubReference(`${at}/${segments.join('/')}`));
    }
    const address = [place.replaceAll('%3A', ':'), ...rest.map(encodeURIComponent)].join('/');
    return modelUrlText(parseModelUrl(`${folder}://${address}`));
  } catch {
    return undefined;
  }
}
