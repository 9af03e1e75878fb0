import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { HubReference } from './hub-reference.js';

/** The variables that decide where the Hugging Face tools keep what they download. */
export interface HubCacheEnvironment {
  readonly HF_HUB_CACHE?: string | undefined;
  readonly HUGGINGFACE_HUB_CACHE?: string | undefined;
  readonly HF_HOME?: string | undefined;
  readonly XDG_CACHE_HOME?: string | undefined;
}

/** Folder in which the Hugging Face tools keep repositories, by their own rules. */
export function hubCacheFolder(environment: HubCacheEnvironment = process.env, home: string = homedir()): string {
  const { HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME } = environment;
  const cache = XDG_CACHE_HOME || join(home, '.cache');
  return HF_HUB_CACHE || HUGGINGFACE_HUB_CACHE || join(HF_HOME || join(cache, 'huggingface'), 'hub');
}

/**
 * Folder with the files of the reference's revision in the cache of the Hugging Face tools; `undefined` where they have
 * no such revision. Its files may be missing or cut short.
 */
export async function hubCacheSnapshot(reference: HubReference): Promise<string | undefined> {
  const { organisation, repository, revision } = reference;
  const folder = join(hubCacheFolder(), `models--${organisation}--${repository}`);
  const noted = await readFile(join(folder, 'refs', ...revision.split('/')), 'utf8').catch(() => revision);
  const commit = noted.trim();
  return /^[0-9a-f]{40}$/.test(commit) ? join(folder, 'snapshots', commit) : undefined;
}
