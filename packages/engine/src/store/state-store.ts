import { randomUUID } from 'node:crypto';
import { type FileHandle, mkdir, open, rename, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { WarmpathError } from '@warmpath/core';
import { acquireFileLock, type FileLock } from '../models/file-lock.js';
import { readFolder, STATE_SUFFIX, type StoredEntry, type StoredState, TEMPORARY_SUFFIX } from './store-folder.js';
import {
  encodeHead,
  type RecordShape,
  recordBytes,
  type StateIdentity,
  type StateRecord,
  USES_AT,
} from './stored-state.js';

/** Only the owner may read what was computed from users' texts. */
const FILE_MODE = 0o600;
const FOLDER_MODE = 0o700;
const LOCK_NAME = '.lock';
/** Most bytes that wait in memory to be written; beyond them nothing is taken. One record may always wait. */
const MAX_PENDING_BYTES = 64 * 1024 * 1024;
/** After a full disk, writing is tried again this much later. */
const FULL_PAUSE_MS = 60_000;

export interface StateStoreOptions {
  /** The folder; made if it is not there, with rights for its owner alone. It belongs to one store at a time. */
  readonly directory: string;
  /** Most bytes of all files together. */
  readonly capacityBytes: number;
  /** What the states are of; files of anything else are refused. */
  readonly identity: StateIdentity;
  /** Milliseconds since some moment. */
  readonly clock: () => number;
  /** Called with a reason, once each time that the file system begins to fail. */
  readonly onWarning: (message: string) => void;
}

/** Figures of a store, for metrics and tests. Counts are since the start. */
export interface StateStoreStats {
  readonly capacityBytes: number;
  /** Bytes of all files, those that are still being written included. */
  readonly usedBytes: number;
  readonly files: number;
  /** Bytes that wait in memory to be written. */
  readonly pendingBytes: number;
  readonly writtenFiles: number;
  readonly readFiles: number;
  /** Records that were not taken, because too much waited to be written or the disk was full. */
  readonly refusedWrites: number;
  /** Files that could not be written. */
  readonly failedWrites: number;
  /** Files that could not be read, or were damaged, when they were wanted. */
  readonly failedReads: number;
  /** Files of this folder's own kind that were damaged at the start, and removed. */
  readonly damagedFiles: number;
  /** Files of another model, library or kind of cells that were there at the start, and removed. */
  readonly foreignFiles: number;
  /** Unfinished files that a former process left, and that were removed. */
  readonly sweptFiles: number;
}

interface PendingWrite {
  readonly record: StateRecord;
  isRemoved: boolean;
}

/**
 * States in files of one folder, under a budget in bytes. They survive the process.
 *
 * - A file is written beside its name and renamed, so there is never half a one under its name. Nothing is forced to
 *   the disk: a power cut may cost files, which are then found damaged, and a cache can lose files.
 * - Whatever is read must have the checksum with which it left the cells; what has not is refused and removed.
 * - Nothing blocks: what is written waits in memory in a bounded queue, and can be read from there.
 * - When the disk is full or broken, nothing more is taken for a minute, with one warning; what is there can still be
 *   read.
 *
 * It knows bytes and not the tree: which file goes, and when, is the caller's decision.
 */
export class StateStore {
  readonly #options: StateStoreOptions;
  readonly #lock: FileLock;
  readonly #pending = new Map<string, PendingWrite>();
  readonly #counts: { -readonly [Name in keyof StateStoreStats]: number };
  /** Writes and removals, one after the other, so that the folder never holds more than the budget. */
  #work: Promise<void> = Promise.resolve();
  #fullUntilMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;
  /** Called for a file that could not be written and is not there. */
  onLost: (file: StoredState) => void = () => undefined;

  private constructor(options: StateStoreOptions, lock: FileLock, found: Awaited<ReturnType<typeof readFolder>>) {
    this.#options = options;
    this.#lock = lock;
    const { entries, damagedFiles, foreignFiles, sweptFiles } = found;
    this.#counts = {
      capacityBytes: options.capacityBytes,
      usedBytes: entries.reduce((sum, { file }) => sum + file.bytes, 0),
      files: entries.length,
      pendingBytes: 0,
      writtenFiles: 0,
      readFiles: 0,
      refusedWrites: 0,
      failedWrites: 0,
      failedReads: 0,
      damagedFiles,
      foreignFiles,
      sweptFiles,
    };
  }

  /**
   * Takes the folder over: removes what a former process left unfinished, what is damaged in its head, and what belongs
   * to another model, and says what is there, last used last. States are verified when they are read, not now. What is
   * there may be more than the budget; the caller then has files to remove. Cost: reads every head.
   *
   * @throws WARMPATH_CONFIG_INVALID when the folder cannot be made or read, or another process has it.
   */
  static async open(options: StateStoreOptions): Promise<{ store: StateStore; entries: readonly StoredEntry[] }> {
    const { directory, identity } = options;
    try {
      await mkdir(directory, { recursive: true, mode: FOLDER_MODE });
      const lock = await lockFolder(directory);
      const found = await readFolder(directory, identity).catch(async (error: unknown) => {
        await lock.release();
        throw error;
      });
      return { store: new StateStore(options, lock, found), entries: found.entries };
    } catch (cause) {
      if (WarmpathError.isInstance(cause)) {
        throw cause;
      }
      const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
      throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
        detail: `Cannot use the folder ${directory} (${code})`,
        cause,
      });
    }
  }

  get stats(): StateStoreStats {
    return { ...this.#counts };
  }

  /** Bytes that could be added. Negative when a smaller budget than before found files. */
  get freeBytes(): number {
    return this.#options.capacityBytes - this.#counts.usedBytes;
  }

  /** Bytes that a record would take. */
  sizeOf(record: RecordShape): number {
    return recordBytes(record, this.#options.identity);
  }

  /** Whether records of so many bytes may wait to be written. Counts a refusal when not. */
  accepts(bytes: number): boolean {
    const { pendingBytes } = this.#counts;
    const isQueueFull = pendingBytes > 0 && pendingBytes + bytes > MAX_PENDING_BYTES;
    if (this.#isClosed || isQueueFull || this.#options.clock() < this.#fullUntilMs) {
      this.#counts.refusedWrites++;
      return false;
    }
    return true;
  }

  /**
   * Takes a record, which must have room, to be written soon. It counts and can be read from now on. Should writing
   * fail, it is gone and {@link onLost} is called.
   */
  put(record: StateRecord): StoredState {
    const head = encodeHead(record, this.#options.identity);
    const file: StoredState = {
      name: `${randomUUID()}${STATE_SUFFIX}`,
      from: record.from,
      to: record.tokens.length,
      bytes: head.length + record.state.length,
      stateAt: head.length,
      checksum: record.checksum,
    };
    const write: PendingWrite = { record, isRemoved: false };
    this.#pending.set(file.name, write);
    this.#counts.usedBytes += file.bytes;
    this.#counts.files++;
    this.#counts.pendingBytes += file.bytes;
    this.#enqueue(async () => {
      if (!write.isRemoved) {
        await this.#write(file, head, record.state);
      }
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
    const pending = this.#pending.get(file.name);
    const state = pending === undefined ? await this.#readFile(file) : pending.record.state;
    if (state === undefined || crc32(state) !== file.checksum) {
      this.#counts.failedReads++;
      return undefined;
    }
    this.#counts.readFiles++;
    return state;
  }

  /** Notes in a file how often it was used, soon. A file that is gone by then, or cannot be written, stays as it is. */
  noteUses(file: StoredState, uses: number): void {
    this.#enqueue(async () => {
      const handle = await open(this.#pathOf(file.name), 'r+').catch(() => undefined);
      if (handle === undefined) {
        return;
      }
      const bytes = new Uint8Array(4);
      new DataView(bytes.buffer).setUint32(0, uses, true);
      await handle.write(bytes, 0, bytes.length, USES_AT).finally(() => handle.close());
    });
  }

  /** Removes a file. It counts no more from now on. */
  remove(file: StoredState): void {
    this.#counts.usedBytes -= file.bytes;
    this.#counts.files--;
    const pending = this.#pending.get(file.name);
    if (pending !== undefined) {
      pending.isRemoved = true;
    }
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

  async #write(file: StoredState, head: Uint8Array, state: Uint8Array): Promise<void> {
    const temporary = this.#pathOf(file.name + TEMPORARY_SUFFIX);
    try {
      const handle = await open(temporary, 'wx', FILE_MODE);
      await writeAll(handle, [head, state]).finally(() => handle.close());
      await rename(temporary, this.#pathOf(file.name));
      this.#counts.writtenFiles++;
    } catch (error) {
      this.#counts.failedWrites++;
      await rm(temporary, { force: true }).catch(() => undefined);
      this.#pause(error as NodeJS.ErrnoException);
      this.onLost(file);
    }
  }

  #pause(error: NodeJS.ErrnoException): void {
    const nowMs = this.#options.clock();
    if (nowMs >= this.#fullUntilMs) {
      this.#warn('write to', error);
    }
    this.#fullUntilMs = nowMs + FULL_PAUSE_MS;
  }

  #warn(action: string, error: NodeJS.ErrnoException): void {
    const reason = error.code ?? error.message;
    this.#options.onWarning(`Cannot ${action} ${this.#options.directory} (${reason}); less is stored there for now.`);
  }

  async #readFile(file: StoredState): Promise<Uint8Array | undefined> {
    try {
      const path = this.#pathOf(file.name);
      const handle = await open(path, 'r');
      try {
        const state = new Uint8Array(file.bytes - file.stateAt);
        const { bytesRead } = await handle.read(state, 0, state.length, file.stateAt);
        // The order of last use outlives the process in the files' times.
        const now = new Date();
        await utimes(path, now, now).catch(() => undefined);
        return bytesRead === state.length ? state : undefined;
      } finally {
        await handle.close();
      }
    } catch {
      return undefined;
    }
  }
}

async function writeAll(handle: FileHandle, parts: readonly Uint8Array[]): Promise<void> {
  for (const part of parts) {
    await handle.writeFile(part);
  }
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
