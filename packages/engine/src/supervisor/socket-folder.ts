import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Where workers listen: Unix domain sockets in a folder that only this user can enter, named pipes on Windows. */
export class SocketFolder {
  readonly #folder: string | undefined;
  #count = 0;

  private constructor(folder: string | undefined) {
    this.#folder = folder;
  }

  static async create(): Promise<SocketFolder> {
    const isWindows = process.platform === 'win32';
    return new SocketFolder(isWindows ? undefined : await mkdtemp(join(tmpdir(), 'warmpath-engine-')));
  }

  /** A path that no worker has had: one that is slow to go must not take the next one's connections. */
  next(): string {
    this.#count++;
    return this.#folder === undefined
      ? `\\\\.\\pipe\\warmpath-engine-${randomUUID()}`
      : join(this.#folder, `worker-${this.#count}`);
  }

  async remove(): Promise<void> {
    if (this.#folder !== undefined) {
      await rm(this.#folder, { recursive: true, force: true });
    }
  }
}
