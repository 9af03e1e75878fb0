import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import ignore, { type Ignore } from 'ignore';

/** Files of patterns, those first that win over the others of the same folder. */
const NAMES = ['.warmpathignore', '.gitignore'];

/** Patterns as `.gitignore` has them, upper and lower case apart. */
export function patternsOf(lines: string | readonly string[]): Ignore {
  return ignore({ ignorecase: false }).add(lines);
}

interface NamedPatterns {
  readonly name: string;
  readonly patterns: Ignore;
}

/** The ignore files of a folder, and those of the folders above it. The nearest one that names a path decides. */
export class IgnoreRules {
  readonly #folder: string;
  readonly #own: readonly NamedPatterns[];
  readonly #above: IgnoreRules | undefined;

  private constructor(folder: string, own: readonly NamedPatterns[], above: IgnoreRules | undefined) {
    this.#folder = folder;
    this.#own = own;
    this.#above = above;
  }

  /** Reads the files of a folder. Errors: those of the file system. */
  static async read(folder: string, above?: IgnoreRules): Promise<IgnoreRules> {
    const own: NamedPatterns[] = [];
    for (const name of NAMES) {
      const text = await readFile(join(folder, name), 'utf8').catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT' || error.code === 'EISDIR') return '';
        throw error;
      });
      if (text !== '') own.push({ name, patterns: patternsOf(text) });
    }
    return new IgnoreRules(folder, own, above);
  }

  /** Reads the files of the folders above one, as far as they are in its Git repository. */
  static async readAbove(folder: string): Promise<IgnoreRules | undefined> {
    const folders: string[] = [];
    for (let next = folder; ; next = dirname(next)) {
      if (next !== folder) folders.unshift(next);
      if (existsSync(join(next, '.git'))) break;
      if (dirname(next) === next) return undefined;
    }
    let rules: IgnoreRules | undefined;
    for (const above of folders) rules = await IgnoreRules.read(above, rules);
    // A folder that was asked for by its name is read all the same.
    return rules?.nameFor(folder, true) === undefined ? rules : undefined;
  }

  /** The name of the file that leaves a path out. */
  nameFor(path: string, isFolder: boolean): string | undefined {
    const way = relative(this.#folder, path).split(sep).join('/') + (isFolder ? '/' : '');
    for (const { name, patterns } of this.#own) {
      const { ignored, unignored } = patterns.test(way);
      if (ignored) return name;
      if (unignored) return undefined;
    }
    return this.#above?.nameFor(path, isFolder);
  }
}
