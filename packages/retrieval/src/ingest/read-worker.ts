import { parentPort, workerData } from 'node:worker_threads';
import { type ErrorCode, WarmpathError } from '@warmpath/core';
import type { NewPassage } from '../collections/records.js';
import type { ChunkSettings } from '../parse/chunk.js';
import { type CutDocument, type DocumentFile, readDocument, type UnreadPart } from './read-file.js';

/** What the thread is given. */
export interface ReadTask {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly file: DocumentFile;
  readonly settings: ChunkSettings;
  readonly longest: number;
}

/** What the thread says: first a document without its passages, or an error; then passages, each time it is asked. */
export type ReadOutcome =
  | { readonly document: Omit<CutDocument, 'passages'>; readonly unread: readonly UnreadPart[] }
  | { readonly passages: readonly NewPassage[]; readonly isLast: boolean }
  | { readonly error: { readonly code: ErrorCode; readonly message: string } };

/** Passages of one message: whoever gets them all at once does nothing else meanwhile. */
const BATCH = 256;

const port = parentPort!;
const say = (outcome: ReadOutcome) => port.postMessage(outcome);
const { bytes, file, settings, longest } = workerData as ReadTask;
try {
  const { signal } = new AbortController();
  const read = await readDocument(Buffer.from(bytes.buffer), file, settings, { signal, longest });
  const { passages, ...document } = read.document;
  let next = 0;
  port.on('message', () => {
    const from = next;
    next += BATCH;
    say({ passages: passages.slice(from, next), isLast: next >= passages.length });
  });
  say({ document, unread: read.unread });
} catch (error) {
  if (!WarmpathError.isInstance(error)) throw error;
  say({ error: { code: error.code, message: error.message } });
}
