import { createWriteStream } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { WarmpathError } from '@warmpath/core';

/**
 * Writes an export, whole or not at all, readable by this user only: it holds private texts.
 * Error: `WARMPATH_USAGE`, also where another export is being written there.
 */
export async function writeLines(file: string, lines: Readable): Promise<void> {
  const draft = `${file}.part`;
  try {
    await pipeline(lines, createWriteStream(draft, { mode: 0o600, flags: 'wx' }));
    await rename(draft, file);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code !== 'EEXIST') await rm(draft, { force: true });
    throw new WarmpathError('WARMPATH_USAGE', {
      path: 'file',
      detail: `cannot write ${draft}: ${String(code)}`,
      cause,
    });
  }
}
