import { randomBytes } from 'node:crypto';
import { open, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';

/**
 * Writes a file so that it holds either all of the text or what it held before, whatever happens meanwhile: the text
 * goes to a file beside it, which then takes its name. What is not a plain file (a pipe, `/dev/null`) is written to as
 * it is.
 *
 * @param option what the user called the file on the command line, for the error
 *
 * Error: `WARMPATH_USAGE` if it cannot be written; nothing is left behind then.
 */
export async function writeWhole(file: string, text: string, option: string): Promise<void> {
  try {
    const target = await targetOf(file);
    if (target.isPlain) await replace(target.path, text);
    else await writeFile(target.path, text);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: option,
      detail: `cannot write ${file}: ${fileErrorReason(cause)}`,
      cause,
    });
  }
}

/** The file that a name stands for, links followed, so that a link stays one. */
async function targetOf(file: string): Promise<{ readonly path: string; readonly isPlain: boolean }> {
  try {
    const path = await realpath(file);
    return { path, isPlain: (await stat(path)).isFile() };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { path: file, isPlain: true };
    throw error;
  }
}

async function replace(path: string, text: string): Promise<void> {
  const draft = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}`);
  try {
    const handle = await open(draft, 'wx');
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}
