import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';

/**
 * Where commands keep what no configuration names a folder for: `$WARMPATH_DATA_DIR`, else `$XDG_DATA_HOME/warmpath`,
 * else `~/.local/share/warmpath`.
 */
export function dataFolder({ WARMPATH_DATA_DIR: own, XDG_DATA_HOME: xdg }: NodeJS.ProcessEnv): string {
  if (own) return resolve(own);
  return join(xdg !== undefined && isAbsolute(xdg) ? xdg : join(homedir(), '.local', 'share'), 'warmpath');
}
