// Reads files in a process of its own: a file may be made to take long, or much memory, or to break the parser.
import { readSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { type ErrorCode, WarmpathError } from '@warmpath/core';
import type { NewPassage } from '../collections/records.js';
import type { ChunkSettings } from '../parse/chunk.js';
import type { FilePlace } from '../parse/document.js';
import type { TextFormat } from '../parse/formats.js';
import type { FoundFile } from './find-files.js';
import { type CutDocument, cutDocument, type DocumentFile, readDocument, readDocuments } from './read-file.js';
import type { MemoryWatch } from './watch-memory.js';

/** What the process is given to read. */
export type ReadTask = { readonly settings: ChunkSettings } & (
  | {
      /** Bytes that come through the standard input. */
      readonly length: number;
      readonly file: DocumentFile;
      readonly longest: number;
      /** Whether the bytes are a text for certain, in UTF-8. */
      readonly isText: boolean;
    }
  | {
      /** A file that the process opens. */
      readonly found: FoundFile;
      /** Hash of the file as it was: then it is not parsed. */
      readonly knownHash: string | undefined;
    }
);

/** A part of what was read. Passages belong to the document before them. */
export type ReadPart =
  | { readonly unread: FilePlace }
  | {
      readonly document: Omit<CutDocument, 'passages'>;
      readonly passageCount: number;
      /** Bytes of the file up to the end of the document, where it holds many. */
      readonly bytes: number;
    }
  | { readonly passages: readonly NewPassage[] }
  | { readonly end: { readonly hash: string | undefined; readonly isKnown: boolean; readonly residentBytes: number } }
  | { readonly error: { readonly code: string | undefined; readonly message: string; readonly isOurs: boolean } };

/** Parts of one message. The next one is sent when it is asked for. */
export type ReadParts = readonly ReadPart[];

/** UTF-16 units of one message, about: the other process does nothing else while it takes it. */
const MESSAGE_LENGTH = 262_144;
/** Passages of one part. */
const PASSAGES = 64;

let sendNext: (() => void) | undefined;
process.on('message', (message: ReadTask | 'next') => {
  if (message !== 'next') void perform(message);
  else sendNext?.();
});
process.on('disconnect', () => process.exit());
// The main thread cannot watch itself while it parses.
const watch: MemoryWatch = { limitBytes: Number(process.argv[2]), parent: process.ppid };
new Worker(fileURLToPath(new URL('./watch-memory.js', import.meta.url)), { workerData: watch, execArgv: [] }).unref();

async function perform(task: ReadTask): Promise<void> {
  let parts: ReadPart[] = [];
  let length = 0;
  const send = () => process.send!(parts satisfies ReadParts);
  try {
    for await (const part of partsOf(task)) {
      parts.push(part);
      length += lengthOf(part);
      if (length < MESSAGE_LENGTH) continue;
      const isAsked = new Promise<void>((resolve) => {
        sendNext = resolve;
      });
      send();
      parts = [];
      length = 0;
      await isAsked;
    }
  } catch (error) {
    const { code, message } = error as { readonly code?: ErrorCode; readonly message: string };
    parts.push({ error: { code, message, isOurs: WarmpathError.isInstance(error) } });
  }
  send();
}

function lengthOf(part: ReadPart): number {
  if ('passages' in part)
    return part.passages.reduce((sum, { content, title = '' }) => sum + content.length + title.length, 0);
  return JSON.stringify(part).length;
}

async function* partsOf(task: ReadTask): AsyncIterable<ReadPart> {
  const { signal } = new AbortController();
  const { settings } = task;
  const end = (hash?: string, isKnown = false) => ({
    end: { hash, isKnown, residentBytes: process.memoryUsage.rss() },
  });
  if ('file' in task) {
    const { file, longest, isText } = task;
    const bytes = takeInput(task.length);
    if (isText) {
      yield* partsOfDocument(
        await cutDocument({ ...file, content: bytes.toString(), format: file.format as TextFormat }, settings),
        0,
      );
    } else {
      const { document, unread } = await readDocument(bytes, file, settings, { signal, longest });
      for (const part of unread) yield { unread: part };
      yield* partsOfDocument(document, 0);
    }
    yield end();
    return;
  }
  const reading = await readDocuments(task.found, settings, signal);
  const isKnown = task.found.format !== 'jsonl' && task.knownHash !== undefined && reading.hash() === task.knownHash;
  if (!isKnown) {
    for await (const read of reading.documents()) {
      if ('message' in read) yield { unread: read };
      else yield* partsOfDocument(read, reading.bytes);
    }
  }
  yield end(reading.hash(), isKnown);
}

function* partsOfDocument({ passages, ...document }: CutDocument, bytes: number): Iterable<ReadPart> {
  yield { document, passageCount: passages.length, bytes };
  for (let from = 0; from < passages.length; from += PASSAGES)
    yield { passages: passages.slice(from, from + PASSAGES) };
}

function takeInput(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; ) {
    const count = readSync(0, bytes, at, length - at, null);
    // The other process has ended.
    if (count === 0) process.exit();
    at += count;
  }
  return bytes;
}
