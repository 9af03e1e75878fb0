import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { WarmpathError } from '@warmpath/core';
import { acquireFileLock, type FileLock } from '../models/file-lock.js';
import {
  decodeHead,
  encodeHead,
  PREFIX_BYTES,
  type StateHead,
  type StateIdentity,
  type StateRecord,
  stateOffset,
} from './stored-state.js';

/** Only the owner may read what was computed from users' texts. */
const FILE_MODE = 0o600;
const FOLDER_MODE = 0o700;
const LOCK_NAME = '.lock';
const STATE_SUFFIX = '.kv';
/** Added to the name of a file that is still being written. */
const TEMPORARY_SUFFIX = '.tmp';
/** Most bytes that wait in memory to be written; beyond them nothing is taken. One record may always wait. */
const MAX_PENDING_BYTES = 64 * 1024 * 1024;
/** After a full disk, writing is tried again this much later. */
const FULL_PAUSE_MS = 60_000;

/** A state in a file. */
export interface StoredState {
  readonly name: string;
  /** Positions `from` … `to - 1`. */
  readonly from: number;
  readonly to: number;
  /** Bytes of the whole file. */
  readonly bytes: number;
  /** Where the state begins in it. */
  readonly stateAt: number;
  /** CRC-32 of the state. */
  readonly checksum: number;
}

/** A file that was there when the folder was opened, with what it says of itself. */
export interface StoredEntry extends Pick<StateHead, 'salt' | 'tokens' | 'uses'> {
  readonly file: StoredState;
}

export interface StateStoreOptions {
  /** The folder; made if it is not there, with rights for its owner alone. It belongs to one store at a time. */
  readonly directory: string;
  /** Most bytes of all files together. */
  readonly capacityBytes: number;
  /** What the states are of; files of anything else are removed. */
  readonly identity: StateIdentity;
  /** Milliseconds since some moment. */
  readonly clock: () => number;
  /** Called with a reason, once each time that the file system begins to fail. */
  readonly onWarning: (message: string) => void;
}

/**
 * States in files of one folder, within a budget in bytes. A file is written beside its name and renamed. What is read
 * must have the checksum with which it left the cells. What is to be written waits in a bounded queue, and can be read
 * from there. When the disk fails, nothing is taken for a minute, with one warning. The caller decides which file goes.
 */
export class StateStore {
  readonly #options: StateStoreOptions;
  readonly #lock: FileLock;
  /** States that are still being written, by the names of their files. */
  readonly #pending = new Map<string, Uint8Array>();
  /** `pendingBytes` wait in memory to be written. `refusedFiles`: those that the start could not use. */
  readonly #counts: Record<'capacityBytes' | 'usedBytes' | 'files' | 'pendingBytes' | 'refusedFiles', number>;
  /** Writes and removals, one after the other, so that the folder never holds more than the budget. */
  #work: Promise<void> = Promise.resolve();
  #fullUntilMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  private constructor(options: StateStoreOptions, lock: FileLock, { entries, refusedFiles }: FolderContent) {
    this.#options = options;
    this.#lock = lock;
    this.#counts = {
      capacityBytes: options.capacityBytes,
      usedBytes: entries.reduce((sum, { file }) => sum + file.bytes, 0),
      files: entries.length,
      pendingBytes: 0,
      refusedFiles,
    };
  }

  /**
   * Takes the folder over: removes what cannot be used, and says what is there, last used last. States are verified
   * when they are read, not now. What is there may be more than the budget; the caller then has files to remove. Cost:
   * reads every head.
   *
   * @throws WARMPATH_CONFIG_INVALID when the folder cannot be made or read, or another process has it.
   */
  static async open(options: StateStoreOptions): Promise<{ store: StateStore; entries: readonly StoredEntry[] }> {
    const { directory, identity } = options;
    try {
      await mkdir(directory, { recursive: true, mode: FOLDER_MODE });
      const lock = await lockFolder(directory);
      const content = await readFolder(directory, identity).catch(async (error: unknown) => {
        await lock.release();
        throw error;
      });
      return { store: new StateStore(options, lock, content), entries: content.entries };
    } catch (cause) {
      if (WarmpathError.isInstance(cause)) throw cause;
      const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
      const detail = `Cannot use the folder ${directory} (${code})`;
      throw new WarmpathError('WARMPATH_CONFIG_INVALID', { detail, cause });
    }
  }

  get stats() {
    return { ...this.#counts };
  }

  /** Bytes that could be added. Negative when a smaller budget than before found files. */
  get freeBytes(): number {
    return this.#options.capacityBytes - this.#counts.usedBytes;
  }

  /** Bytes that a record would take. Cost: O(tokens). */
  sizeOf(record: StateRecord): number {
    return encodeHead(record, this.#options.identity).length + record.state.length;
  }

  /** Whether records of so many bytes may wait to be written. */
  accepts(bytes: number): boolean {
    const { pendingBytes } = this.#counts;
    const isQueueFull = pendingBytes > 0 && pendingBytes + bytes > MAX_PENDING_BYTES;
    return !this.#isClosed && !isQueueFull && this.#options.clock() >= this.#fullUntilMs;
  }

  /**
   * Takes a record, which must have room, to be written soon. It counts and can be read from now on. When writing
   * fails, reading it fails too.
   */
  put(record: StateRecord): StoredState {
    const head = encodeHead(record, this.#options.identity);
    const file = storedState(`${randomUUID()}${STATE_SUFFIX}`, record, head.length, record.state.length);
    this.#pending.set(file.name, record.state);
    this.#counts.usedBytes += file.bytes;
    this.#counts.files++;
    this.#counts.pendingBytes += file.bytes;
    this.#enqueue(async () => {
      if (this.#pending.has(file.name)) await this.#write(file, [head, record.state]);
      this.#pending.delete(file.name);
      this.#counts.pendingBytes -= file.bytes;
    });
    return file;
  }

  /**
   * Reads a state and verifies it. Marks the file as used. Never rejects.
   *
   * @returns `undefined` when it cannot be read or is not what was written; the caller removes it then.
   */
  async read(file: StoredState): Promise<Uint8Array | undefined> {
    const state = this.#pending.get(file.name) ?? (await this.#readFile(file).catch(() => undefined));
    return state !== undefined && crc32(state) === file.checksum ? state : undefined;
  }

  /** Removes a file. It stops counting at once. */
  remove(file: StoredState): void {
    this.#counts.usedBytes -= file.bytes;
    this.#counts.files--;
    this.#pending.delete(file.name);
    this.#enqueue(() => rm(this.#pathOf(file.name), { force: true }));
  }

  /** Settles when everything that was asked for so far is on the file system. */
  async settled(): Promise<void> {
    await this.#work;
  }

  /** Finishes what is under way and gives the folder back. The files stay. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#work;
    await this.#lock.release();
  }

  #pathOf(name: string): string {
    return join(this.#options.directory, name);
  }

  #enqueue(task: () => Promise<void>): void {
    this.#work = this.#work.then(task).catch((error: NodeJS.ErrnoException) => this.#warn('use', error));
  }

  async #write(file: StoredState, parts: readonly Uint8Array[]): Promise<void> {
    const temporary = this.#pathOf(file.name + TEMPORARY_SUFFIX);
    try {
      const handle = await open(temporary, 'wx', FILE_MODE);
      try {
        for (const part of parts) await handle.writeFile(part);
      } finally {
        await handle.close();
      }
      await rename(temporary, this.#pathOf(file.name));
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => undefined);
      this.#pause(error as NodeJS.ErrnoException);
    }
  }

  #pause(error: NodeJS.ErrnoException): void {
    const nowMs = this.#options.clock();
    if (nowMs >= this.#fullUntilMs) this.#warn('write to', error);
    this.#fullUntilMs = nowMs + FULL_PAUSE_MS;
  }

  #warn(action: string, error: NodeJS.ErrnoException): void {
    const reason = error.code ?? error.message;
    this.#options.onWarning(`Cannot ${action} ${this.#options.directory} (${reason}); less is stored there for now.`);
  }

  async #readFile({ name, bytes, stateAt }: StoredState): Promise<Uint8Array | undefined> {
    const path = this.#pathOf(name);
    const handle = await open(path, 'r');
    try {
      const state = new Uint8Array(bytes - stateAt);
      const { bytesRead } = await handle.read(state, 0, state.length, stateAt);
      // The order of last use outlives the process in the files' times.
      const now = new Date();
      await utimes(path, now, now).catch(() => undefined);
      return bytesRead === state.length ? state : undefined;
    } finally {
      await handle.close();
    }
  }
}

/** What a folder held. */
interface FolderContent {
  /** Sound files of this identity, last used last. */
  readonly entries: readonly StoredEntry[];
  readonly refusedFiles: number;
}

/**
 * Reads the heads of all files of a folder, and removes those that are unfinished, damaged, or of another identity.
 * Files with other names stay. Cost: one read a file, one after the other.
 */
async function readFolder(directory: string, identity: StateIdentity): Promise<FolderContent> {
  const found: { readonly entry: StoredEntry; readonly usedMs: number }[] = [];
  let refusedFiles = 0;
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    const isState = name.endsWith(STATE_SUFFIX);
    if (!isState && !name.endsWith(STATE_SUFFIX + TEMPORARY_SUFFIX)) continue;
    const read = isState ? await readEntry(path, name, identity).catch(() => undefined) : undefined;
    if (read === undefined) {
      refusedFiles++;
      await rm(path, { force: true });
    } else {
      found.push(read);
    }
  }
  found.sort((a, b) => a.usedMs - b.usedMs);
  return { entries: found.map(({ entry }) => entry), refusedFiles };
}

/** @returns `undefined` when the head is damaged or of another identity, or does not match the file's length. */
async function readEntry(
  path: string,
  name: string,
  identity: StateIdentity,
): Promise<{ readonly entry: StoredEntry; readonly usedMs: number } | undefined> {
  const handle = await open(path, 'r');
  try {
    const { size, mtimeMs } = await handle.stat();
    const prefix = Buffer.alloc(Math.min(PREFIX_BYTES, size));
    await handle.read(prefix, 0, prefix.length, 0);
    const stateAt = stateOffset(prefix);
    if (stateAt === undefined || stateAt > size) return undefined;
    const bytes = Buffer.alloc(stateAt - PREFIX_BYTES);
    await handle.read(bytes, 0, bytes.length, PREFIX_BYTES);
    const head = decodeHead(prefix, bytes);
    if (head === undefined || stateAt + head.stateBytes !== size || !isSame(head.identity, identity)) return undefined;
    const { salt, tokens, uses } = head;
    return { entry: { file: storedState(name, head, stateAt, head.stateBytes), salt, tokens, uses }, usedMs: mtimeMs };
  } finally {
    await handle.close();
  }
}

function storedState(
  name: string,
  { from, tokens, checksum }: Pick<StateHead, 'from' | 'tokens' | 'checksum'>,
  stateAt: number,
  stateBytes: number,
): StoredState {
  return { name, from, to: tokens.length, bytes: stateAt + stateBytes, stateAt, checksum };
}

function isSame(a: StateIdentity, b: StateIdentity): boolean {
  return a.model === b.model && a.library === b.library && a.cells === b.cells;
}

async function lockFolder(directory: string): Promise<FileLock> {
  const taken = new AbortController();
  return acquireFileLock(join(directory, LOCK_NAME), {
    signal: taken.signal,
    onWait: () =>
      taken.abort(
        new WarmpathError('WARMPATH_CONFIG_INVALID', {
          detail: `The folder ${directory} is in use by another engine; give each engine a folder of its own`,
        }),
      ),
  });
}
