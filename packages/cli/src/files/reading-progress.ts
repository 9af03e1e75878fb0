import { type ReadStream, statSync } from 'node:fs';
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
