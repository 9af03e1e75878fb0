import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TrafficSlot } from '@warmpath/dashboard';
import { z } from 'zod';
import { NO_GAIN_REASONS } from '../shapes/shapes.js';
import type { TrafficSeries } from './traffic-series.js';

/** Files that gateways use, and those that they have closed. */
const FILE = /^traffic(?:-[0-9a-f-]{36})?(?<closed>\.closed)?\.json$/;
const OWNER_ONLY = 0o600;
const OWNER_ONLY_FOLDER = 0o700;
/** Milliseconds between two writes, and without one until no gateway is taken to use a file. */
const WRITE_MS = 60_000;
const ABANDONED_MS = 3 * WRITE_MS;
/** Milliseconds after which an unused file holds nothing of the day that the page shows. */
const FORGOTTEN_MS = 86_400_000;
/** Bytes of a file that is read; a day of slots is smaller. */
const MAX_BYTES = 16_777_216;

const REASONS: readonly string[] = Object.keys(NO_GAIN_REASONS);

const count = z.number().finite();
const contents = z.object({
  format: z.literal('warmpath-traffic'),
  version: z.literal(2),
  /** What the numbers of reasons in the slots mean. */
  reasons: z.array(z.string()).max(1_000),
  slots: z
    .array(z.looseObject({ slot: z.int(), noGain: z.array(count) }).catchall(z.union([count, z.array(count)])))
    .max(1_000),
});

/**
 * The series of a day in a file of the state folder: read at the start, written once a minute and at the end. Counts
 * only. Each gateway has a file of its own, and continues the newest one that none uses. A file that cannot be read or
 * written costs the history and nothing else.
 */
export class TrafficFile {
  readonly #name = `traffic-${randomUUID()}`;
  readonly #folder: string;
  readonly #series: TrafficSeries;
  readonly #wallClock: () => number;
  #timer: NodeJS.Timeout | undefined;
  #hasContinued = false;

  constructor(folder: string, series: TrafficSeries, wallClock: () => number) {
    this.#folder = folder;
    this.#series = series;
    this.#wallClock = wallClock;
  }

  open(): void {
    this.#continue();
    this.#timer = setInterval(() => this.write(), WRITE_MS);
    this.#timer.unref();
  }

  close(): void {
    if (this.#timer === undefined) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#replace(join(this.#folder, `${this.#name}.closed.json`));
    try {
      rmSync(this.#path, { force: true });
    } catch {
      // The folder is none.
    }
  }

  /** Replaces the file as a whole. Synchronous: some hundred kilobytes, once a minute. */
  write(): void {
    // After a crash, the file seems to be in use for some minutes.
    if (!this.#hasContinued) this.#continue();
    this.#replace(this.#path);
  }

  get #path(): string {
    return join(this.#folder, `${this.#name}.json`);
  }

  #replace(path: string): void {
    const slots = this.#series.since(0, this.#wallClock());
    if (slots.length === 0) return;
    const draft = join(this.#folder, `${this.#name}.draft`);
    try {
      mkdirSync(this.#folder, { recursive: true, mode: OWNER_ONLY_FOLDER });
    } catch {
      return;
    }
    try {
      const written = JSON.stringify({ format: 'warmpath-traffic', version: 2, reasons: REASONS, slots });
      writeFileSync(draft, written, { mode: OWNER_ONLY });
      renameSync(draft, path);
    } catch {
      rmSync(draft, { force: true });
    }
  }

  /** Takes over the newest file that no gateway uses, and removes those that are out of date. */
  #continue(): void {
    for (const { path, isOld } of this.#unused()) {
      try {
        if (isOld || this.#hasContinued) {
          if (isOld) rmSync(path, { force: true });
          continue;
        }
        // Of two gateways that start at once, one finds nothing to rename.
        renameSync(path, this.#path);
        this.#hasContinued = true;
        const now = this.#wallClock() / 1_000;
        utimesSync(this.#path, now, now);
        this.#restore(readFileSync(this.#path, 'utf8'));
      } catch {
        // Another gateway was faster, or the file is damaged.
      }
    }
  }

  #restore(text: string): void {
    const read = text.length > MAX_BYTES ? undefined : contents.safeParse(JSON.parse(text));
    if (read?.success !== true) return;
    const { reasons, slots } = read.data;
    const numbers = reasons.map((name) => REASONS.indexOf(name));
    const renumbered = slots.map((slot) => ({ ...slot, noGain: renumber(slot.noGain, numbers) }));
    this.#series.restore(renumbered as unknown as TrafficSlot[], this.#wallClock());
  }

  /** The newest first. */
  #unused(): readonly { readonly path: string; readonly isOld: boolean }[] {
    try {
      const now = this.#wallClock();
      const files = readdirSync(this.#folder).flatMap((name) => {
        const match = FILE.exec(name);
        if (match === null || name.startsWith(this.#name)) return [];
        const path = join(this.#folder, name);
        return [{ path, isClosed: match.groups!['closed'] !== undefined, age: now - statSync(path).mtimeMs }];
      });
      return files
        .filter(({ isClosed, age }) => isClosed || age > ABANDONED_MS)
        .toSorted((one, other) => one.age - other.age)
        .map(({ path, age }) => ({ path, isOld: age > FORGOTTEN_MS }));
    } catch {
      return [];
    }
  }
}

/** Pairs of a reason's number and a count, with other numbers; without reasons that there are no longer. */
function renumber(pairs: readonly number[], numbers: readonly number[]): readonly number[] {
  const renumbered: number[] = [];
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const number = numbers[pairs[i]!] ?? -1;
    if (number >= 0) renumbered.push(number, pairs[i + 1]!);
  }
  return renumbered;
}
