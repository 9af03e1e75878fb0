import { type ReadStream, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import { timeLeft } from '@warmpath/lab';
import { percent } from '../terminal.js';

/** How much of a file is read, and how long the rest takes, as text to put behind something; empty for other input. */
export function readingProgress(file: string, input: NodeJS.ReadStream | ReadStream): () => string {
  const bytes = sizeOf(file);
  const startedAt = performance.now();
  return () => {
    if (bytes === 0 || !('bytesRead' in input)) return '';
    const done = Math.min(Number(input.bytesRead), bytes);
    return ` (${percent(done / bytes, 0)})  ${timeLeft(performance.now() - startedAt, done, bytes)}`;
  };
}

/** 0 for what has none that is known. */
function sizeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}

/** The text of a file, or of standard input if there is no name or it is `-`. Error: `WARMPATH_USAGE`. */
export async function readInput(file: string | undefined, stdin: NodeJS.ReadStream): Promise<string> {
  if (file === undefined || file === '-') {
    let text = '';
    for await (const chunk of stdin.setEncoding('utf8')) text += chunk;
    return text;
  }
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: 'file',
      detail: `cannot read ${file}: ${fileErrorReason(cause)}`,
      cause,
    });
  }
}
