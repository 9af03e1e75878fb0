import { createHash, hash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { mkdir, readFile, realpath, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cacheFolder } from './cache-folder.js';
import { splitParts } from './model-name.js';

/** What a file looked like when it was read; another size, time or inode means that it must be read again. */
interface Reading {
  readonly bytes: number;
  readonly modifiedMs: number;
  readonly inode: number;
  readonly sha256: string;
}

/**
 * SHA-256 of a model's file, or of the SHA-256 of all its parts, in hexadecimal. Kept in the cache folder by path,
 * size, time of change and inode. Cost: reads each file the first time, 1 to 2 s a GB.
 *
 * @throws The file system's error when the model cannot be read.
 */
export async function modelFingerprint(path: string, folder: string = cacheFolder()): Promise<string> {
  const sums: string[] = [];
  for (const file of modelFiles(path)) sums.push(await fileFingerprint(file, folder));
  return sums.length === 1 ? sums[0]! : hash('sha256', sums.join());
}

/** The parts of a model that are there: llama.cpp finds the others by the name of the first. */
function modelFiles(path: string): readonly string[] {
  const parts = splitParts(path).filter((part) => existsSync(part));
  return parts.length > 0 ? parts : [path];
}

async function fileFingerprint(path: string, folder: string): Promise<string> {
  const real = await realpath(path);
  const { size: bytes, mtimeMs: modifiedMs, ino: inode } = await stat(real);
  const note = join(folder, 'fingerprints', `${hash('sha256', real)}.json`);
  const known = await readFile(note, 'utf8').then(parseReading, () => undefined);
  if (known !== undefined && known.bytes === bytes && known.modifiedMs === modifiedMs && known.inode === inode) {
    return known.sha256;
  }
  const content = createHash('sha256');
  for await (const chunk of createReadStream(real, { highWaterMark: 1024 * 1024 })) {
    content.update(chunk as Buffer);
  }
  const reading: Reading = { bytes, modifiedMs, inode, sha256: content.digest('hex') };
  // A cache folder that cannot be written costs the time to read the model again and nothing else.
  await remember(note, reading).catch(() => undefined);
  return reading.sha256;
}

async function remember(note: string, reading: Reading): Promise<void> {
  await mkdir(join(note, '..'), { recursive: true });
  const temporary = `${note}.${process.pid}.tmp`;
  await writeFile(temporary, JSON.stringify(reading));
  await rename(temporary, note);
}

function parseReading(text: string): Reading | undefined {
  try {
    return JSON.parse(text) as Reading;
  } catch {
    // Cut short by a crash.
    return undefined;
  }
}
