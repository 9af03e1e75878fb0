import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TrafficSlot } from '@warmpath/dashboard';
import { z } from 'zod';
import type { TrafficSeries } from './traffic-series.js';

const FILE_NAME = 'traffic.json';
const OWNER_ONLY = 0o600;
const OWNER_ONLY_FOLDER = 0o700;
/** Milliseconds between two writes. */
const WRITE_MS = 60_000;
/** Bytes of a file that is read; a day of slots is smaller. */
const MAX_BYTES = 16_777_216;

const count = z.number().finite();
const contents = z.object({
  format: z.literal('warmpath-traffic'),
  version: z.literal(1),
  slots: z.array(z.looseObject({ slot: z.int() }).catchall(z.union([count, z.array(count)]))).max(1_000),
});

/**
 * The series of a day in one file of the state folder: read at the start, written once a minute and at the end. Counts
 * only. A file that cannot be read or written costs the history and nothing else.
 */
export class TrafficFile {
  readonly #path: string;
  readonly #folder: string;
  readonly #series: TrafficSeries;
  readonly #wallClock: () => number;
  #timer: NodeJS.Timeout | undefined;

  constructor(folder: string, series: TrafficSeries, wallClock: () => number) {
    this.#folder = folder;
    this.#path = join(folder, FILE_NAME);
    this.#series = series;
    this.#wallClock = wallClock;
  }

  open(): void {
    try {
      const text = readFileSync(this.#path, 'utf8');
      const read = text.length > MAX_BYTES ? undefined : contents.safeParse(JSON.parse(text));
      if (read?.success === true) this.#series.restore(read.data.slots as unknown as TrafficSlot[], this.#wallClock());
    } catch {
      // There is none yet, or it is damaged.
    }
    this.#timer = setInterval(() => this.write(), WRITE_MS);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
    if (this.#timer !== undefined) this.write();
    this.#timer = undefined;
  }

  /** Replaces the file as a whole. Synchronous: some hundred kilobytes, once a minute. */
  write(): void {
    const slots = this.#series.since(0, this.#wallClock());
    const own = `${this.#path}.${process.pid}`;
    try {
      mkdirSync(this.#folder, { recursive: true, mode: OWNER_ONLY_FOLDER });
    } catch {
      return;
    }
    try {
      writeFileSync(own, JSON.stringify({ format: 'warmpath-traffic', version: 1, slots }), { mode: OWNER_ONLY });
      renameSync(own, this.#path);
    } catch {
      rmSync(own, { force: true });
    }
  }
}
