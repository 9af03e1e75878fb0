import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { type ErrorCode, WarmpathError } from '@warmpath/core';
import type { ReadPart, ReadParts, ReadTask } from './read-process.js';

/** The built file, from the sources as well: Node does not run TypeScript. */
const SCRIPT = fileURLToPath(new URL('../../dist/ingest/read-process.js', import.meta.url));

const MIB = 2 ** 20;
/** What the process takes before it reads anything. */
const PROCESS_BYTES = 128 * MIB;
/** A process that holds more than this after a file is replaced, so that each file has about the same memory. */
const KEPT_BYTES = 192 * MIB;
const DEFAULT_BYTES = { least: 256 * MIB, most: 1024 * MIB, shareOfMachine: 1 / 4 };
/** Time for an answer: a second for each 8 MiB of memory. */
const BYTES_PER_MS = (8 * MIB) / 1_000;
const MIN_MS = 10_000;
const MAX_MS = 120_000;
/** Ends of a process that ran out of memory: killed by its watch or the kernel, or aborted by V8. */
const MEMORY_SIGNALS: ReadonlySet<string> = new Set(['SIGKILL', 'SIGABRT', 'SIGTRAP']);

/** Bounds on the reading of one file. */
export interface ReadBounds {
  /** Resident bytes of the process that reads. */
  readonly memoryBytes: number;
  /** For an answer: a whole document, or a few lines of a file that has a document a line. */
  readonly answerMs: number;
}

/**
 * Bounds that follow from the memory that may be taken beside the process itself. Left out: a quarter of the machine's,
 * from 256 MiB to 1 GiB.
 */
export function readBounds(memoryBytes = defaultMemory()): ReadBounds {
  const answerMs = Math.min(MAX_MS, Math.max(MIN_MS, Math.round(memoryBytes / BYTES_PER_MS)));
  return { memoryBytes: PROCESS_BYTES + memoryBytes, answerMs };
}

function defaultMemory(): number {
  // 0, or more than there is, where nothing limits the process.
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  const machine = Math.min(totalmem(), limit) * DEFAULT_BYTES.shareOfMachine;
  return Math.min(DEFAULT_BYTES.most, Math.max(DEFAULT_BYTES.least, machine));
}

/** A process that reads one file after the other. It ends with this one, and at the first file that breaks a bound. */
export class ReaderProcess {
  readonly #bounds: ReadBounds;
  readonly #child: ChildProcess;
  /** Why it can read no other file. */
  #ended: WarmpathError | undefined;
  /** Settles when the process answers or ends. */
  #answer: { readonly resolve: (parts: ReadParts) => void; readonly reject: (error: unknown) => void } | undefined;

  constructor(bounds: ReadBounds) {
    this.#bounds = bounds;
    const heapMiB = Math.ceil(bounds.memoryBytes / MIB);
    this.#child = fork(SCRIPT, [String(bounds.memoryBytes)], {
      serialization: 'advanced',
      stdio: ['pipe', 'ignore', 'ignore', 'ipc'],
      execArgv: [`--max-old-space-size=${heapMiB}`],
      // A parser needs nothing of the environment, where keys may be.
      env: {},
    });
    this.#child.on('message', (parts: ReadParts) => this.#answer?.resolve(parts));
    this.#child.once('error', (cause) => this.#end(died(cause.message, cause)));
    this.#child.once('exit', (code, signal) => {
      this.#end(
        signal !== null && MEMORY_SIGNALS.has(signal) ? this.#tooMuchMemory() : died(signal ?? `exit code ${code}`),
      );
    });
    // The process may end while it is written to: its exit says so.
    this.#child.stdin!.on('error', () => {});
    this.#hold(false);
  }

  get hasEnded(): boolean {
    return this.#ended !== undefined;
  }

  /**
   * Reads a file, part by part. Leaving before the end ends the process.
   * Errors: those of the reading; WARMPATH_UNREADABLE_FILE for a file that breaks a bound or the process; the signal's
   * reason.
   */
  async *read(task: ReadTask, bytes: Buffer | undefined, signal: AbortSignal): AsyncGenerator<ReadPart, void> {
    this.#hold(true);
    let isOver = false;
    try {
      let send: ReadTask | 'next' = task;
      while (!isOver) {
        const answer = this.#ask(send, signal);
        if (send === task && bytes !== undefined) this.#child.stdin!.write(bytes);
        send = 'next';
        for (const part of await answer) {
          if ('error' in part || 'end' in part) isOver = true;
          if ('error' in part) throw errorOf(part.error);
          if ('end' in part && part.end.residentBytes > KEPT_BYTES) this.end();
          yield part;
        }
      }
    } finally {
      if (!isOver) this.end();
      this.#hold(false);
    }
  }

  end(): void {
    this.#end(died('it was ended'));
  }

  /** Resolves when the process has ended. */
  async ended(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null && this.#child.pid !== undefined) {
      // Else this process may end while it waits.
      this.#child.ref();
      await once(this.#child, 'exit');
    }
  }

  async #ask(message: ReadTask | 'next', signal: AbortSignal): Promise<ReadParts> {
    signal.throwIfAborted();
    if (this.#ended !== undefined) throw this.#ended;
    const { answerMs } = this.#bounds;
    let timer: NodeJS.Timeout | undefined;
    let leave: (() => void) | undefined;
    try {
      return await new Promise<ReadParts>((resolve, reject) => {
        this.#answer = { resolve, reject };
        leave = () => reject(signal.reason);
        signal.addEventListener('abort', leave);
        timer = setTimeout(() => reject(tooMuch(`${answerMs / 1_000} seconds`)), answerMs);
        this.#child.send(message, (error) => error !== null && this.#end(died(error.message, error)));
      });
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', leave!);
      this.#answer = undefined;
    }
  }

  #end(error: WarmpathError): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#answer?.reject(error);
    this.#child.kill('SIGKILL');
  }

  /** Whether this process stays while the other one lives. */
  #hold(isHeld: boolean): void {
    const handles = [this.#child, this.#child.channel, this.#child.stdin] as unknown as {
      ref(): void;
      unref(): void;
    }[];
    for (const handle of handles) {
      if (isHeld) handle?.ref();
      else handle?.unref();
    }
  }

  #tooMuchMemory(): WarmpathError {
    return tooMuch(`${Math.ceil(this.#bounds.memoryBytes / MIB)} MiB of memory`);
  }
}

function errorOf({ code, message, isOurs }: Extract<ReadPart, { error: unknown }>['error']): Error {
  if (isOurs) return new WarmpathError(code as ErrorCode, { detail: message });
  // An error of the file system has a code; of the parsers, which may be led astray, only the words are known.
  if (code !== undefined) return Object.assign(new Error(message), { code });
  return new WarmpathError('WARMPATH_UNREADABLE_FILE', { detail: `it cannot be parsed (${message.slice(0, 200)})` });
}

function tooMuch(limit: string): WarmpathError {
  return new WarmpathError('WARMPATH_UNREADABLE_FILE', { detail: `reading it takes more than ${limit}` });
}

function died(reason: string, cause?: unknown): WarmpathError {
  const detail = `the process that read it ended (${reason})`;
  return new WarmpathError('WARMPATH_UNREADABLE_FILE', { detail, cause });
}
