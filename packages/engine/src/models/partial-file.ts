import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import type { ContentIdentity } from './hub-request.js';

/**
 * A file that is still arriving: `<path>.partial` with the bytes so far, and `<path>.partial.json` with what they are
 * part of. Both survive the process, so that the next one can go on.
 */
export class PartialFile {
  readonly path: string;
  readonly #target: string;
  readonly #identityPath: string;

  constructor(target: string) {
    this.#target = target;
    this.path = `${target}.partial`;
    this.#identityPath = `${this.path}.json`;
  }

  /** Bytes that are there; 0 without a file. */
  async size(): Promise<number> {
    const status = await stat(this.path).catch(ignoreMissing);
    return status?.size ?? 0;
  }

  /** What the bytes are part of; `undefined` when that is not known, and then they are of no use. */
  async identity(): Promise<ContentIdentity | undefined> {
    const text = await readFile(this.#identityPath, 'utf8').catch(ignoreMissing);
    if (text === undefined) return undefined;
    try {
      return parseIdentity(JSON.parse(text));
    } catch {
      // Cut short by a crash.
      return undefined;
    }
  }

  /** Forgets all bytes and starts over as a part of this content. The caller closes the handle. */
  async restart(identity: ContentIdentity): Promise<FileHandle> {
    await rm(this.path, { force: true });
    await writeFile(this.#identityPath, JSON.stringify(identity));
    return this.append();
  }

  /** Opens the file to add bytes at its end. The caller closes the handle. */
  append(): Promise<FileHandle> {
    return open(this.path, 'a');
  }

  async discard(): Promise<void> {
    await rm(this.path, { force: true });
    await rm(this.#identityPath, { force: true });
  }

  /** SHA-256 of the bytes on disk, in hexadecimal. Cost: reads the whole file, about 2 s a GB. */
  async sha256(onRead: (bytes: number) => void, signal: AbortSignal): Promise<string> {
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const chunk of createReadStream(this.path, { highWaterMark: 1024 * 1024, signal })) {
      hash.update(chunk as Buffer);
      bytes += (chunk as Buffer).length;
      onRead(bytes);
    }
    return hash.digest('hex');
  }

  /** Flushes the bytes to the disk and gives them their final name. */
  async complete(): Promise<void> {
    const handle = await open(this.path, 'r+');
    await handle.sync().finally(() => handle.close());
    await rename(this.path, this.#target);
    await rm(this.#identityPath, { force: true });
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

function parseIdentity(value: unknown): ContentIdentity | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { etag, linkedEtag, totalBytes } = value as Record<string, unknown>;
  return {
    ...(typeof etag === 'string' && { etag }),
    ...(typeof linkedEtag === 'string' && { linkedEtag }),
    ...(typeof totalBytes === 'number' && { totalBytes }),
  };
}
