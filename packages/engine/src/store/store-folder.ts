import { open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { decodeHead, FIXED_BYTES, headBytes, headSize, type StateHead, type StateIdentity } from './stored-state.js';

export const STATE_SUFFIX = '.kv';
/** Added to the name of a file that is still being written. */
export const TEMPORARY_SUFFIX = '.tmp';

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
export interface StoredEntry {
  readonly file: StoredState;
  readonly salt: string;
  /** All tokens from the start of the prompt to the end of the state. */
  readonly tokens: readonly number[];
  /** How often it had been used when it was last used. */
  readonly uses: number;
}

/** What a folder held. */
export interface FolderContent {
  /** Sound files of this identity, last used last. */
  readonly entries: readonly StoredEntry[];
  readonly damagedFiles: number;
  readonly foreignFiles: number;
  readonly sweptFiles: number;
}

/**
 * Reads the heads of all files of a folder, and removes those that are unfinished, damaged, or of another identity.
 * Files with other names are nobody's business here and stay. Cost: one read a file, one after the other.
 *
 * @throws The file system's error when the folder cannot be listed or a file cannot be removed.
 */
export async function readFolder(directory: string, identity: StateIdentity): Promise<FolderContent> {
  const found: { readonly entry: StoredEntry; readonly usedMs: number }[] = [];
  let [damagedFiles, foreignFiles, sweptFiles] = [0, 0, 0];
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    if (name.endsWith(STATE_SUFFIX + TEMPORARY_SUFFIX)) {
      sweptFiles++;
      await rm(path, { force: true });
    } else if (name.endsWith(STATE_SUFFIX)) {
      const read = await readHead(path).catch(() => undefined);
      const isOurs = read !== undefined && isSame(read.head.identity, identity);
      if (isOurs) {
        found.push({ entry: entryOf(name, read.head), usedMs: read.usedMs });
      } else {
        read === undefined ? damagedFiles++ : foreignFiles++;
        await rm(path, { force: true });
      }
    }
  }
  found.sort((a, b) => a.usedMs - b.usedMs);
  return { entries: found.map(({ entry }) => entry), damagedFiles, foreignFiles, sweptFiles };
}

/** @returns `undefined` when the head is damaged, or the file is shorter or longer than its head says. */
async function readHead(path: string): Promise<{ head: StateHead; usedMs: number } | undefined> {
  const handle = await open(path, 'r');
  try {
    const fixed = new Uint8Array(FIXED_BYTES);
    await handle.read(fixed, 0, FIXED_BYTES, 0);
    const { size, mtimeMs } = await handle.stat();
    const sizes = headSize(fixed);
    if (sizes === undefined || headBytes(sizes) > size) {
      return undefined;
    }
    const bytes = new Uint8Array(headBytes(sizes));
    await handle.read(bytes, 0, bytes.length, 0);
    const head = decodeHead(bytes);
    return head?.stateAt === undefined || head.stateAt + head.stateBytes !== size
      ? undefined
      : { head, usedMs: mtimeMs };
  } finally {
    await handle.close();
  }
}

function entryOf(name: string, { salt, tokens, from, stateAt, stateBytes, checksum, uses }: StateHead): StoredEntry {
  const file = { name, from, to: tokens.length, bytes: stateAt + stateBytes, stateAt, checksum };
  return { file, salt, tokens, uses };
}

function isSame(a: StateIdentity, b: StateIdentity): boolean {
  return a.model === b.model && a.library === b.library && a.cells === b.cells;
}
