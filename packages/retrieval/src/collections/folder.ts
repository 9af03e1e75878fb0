import { mkdirSync, readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { hostname } from 'node:os';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';

// What a collection knows of the disk that it is on, and of the process that writes to it.

/** A process that writes. */
export interface WriterRecord {
  readonly process: number;
  readonly started: string;
  readonly host: string;
  readonly renewedMs: number;
}

/** Room on the disk with which documents are still taken in: more than a transaction takes. */
const MIN_ROOM_BYTES = 16 * 2 ** 20;
/** After what silence a writer on another machine is taken for dead. */
const SILENCE_MS = 120_000;

/** Makes the folder of a collection, for its owner alone. Error: WARMPATH_COLLECTION_UNWRITABLE. */
export function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (cause) {
    const detail = `the folder ${folder} cannot be made: ${fileErrorReason(cause)}.`;
    throw new WarmpathError('WARMPATH_COLLECTION_UNWRITABLE', { detail, cause });
  }
}

/** Bytes that can still be written where a folder is; without end where the file system does not say. */
async function roomIn(folder: string): Promise<number> {
  try {
    const { blocks, bavail, bsize } = await statfs(folder);
    return blocks === 0 ? Number.POSITIVE_INFINITY : bavail * bsize;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** What does not fit is refused before the database finds out. Error: WARMPATH_COLLECTION_UNWRITABLE. */
export async function requireRoom(folder: string): Promise<void> {
  if ((await roomIn(folder)) < MIN_ROOM_BYTES) throw await unwritable(folder);
}

/** The error of a disk that does not take what is written. */
export async function unwritable(folder: string, cause?: unknown): Promise<WarmpathError> {
  const bytes = await roomIn(folder);
  const room = bytes < MIN_ROOM_BYTES ? `: the disk has ${(bytes / 2 ** 20).toFixed(1)} MB left` : '';
  const detail = `nothing more can be written to the collection in ${folder}${room}.`;
  return new WarmpathError('WARMPATH_COLLECTION_UNWRITABLE', { detail, ...(cause !== undefined && { cause }) });
}

export function thisProcess(nowMs: number): WriterRecord {
  return { process: process.pid, started: startOf(process.pid), host: hostname(), renewedMs: nowMs };
}

/** A writer on this machine is asked for; of one elsewhere only its silence is known. */
export function isAlive({ process: id, started, host, renewedMs }: WriterRecord, nowMs: number): boolean {
  if (host !== hostname()) return nowMs - renewedMs < SILENCE_MS;
  try {
    process.kill(id, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  return startOf(id) === started;
}

/** When a process began, in the kernel's ticks, so that another one with the same number is not taken for it. */
function startOf(id: number): string {
  try {
    const stat = readFileSync(`/proc/${id}/stat`, 'latin1');
    // The name stands in parentheses and may hold anything; the 20th field behind it is the start.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '';
  } catch {
    return '';
  }
}
