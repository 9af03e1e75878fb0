import { readFile } from 'node:fs/promises';
import { fileErrorReason, WarmpathError } from '@warmpath/core';

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
