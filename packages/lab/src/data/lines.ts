import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';

/** UTF-16 units of one line; longer ones are refused, because a line is held whole. */
const MAX_LINE_LENGTH = 2 ** 24;

/** One line of a file, counted from 1, without its end. */
export interface Line {
  readonly number: number;
  readonly text: string;
}

export interface ReadLinesOptions {
  /** Read instead of the file, whose name then serves for errors alone. */
  readonly input?: Readable;
  /** Ends the reading as if the file ended there, also while it waits for input. */
  readonly signal?: AbortSignal;
}

/**
 * The lines of a UTF-8 file that are not blank, one at a time. Holds one line and one piece of the file in memory.
 *
 * Errors: `WARMPATH_USAGE` if the file cannot be read; `WARMPATH_BODY_TOO_LARGE` with the line's number for a line of
 * more than 16 Mi characters.
 */
export async function* readLines(
  file: string,
  { input = createReadStream(file), signal }: ReadLinesOptions = {},
): AsyncGenerator<Line> {
  let number = 1;
  let rest = '';
  for await (const piece of pieces(file, input, signal)) {
    let from = 0;
    for (let end = piece.indexOf('\n'); end >= 0; end = piece.indexOf('\n', from)) {
      const text = rest + piece.slice(from, end);
      from = end + 1;
      rest = '';
      if (text.trim() !== '') yield { number, text };
      number++;
    }
    rest += piece.slice(from);
    if (rest.length > MAX_LINE_LENGTH) {
      const detail = `A line may have ${MAX_LINE_LENGTH} characters.`;
      throw new WarmpathError('WARMPATH_BODY_TOO_LARGE', { path: `line ${number}`, detail });
    }
  }
  if (rest.trim() !== '' && signal?.aborted !== true) yield { number, text: rest };
}

async function* pieces(file: string, input: Readable, signal: AbortSignal | undefined): AsyncGenerator<string> {
  input.setEncoding('utf8');
  const stop = () => input.destroy();
  signal?.addEventListener('abort', stop, { once: true });
  try {
    for await (const piece of input) yield piece as string;
  } catch (cause) {
    if (signal?.aborted === true) return;
    throw new WarmpathError('WARMPATH_USAGE', {
      path: 'file',
      detail: `cannot read ${file}: ${fileErrorReason(cause)}`,
      cause,
    });
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}
