import { constants, type Dirent } from 'node:fs';
import { type FileHandle, lstat, open, opendir, readlink, realpath, stat } from 'node:fs/promises';
import { basename, dirname, extname, join, relative, resolve, sep } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import { type DocumentFormat, formatOfPath } from '../parse/formats.js';
import { IgnoreRules, patternsOf } from './ignore-rules.js';

/** What a file is read as. */
type FileFormat = DocumentFormat | 'jsonl';

/** A file to be ingested. */
export interface FoundFile {
  /** Absolute, with the links that lead to it: it stays the same when a link gets another target. */
  readonly path: string;
  /** Absolute, links followed. */
  readonly realPath: string;
  /** What its documents are called: the name of the folder that was asked for, and the way from there. */
  readonly name: string;
  /** Undefined where the name does not tell: then what is text is read as such, and what is not is left out. */
  readonly format: FileFormat | undefined;
  /** Whether it was asked for by its name, and not found in a folder: then it is not left out without an error. */
  readonly isNamed: boolean;
  readonly size: number;
  readonly modifiedMs: number;
}

/** Something that could not be read, and why. */
export interface IngestError {
  readonly file: string;
  /** Line or page, where one is known. */
  readonly position?: string;
  readonly message: string;
}

/** A file or a folder that was left out, and why. */
export interface SkippedFile {
  readonly file: string;
  readonly reason: string;
}

/** A symbolic link that was found in a folder. */
export interface FoundLink {
  /** As documents are named: the folder that was asked for, and the way from there. */
  readonly link: string;
  /** Absolute, links followed. */
  readonly target: string;
}

export interface FindOptions {
  /** Whether links in folders are followed, out of the folder too. */
  readonly followLinks?: boolean;
  /** Patterns as `.gitignore` has them, from the folder that was asked for: only files that one of them names. */
  readonly include?: readonly string[];
  /** The same: neither files nor folders that one of them names. */
  readonly exclude?: readonly string[];
}

/** What was found under the paths of one run. */
export interface FoundFiles {
  readonly files: readonly FoundFile[];
  /** Folders that were walked as a whole: files known from there that were not found have left. */
  readonly folders: readonly string[];
  readonly errors: readonly IngestError[];
  readonly skipped: readonly SkippedFile[];
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
 * Files under the given paths. Left out are hidden files and folders, what ignore files and patterns name, sockets,
 * pipes and devices. A link in a folder is followed only with `followLinks`. Each file is found once, by its own name
 * where it has one. In a BEIR folder the corpus is the documents.
 */
export async function findFiles(
  paths: readonly string[],
  { signal, ...options }: FindOptions & { readonly signal: AbortSignal },
): Promise<FoundFiles> {
  const search = new FileSearch(options, signal);
  for (const path of paths) await search.take(path);
  return search.finish();
}

/** A place that the search has come to. */
interface Place {
  readonly path: string;
  readonly realPath: string;
  readonly name: string;
  /** The folder that was asked for. */
  readonly root: string;
  /** Folders above it, links followed. */
  readonly above: ReadonlySet<string>;
  readonly rules: IgnoreRules | undefined;
}

class FileSearch {
  readonly #signal: AbortSignal;
  readonly #followsLinks: boolean;
  readonly #include: ReturnType<typeof patternsOf> | undefined;
  readonly #exclude: ReturnType<typeof patternsOf>;
  /** By real path. */
  readonly #files = new Map<string, FoundFile>();
  readonly #searched = new Set<string>();
  readonly #links: Place[] = [];
  readonly #folders: string[] = [];
  readonly #errors: IngestError[] = [];
  readonly #skipped: SkippedFile[] = [];
  readonly #followedLinks: FoundLink[] = [];
  readonly #leftLinks: FoundLink[] = [];

  constructor({ followLinks = false, include, exclude = [] }: FindOptions, signal: AbortSignal) {
    this.#signal = signal;
    this.#followsLinks = followLinks;
    this.#include = include && patternsOf(include);
    this.#exclude = patternsOf(exclude);
  }

  /** Searches a path that was asked for. */
  async take(asked: string): Promise<void> {
    await this.#orFail(asked, async () => {
      const path = resolve(asked);
      const realPath = await realpath(path);
      const kind = await stat(path);
      const name = basename(path) || 'root';
      const place = { path, realPath, name, above: new Set<string>(), rules: undefined };
      if (kind.isDirectory()) {
        this.#folders.push(path);
        await this.#walk({ ...place, root: path, rules: await IgnoreRules.readAbove(path) });
      } else if (!kind.isFile()) this.#errors.push({ file: asked, message: 'is neither a file nor a folder' });
      else if (!this.#skips({ ...place, root: dirname(path) }, false)) await this.#addFile(place, true);
    });
  }

  /** Follows links, after everything that has a name of its own. */
  async finish(): Promise<FoundFiles> {
    for (const link of this.#links) await this.#orFail(link.name, () => this.#follow(link));
    return {
      files: [...this.#files.values()],
      folders: this.#folders,
      errors: this.#errors,
      skipped: this.#skipped,
      followedLinks: this.#followedLinks,
      // What a link leads to may have been found by its own name.
      skippedLinks: this.#leftLinks.filter(({ target }) => !this.#files.has(target) && !this.#searched.has(target)),
    };
  }

  async #walk(folder: Place): Promise<void> {
    this.#signal.throwIfAborted();
    if (this.#searched.has(folder.realPath)) return;
    this.#searched.add(folder.realPath);
    const entries: Dirent[] = [];
    for await (const entry of await opendir(folder.realPath)) entries.push(entry);
    entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    const isBeir = ['corpus.jsonl', 'queries.jsonl', 'qrels'].every((part) => entries.some((e) => e.name === part));
    const rules = await IgnoreRules.read(folder.path, folder.rules);
    const above = new Set([...folder.above, folder.realPath]);
    for (const entry of entries) {
      const name = `${folder.name}/${entry.name}`;
      const path = join(folder.path, entry.name);
      const place = { path, realPath: join(folder.realPath, entry.name), name, root: folder.root, above, rules };
      if (isBeir && entry.name !== 'corpus.jsonl') this.#skip(name, 'not the corpus of its BEIR folder');
      else if (this.#skips(place, !entry.isFile())) continue;
      else if (entry.isSymbolicLink()) await this.#orFail(name, () => this.#takeLink(place));
      else await this.#orFail(name, () => this.#takeEntry(place));
    }
  }

  async #takeEntry(place: Place): Promise<void> {
    const kind = await lstat(place.realPath);
    if (kind.isDirectory()) await this.#walk(place);
    else if (kind.isFile()) await this.#addFile(place, false);
    else this.#skip(place.name, 'neither a file nor a folder');
  }

  async #takeLink(place: Place): Promise<void> {
    if (this.#followsLinks) {
      this.#links.push(place);
      return;
    }
    const target = await realpath(place.realPath).catch(async () =>
      resolve(dirname(place.realPath), await readlink(place.realPath)),
    );
    this.#leftLinks.push({ link: place.name, target });
  }

  async #follow(link: Place): Promise<void> {
    const target = await realpath(link.realPath);
    const kind = await lstat(target);
    if (kind.isDirectory() || kind.isFile()) this.#followedLinks.push({ link: link.name, target });
    if (kind.isDirectory()) {
      if (link.above.has(target))
        this.#errors.push({ file: link.name, message: 'its links lead in a circle: left out' });
      else if (!this.#skips(link, true)) await this.#walk({ ...link, realPath: target });
    } else if (kind.isFile() && !this.#skips(link, false)) {
      await this.#addFile({ ...link, realPath: target }, false);
    }
  }

  async #addFile({ path, realPath, name }: Omit<Place, 'root'>, isNamed: boolean): Promise<void> {
    const known = this.#files.get(realPath);
    if (known !== undefined) {
      if (isNamed) this.#files.set(realPath, { ...known, isNamed });
      return;
    }
    const { size, mtimeMs } = await stat(realPath);
    if (this.#files.size >= MAX_FILES) throw new RangeError(`more than ${MAX_FILES.toLocaleString('en')} files`);
    const format = LINE_EXTENSIONS.has(extname(path).toLowerCase()) ? 'jsonl' : formatOfPath(path);
    this.#files.set(realPath, { path, realPath, name, format, isNamed, size, modifiedMs: mtimeMs });
  }

  /** Whether something is left out by its name, which is then told. */
  #skips({ path, name, root, rules }: Place, isFolder: boolean): boolean {
    const own = basename(path);
    const way = relative(root, path).split(sep).join('/') + (isFolder ? '/' : '');
    const isNamed = rules === undefined;
    const ignoredBy = rules?.nameFor(path, isFolder);
    if (!isNamed && own.startsWith('.')) this.#skip(name, 'hidden');
    else if (!isNamed && LEFT_OUT.has(own)) this.#skip(name, 'no folder of documents');
    else if (ignoredBy !== undefined) this.#skip(name, `ignored by ${ignoredBy}`);
    else if (this.#exclude.ignores(way)) this.#skip(name, 'excluded');
    else if (!isFolder && this.#include?.ignores(way) === false) this.#skip(name, 'not included');
    else return false;
    return true;
  }

  #skip(file: string, reason: string): void {
    this.#skipped.push({ file, reason });
  }

  /** A path that cannot be searched is an error of its own. */
  async #orFail(file: string, search: () => Promise<void>): Promise<void> {
    try {
      await search();
    } catch (cause) {
      if (this.#signal.aborted || cause instanceof RangeError) throw cause;
      this.#errors.push({ file, message: `cannot read: ${fileErrorReason(cause)}` });
    }
  }
}

/**
 * Opens a found file to read it. Between the search and this call, a file or a folder above it may have become a link:
 * then the file is refused. Never waits for a pipe. Errors: WARMPATH_UNREADABLE_FILE, those of the file system.
 */
export async function openFound({ realPath: path }: FoundFile): Promise<FileHandle> {
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

/** A path with all links followed, as far as it is there. */
export async function realPathOf(asked: string): Promise<string> {
  const path = resolve(asked);
  try {
    return await realpath(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(await realPathOf(parent), basename(path));
  }
}

/** Whether a path lies in a folder. */
export function isWithin(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== '' && way !== '..' && !way.startsWith(`..${sep}`);
}
