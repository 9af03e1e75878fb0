import { type FileHandle, open } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { canonicalJson, describeJsonError, fileErrorReason } from '@warmpath/core/internal';
import { writeWhole } from './write-whole.js';

/** What decides whether figures of two runs may stand in one table. */
export type JournalSettings = Readonly<Record<string, unknown>>;

const OPTION = '--resume';
const FORMAT = 'warmpath-journal';
const LINE_END = 0x0a;
/** Characters of a setting that an error shows. */
const SHOWN_LENGTH = 60;

/**
 * What a long task has done, in a file, step by step, so that another run of the same settings can go on from there. A
 * line of JSON for the settings, then one for every step. A step counts when its line is whole: one that was cut short,
 * because the process or the machine stopped in it, is dropped when the file is opened. One process at a time.
 */
export class Journal<Step> {
  /** Steps that were in the file when it was opened, in order. */
  readonly before: readonly Step[];
  readonly file: string;
  readonly #handle: FileHandle;

  private constructor(file: string, handle: FileHandle, before: readonly Step[]) {
    this.file = file;
    this.#handle = handle;
    this.before = before;
  }

  /**
   * Opens a journal, or begins one if there is no such file, or an empty one. Holds the whole file in memory. Errors:
   * `WARMPATH_USAGE` if the file cannot be read or written, is no journal, or belongs to other settings, which it
   * names; `WARMPATH_INVALID_JSON` with the line that is damaged.
   */
  static async open<Step>(file: string, settings: JournalSettings): Promise<Journal<Step>> {
    const found = await readIfThere(file);
    if (found === undefined || found.length === 0) {
      await writeWhole(file, `${JSON.stringify({ format: FORMAT, settings })}\n`, OPTION);
      return new Journal<Step>(file, await openFile(file), []);
    }
    const wholeBytes = found.lastIndexOf(LINE_END) + 1;
    const [head, ...steps] = found.subarray(0, wholeBytes).toString('utf8').split('\n').slice(0, -1);
    requireSettings(file, head, settings);
    const before = steps.map((line, i) => parseLine(line, file, i + 2) as Step);
    const handle = await openFile(file);
    await handle.truncate(wholeBytes);
    return new Journal(file, handle, before);
  }

  /** Adds a step; resolved when it is on the disk. Error: `WARMPATH_USAGE` if it cannot be written. */
  async append(step: Step): Promise<void> {
    try {
      await this.#handle.appendFile(`${JSON.stringify(step)}\n`);
      await this.#handle.datasync();
    } catch (cause) {
      throw new WarmpathError('WARMPATH_USAGE', { path: OPTION, detail: `cannot write ${this.file}`, cause });
    }
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

async function readIfThere(file: string): Promise<Buffer | undefined> {
  try {
    const handle = await open(file, 'r');
    try {
      return await handle.readFile();
    } finally {
      await handle.close();
    }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new WarmpathError('WARMPATH_USAGE', {
      path: OPTION,
      detail: `cannot read ${file}: ${fileErrorReason(cause)}`,
      cause,
    });
  }
}

async function openFile(file: string): Promise<FileHandle> {
  try {
    return await open(file, 'a');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: OPTION,
      detail: `cannot write ${file}: ${fileErrorReason(cause)}`,
      cause,
    });
  }
}

function requireSettings(file: string, head: string | undefined, settings: JournalSettings): void {
  const there = settingsOf(head);
  if (there === undefined) {
    throw new WarmpathError('WARMPATH_USAGE', { path: OPTION, detail: `${file} was not written by this option` });
  }
  const names = [...new Set([...Object.keys(there), ...Object.keys(settings)])];
  const differing = names.filter((name) => canonicalJson([there[name]]) !== canonicalJson([settings[name]]));
  if (differing.length === 0) return;
  const differences = differing.map((name) => `${name} ${shown(there[name])}, not ${shown(settings[name])}`);
  const detail = `${file} belongs to a run of other settings: ${differences.join('; ')}`;
  throw new WarmpathError('WARMPATH_USAGE', { path: OPTION, detail });
}

function settingsOf(head: string | undefined): JournalSettings | undefined {
  try {
    const { format, settings } = JSON.parse(head ?? '') as { format?: unknown; settings?: JournalSettings };
    return format === FORMAT && typeof settings === 'object' ? settings : undefined;
  } catch {
    return undefined;
  }
}

function shown(value: unknown): string {
  const text = value === undefined ? 'none' : JSON.stringify(value);
  return text.length <= SHOWN_LENGTH ? text : `${text.slice(0, SHOWN_LENGTH)}…`;
}

function parseLine(line: string, file: string, number: number): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    const detail = `${file}, line ${number}: ${describeJsonError(line)}`;
    throw new WarmpathError('WARMPATH_INVALID_JSON', { path: OPTION, detail, cause });
  }
}
