import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';

/** The variables that decide where models are kept. */
export interface CacheEnvironment {
  readonly WARMPATH_CACHE_DIR?: string | undefined;
  readonly XDG_CACHE_HOME?: string | undefined;
}

/**
 * Folder in which downloaded models are kept: `$WARMPATH_CACHE_DIR`, else `$XDG_CACHE_HOME/warmpath`, else
 * `~/.cache/warmpath`. An XDG path that is not absolute is passed over, as the XDG specification asks. Absolute; the
 * folder need not be there.
 */
export function cacheFolder(environment: CacheEnvironment = process.env, home: string = homedir()): string {
  const { WARMPATH_CACHE_DIR: own, XDG_CACHE_HOME: xdg } = environment;
  if (own !== undefined && own !== '') return resolve(own);
  if (xdg !== undefined && isAbsolute(xdg)) return join(xdg, 'warmpath');
  return join(home, '.cache', 'warmpath');
}
