import { constants } from 'node:fs';
import { type FileHandle, lstat, open, opendir, realpath, stat } from 'node:fs/promises';
import { basename, dirname, extname, join, relative, resolve, sep } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import { type DocumentFormat, formatOfPath } from '../parse/formats.js';

/** What a file is read as. */
type FileFormat = DocumentFormat | 'jsonl';

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

/** A symbolic link that was found in a folder. */
export interface FoundLink {
  /** As documents are named: the folder that was asked for, and the way from there. */
  readonly link: string;
  /** Absolute, links followed. */
  readonly target: string;
}

/** What was found under the paths of one run. */
export interface FoundFiles {
  readonly files: readonly FoundFile[];
  /** Folders that were walked as a whole: files known from there that were not found are gone. */
  readonly folders: readonly string[];
  readonly errors: readonly IngestError[];
  /** Links that were followed, and links whose target was left out. */
  readonly followedLinks: readonly FoundLink[];
  readonly skippedLinks: readonly FoundLink[];
}

/** Extensions of files that hold a document a line. */
const LINE_EXTENSIONS = new Set(['.jsonl', '.ndjson']);
/** Folders in which nobody keeps documents. */
const LEFT_OUT = new Set(['node_modules', '__pycache__']);
/** Files of one run. */
const MAX_FILES = 1_000_000;

/**
 * Files under the given paths, in the order of their names. Hidden files and folders, sockets, pipes and devices are
 * left out. A link in a folder is followed only with `followLinks`; a path that is itself a link names its target. Each
 * folder is searched once. In a BEIR folder the corpus is the documents.
 */
export async function findFiles(
  paths: readonly string[],
  { signal, followLinks = false }: { readonly signal: AbortSignal; readonly followLinks?: boolean },
): Promise<FoundFiles> {
  const files = new Map<string, FoundFile>();
  const folders: string[] = [];
  const searched = new Set<string>();
  const followedLinks: FoundLink[] = [];
  const leftLinks: FoundLink[] = [];
  const errors: IngestError[] = [];
  const fail = (file: string, cause: unknown) =>
    errors.push({ file, message: `cannot read: ${fileErrorReason(cause)}` });

  const addFile = async (path: string, name: string, isNamed: boolean) => {
    const { size, mtimeMs } = await stat(path);
    if (files.size >= MAX_FILES) throw new RangeError(`more than ${MAX_FILES.toLocaleString('en')} files`);
    const format = LINE_EXTENSIONS.has(extname(path).toLowerCase()) ? 'jsonl' : formatOfPath(path);
    files.set(path, { path, name, format, isNamed, size, modifiedMs: mtimeMs });
  };

  const walk = async (folder: string, name: string, above: ReadonlySet<string>) => {
    signal.throwIfAborted();
    if (searched.has(folder)) return;
    searched.add(folder);
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
        if (entry.isLink && !followLinks) {
          leftLinks.push({ link: shown, target: path });
          continue;
        }
        const kind = await lstat(path);
        if (entry.isLink && (kind.isDirectory() || kind.isFile())) followedLinks.push({ link: shown, target: path });
        if (kind.isDirectory()) {
          if (above.has(path)) errors.push({ file: shown, message: 'its links lead in a circle: left out' });
          else await walk(path, shown, new Set([...above, path]));
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
  // What a link leads to may have been found by its own name.
  const skippedLinks = leftLinks.filter(({ target }) => !files.has(target) && !searched.has(target));
  return { files: [...files.values()], folders, errors, followedLinks, skippedLinks };
}

/**
 * Opens a found file to read it. Between the search and this call, a file or a folder above it may have become a link:
 * then the file is refused. Never waits for a pipe. Errors: WARMPATH_UNREADABLE_FILE, those of the file system.
 */
export async function openFound({ path }: FoundFile): Promise<FileHandle> {
  const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants;
  const handle = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const [opened, there, real] = await Promise.all([handle.stat(), lstat(path), realpath(path)]);
    if (opened.isFile() && real === path && opened.dev === there.dev && opened.ino === there.ino) return handle;
    const detail = 'it was replaced while it was opened: run the command again';
    throw new WarmpathError('WARMPATH_UNREADABLE_FILE', { detail });
  } catch (error) {
    await handle.close();
    throw error;
  }
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
