import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isFull } from './suite.js';

/**
 * Gives the run a folder for temporary files. Files that are left in it at the end fail `npm test`. The full suite
 * kills processes, which leave theirs.
 */
export function setup(): (() => void) | undefined {
  // Each project of a run sets up; they share one folder.
  if (process.env['WARMPATH_TEST_FOLDER'] !== undefined) return undefined;
  const folder = mkdtempSync(join(tmpdir(), 'warmpath-test-'));
  process.env['WARMPATH_TEST_FOLDER'] = folder;
  process.env['TMPDIR'] = folder;
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  return () => {
    const left = readdirSync(folder);
    if (left.length === 0 || isFull) return;
    process.stderr.write(`Tests left temporary files behind: ${left.join(', ')}\n`);
    process.exitCode = 1;
  };
}
