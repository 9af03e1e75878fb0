import { opendir, realpath, stat } from 'node:fs/promises';
import { basename, dirname, extname, join, relative, resolve, sep } from 'node:path';
import { fileErrorReason } from '@warmpath/core';

/** What a file is read as. */
type FileFormat = 'markdown' | 'text' | 'html' | 'pdf' | 'jsonl';

/** A file to be ingested. */
export interface FoundFile {
  /** Absolute, links followed. */
  readonly path: string;
  /** What its documents are called: the name of the folder that was asked for, and the way from there. */
  readonly name: string;
  /** Undefined where the name does not tell: then what is text is read as such, and what is not is left out. */
  readonly format: FileFormat | undefined;
  /** Whether it was asked for by its name, and not found in a folder: then it is not left out without a word. */
  readonly isNamed: boolean;
  readonly size: number;
  readonly modifiedMs: number;
}

/** Something that was left out, and why. */
export interface IngestError {
  readonly file: string;
  /** Line or page, where one is known. */
  readonly position?: string;
  readonly message: string;
}

/** What was found under the paths of one run. */
export interface FoundFiles {
  readonly files: readonly FoundFile[];
  /** Folders that were walked as a whole: files known from there that were not found are gone. */
  readonly folders: readonly string[];
  readonly errors: readonly IngestError[];
}

const FORMATS: Readonly<Record<string, FileFormat>> = {
  '.md': 'markdown',
  '.markdown': 'markdown',
  '.mdx': 'markdown',
  '.txt': 'text',
  '.text': 'text',
  '.html': 'html',
  '.htm': 'html',
  '.xhtml': 'html',
  '.pdf': 'pdf',
  '.jsonl': 'jsonl',
  '.ndjson': 'jsonl',
};
/** Folders in which nobody keeps documents. */
const LEFT_OUT = new Set(['node_modules', '__pycache__']);
/** Files of one run. */
const MOST_FILES = 1_000_000;

/**
 * Files under the given paths, in the order of their names. Hidden ones are left out unless they are named; links are
 * followed, each folder once, so that a circle of links ends. In a BEIR folder the corpus is the documents.
 */
export async function findFiles(paths: readonly string[], signal: AbortSignal): Promise<FoundFiles> {
  const files = new Map<string, FoundFile>();
  const folders: string[] = [];
  const errors: IngestError[] = [];
  const fail = (file: string, cause: unknown) =>
    errors.push({ file, message: `cannot read: ${fileErrorReason(cause)}` });

  const addFile = async (path: string, name: string, isNamed: boolean) => {
    const { size, mtimeMs } = await stat(path);
    if (files.size >= MOST_FILES) throw new RangeError(`more than ${MOST_FILES.toLocaleString('en')} files`);
    const format = FORMATS[extname(path).toLowerCase()];
    files.set(path, { path, name, format, isNamed, size, modifiedMs: mtimeMs });
  };

  const walk = async (folder: string, name: string, above: ReadonlySet<string>) => {
    signal.throwIfAborted();
    const entries: { readonly name: string; readonly isLink: boolean }[] = [];
    for await (const entry of await opendir(folder)) {
      if (!entry.name.startsWith('.') && !LEFT_OUT.has(entry.name)) {
        entries.push({ name: entry.name, isLink: entry.isSymbolicLink() });
      }
    }
    entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    const isBeir = ['corpus.jsonl', 'queries.jsonl', 'qrels'].every((part) => entries.some((e) => e.name === part));
    for (const entry of entries) {
      if (isBeir && entry.name !== 'corpus.jsonl') continue;
      const shown = `${name}/${entry.name}`;
      try {
        const path = entry.isLink ? await realpath(join(folder, entry.name)) : join(folder, entry.name);
        const kind = await stat(path);
        if (kind.isDirectory()) {
          if (above.has(path)) errors.push({ file: shown, message: 'its links lead in a circle: left out' });
          else if (!folders.includes(path) || !entry.isLink) await walk(path, shown, new Set([...above, path]));
        } else if (kind.isFile() && !files.has(path)) await addFile(path, shown, false);
      } catch (cause) {
        if (signal.aborted || cause instanceof RangeError) throw cause;
        fail(shown, cause);
      }
    }
  };

  for (const asked of paths) {
    try {
      const path = await realpath(resolve(asked));
      const kind = await stat(path);
      if (kind.isDirectory()) {
        folders.push(path);
        await walk(path, basename(path) || 'root', new Set([path]));
      } else if (kind.isFile()) await addFile(path, basename(path), true);
      else errors.push({ file: asked, message: 'is neither a file nor a folder' });
    } catch (cause) {
      if (signal.aborted || cause instanceof RangeError) throw cause;
      fail(asked, cause);
    }
  }
  return { files: [...files.values()], folders, errors };
}

/** The path that an ingestion knew something by, whether it is still there or not: absolute, links followed. */
export async function originOf(asked: string): Promise<string> {
  const path = resolve(asked);
  try {
    return await realpath(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(await originOf(parent), basename(path));
  }
}

/** Whether a path lies in a folder. */
export function isWithin(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== '' && way !== '..' && !way.startsWith(`..${sep}`);
}
