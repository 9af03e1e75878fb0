import { readdir, rm, stat } from 'node:fs/promises';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { cacheFolder } from './cache-folder.js';
import { partialFiles } from './download.js';
import { acquireFileLock } from './file-lock.js';
import { isOfQuantisation, REPOSITORY } from './hub-choice.js';
import {
  hubFilePath,
  hubReferenceText,
  hubTextOf,
  isModelUrl,
  modelUrlPath,
  modelUrlText,
  parseHubReference,
  parseHubUrl,
  parseModelUrl,
  splitParts,
} from './model-name.js';

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
  readonly signal?: AbortSignal | undefined;
  /** Called once, when another process downloads the model. */
  readonly onWait?: (() => void) | undefined;
}

const HUB_FOLDER = 'hub';
const URL_FOLDERS = ['https', 'http'] as const;
const PARTIAL = /\.partial$/;

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
  for (const path of new Set([...sizes.keys()].map((file) => splitParts(file)[0]!))) {
    const model = modelOf(relative(root, path));
    if (model === undefined) continue;
    const parts = splitParts(path).map((part) => sizes.get(part));
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
  const found = find(spec, await listModels(cacheDir), resolve(cacheDir));
  const [stored] = found;
  if (stored === undefined || found.length > 1) {
    const detail =
      stored === undefined
        ? `${JSON.stringify(spec)} was not downloaded by Warmpath; \`warmpath models list\` shows what was`
        : `${JSON.stringify(spec)} names several models: ${found.map(({ model }) => model).join(', ')}`;
    throw new WarmpathError('WARMPATH_USAGE', { path: 'model', detail });
  }
  for (const part of splitParts(stored.path)) {
    const lock = await acquireFileLock(`${part}.lock`, { signal, onWait });
    try {
      for (const file of [part, ...partialFiles(part)]) await rm(file, { force: true });
    } finally {
      await lock.release();
    }
  }
  return stored;
}

function find(spec: string, models: readonly StoredModel[], root: string): readonly StoredModel[] {
  const hubText = spec.startsWith('hf:') ? spec.slice('hf:'.length) : hubTextOf(spec, parseHubUrl());
  const [, repository, quantisation] = REPOSITORY.exec(hubText ?? '') ?? [];
  if (repository !== undefined) {
    const folder = `${dirname(hubFilePath(parseHubReference(`${repository}/any.gguf`), root))}${sep}`;
    return models
      .filter(({ path }) => path.startsWith(folder))
      .filter(({ path }) => quantisation === undefined || isOfQuantisation(relative(folder, path), quantisation));
  }
  let path = resolve(spec);
  if (hubText !== undefined) path = hubFilePath(parseHubReference(hubText), root);
  else if (isModelUrl(spec)) path = modelUrlPath(parseModelUrl(spec), root);
  return models.filter((model) => model.path === splitParts(path)[0]);
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
