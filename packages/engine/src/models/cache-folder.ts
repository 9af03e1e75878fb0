import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import type { HubReference } from './model-name.js';

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Folder for downloaded models: `$WARMPATH_CACHE_DIR`, else `$XDG_CACHE_HOME/warmpath`, else `~/.cache/warmpath`. A
 * relative XDG path is ignored, as the XDG specification asks.
 */
export function cacheFolder(environment: Environment = process.env, home: string = homedir()): string {
  const { WARMPATH_CACHE_DIR: own, XDG_CACHE_HOME: xdg } = environment;
  if (own) return resolve(own);
  return xdg && isAbsolute(xdg) ? join(xdg, 'warmpath') : join(home, '.cache', 'warmpath');
}

/** Folder in which the Hugging Face tools keep repositories, by their own rules. */
export function hubCacheFolder(environment: Environment = process.env, home: string = homedir()): string {
  const { HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME } = environment;
  const cache = XDG_CACHE_HOME || join(home, '.cache');
  return HF_HUB_CACHE || HUGGINGFACE_HUB_CACHE || join(HF_HOME || join(cache, 'huggingface'), 'hub');
}

/**
 * Folder with the files of a revision in the cache of the Hugging Face tools; `undefined` without that revision. Files
 * may be missing or incomplete.
 */
export async function hubCacheSnapshot(reference: HubReference): Promise<string | undefined> {
  const { organisation, repository, revision } = reference;
  const folder = join(hubCacheFolder(), `models--${organisation}--${repository}`);
  const noted = await readFile(join(folder, 'refs', ...revision.split('/')), 'utf8').catch(() => revision);
  const commit = noted.trim();
  return /^[0-9a-f]{40}$/.test(commit) ? join(folder, 'snapshots', commit) : undefined;
}
