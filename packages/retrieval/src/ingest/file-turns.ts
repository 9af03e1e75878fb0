import { WarmpathError } from '@warmpath/core';

/** Files that may wait for the one that is being read. */
const MAX_WAITING = 16;

interface WaitingFile {
  readonly start: () => void;
  readonly refuse: (error: unknown) => void;
}

/**
 * Whose file is read next: one at a time, tenants in turn, and of a tenant the file that has waited longest. Where no
 * more may wait, the tenant that has most gives up its latest place to one that has at least two fewer.
 */
export class FileTurns {
  /** By tenant, the next one's first. */
  readonly #waiting = new Map<string, WaitingFile[]>();
  #size = 0;
  #isTaken = false;

  /**
   * Resolves when it is the turn of a file of that tenant; then `done` must be called.
   * Errors: `WARMPATH_OVERLOADED`; the signal's reason.
   */
  async take(tenant: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (!this.#isTaken) {
      this.#isTaken = true;
      return;
    }
    if (this.#size === MAX_WAITING) this.#makeRoomFor(tenant);
    let leave: (() => void) | undefined;
    try {
      await new Promise<void>((start, refuse) => {
        const file = { start, refuse };
        leave = () => {
          this.#remove(tenant, file);
          refuse(signal.reason);
        };
        signal.addEventListener('abort', leave);
        const own = this.#waiting.get(tenant);
        if (own === undefined) this.#waiting.set(tenant, [file]);
        else own.push(file);
        this.#size++;
      });
    } finally {
      signal.removeEventListener('abort', leave!);
    }
  }

  /** The file whose turn it was is read, or given up. */
  done(): void {
    const next = this.#waiting.entries().next().value;
    if (next === undefined) {
      this.#isTaken = false;
      return;
    }
    const [tenant, files] = next;
    const file = files[0]!;
    this.#remove(tenant, file);
    // Behind all others, if more of it wait.
    if (this.#waiting.delete(tenant)) this.#waiting.set(tenant, files);
    file.start();
  }

  #makeRoomFor(tenant: string): void {
    const own = this.#waiting.get(tenant)?.length ?? 0;
    const [most, files] = [...this.#waiting].reduce((one, other) => (other[1].length > one[1].length ? other : one));
    if (files.length < own + 2) throw overloaded();
    const latest = files.at(-1)!;
    this.#remove(most, latest);
    latest.refuse(overloaded());
  }

  #remove(tenant: string, file: WaitingFile): void {
    const files = this.#waiting.get(tenant);
    const place = files?.indexOf(file) ?? -1;
    if (files === undefined || place === -1) return;
    files.splice(place, 1);
    this.#size--;
    if (files.length === 0) this.#waiting.delete(tenant);
  }
}

function overloaded(): WarmpathError {
  return new WarmpathError('WARMPATH_OVERLOADED', { detail: `${MAX_WAITING} files wait to be read.` });
}
