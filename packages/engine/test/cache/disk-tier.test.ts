import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { REPLACEMENT_POLICY_NAMES, type ReplacementPolicyName } from '@warmpath/core';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KvEventLog } from '../../src/events/kv-event-log.js';
import { StateStore } from '../../src/store/state-store.js';
import { blocksOf, KvReplica } from '../events/kv-replica.js';
import { apply, Bench, operation, prompt } from './cache-bench.js';

const PLENTY = 2 ** 30;
const IDENTITY = { model: 'm', library: 'l', cells: 'c' };
const asked = (...documents: number[]): number[] => [...documents.flatMap((id) => [id, id, id, id]), 0];

interface Shape {
  readonly cells: number;
  readonly sequences?: number;
  readonly hostBytes: number;
  readonly diskBytes?: number;
  readonly policy?: ReplacementPolicyName;
  readonly clock?: () => number;
}

/** Tokens of a block in the events of a bench. */
const BLOCK = 3;

/** A bench whose files lie in a folder, and a consumer of its events, which after every step holds what it holds. */
class DiskBench extends Bench {
  readonly #log: KvEventLog;
  readonly #replica = new KvReplica();

  private constructor(
    readonly store: StateStore,
    shape: Shape,
    disk: Awaited<ReturnType<typeof StateStore.open>>,
    clock: () => number,
  ) {
    const log = new KvEventLog(BLOCK);
    super(shape.cells, shape.sequences ?? 64, {
      hostBytes: shape.hostBytes,
      ...(shape.policy !== undefined && { policy: shape.policy }),
      disk: { store: disk.store, entries: disk.entries, clock },
      listener: log,
    });
    this.#log = log;
  }

  override check(): void {
    super.check();
    this.#replica.apply(this.#log.drain());
    expect(this.#replica.blocks).toEqual(blocksOf(this.cache.roots, BLOCK));
  }

  static async start(directory: string, shape: Shape): Promise<DiskBench> {
    const { diskBytes: capacityBytes = PLENTY, clock = () => 0 } = shape;
    const onWarning = (): void => undefined;
    const opened = await StateStore.open({ directory, capacityBytes, identity: IDENTITY, clock, onWarning });
    return new DiskBench(opened.store, shape, opened, clock);
  }

  /** Lets the disk finish what it was asked for. */
  async settle(): Promise<void> {
    await this.store.settled();
    while (this.cache.isReading) {
      await this.cache.news();
      this.cache.settle();
    }
    this.cache.settle();
    this.check();
  }

  /** A request that waits for the disk whenever it is told to. */
  async serveWaiting(tokens: number[], boundaries: number[] = [], salt?: string): Promise<ReturnType<Bench['serve']>> {
    const run = this.start(tokens, boundaries, salt)!;
    const found = { device: run.computed, host: 0, disk: 0 };
    for (;;) {
      const { device, host, disk, isAwaitingDisk } = this.extend(run);
      found.device += device;
      found.host += host;
      found.disk += disk;
      if (!isAwaitingDisk) {
        break;
      }
      await this.settle();
    }
    expect(this.compute(run, tokens.length)).toBe(true);
    this.commit(run);
    this.release(run);
    this.check();
    return found;
  }

  async close(): Promise<void> {
    for (const run of [...this.runs]) {
      this.release(run);
    }
    await this.settle();
    await this.cache.close(() => true);
  }
}

describe('the cache with a disk tier', () => {
  let root: string;
  let folders = 0;
  const folder = (): string => join(root, String(folders++));

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'warmpath-disk-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  const steps = fc.array(
    fc.oneof(
      { weight: 6, arbitrary: operation },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('prefetch' as const), prompt }) },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant('serve' as const), prompt }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('settle' as const) }) },
    ),
    { maxLength: 60, size: 'max' },
  );
  type Step = typeof steps extends fc.Arbitrary<(infer T)[]> ? T : never;
  const play = async (bench: DiskBench, all: readonly Step[]): Promise<void> => {
    for (const step of all) {
      if (step.kind === 'settle') {
        await bench.settle();
      } else if (step.kind === 'prefetch') {
        bench.cache.prefetch(step.prompt, step.prompt.length);
      } else if (step.kind !== 'serve') {
        apply(bench, step);
      } else if (bench.cache.availableCells() >= step.prompt.length && bench.runs.length < 3) {
        await bench.serveWaiting(step.prompt);
      }
      bench.check();
    }
  };

  it.each([
    { cells: 12, hostBytes: 80, diskBytes: PLENTY, name: 'with room on the disk' },
    { cells: 12, sequences: 6, hostBytes: 120, diskBytes: 700, name: 'short of everything' },
    { cells: 12, sequences: 6, hostBytes: 40, diskBytes: 700, name: 'with hardly any host memory' },
  ])('keeps its hierarchy, its budgets and every count, $name', async ({ name: _, ...shape }) => {
    let evicted = 0;
    let loaded = 0;
    await fc.assert(
      fc.asyncProperty(steps, fc.constantFrom(...REPLACEMENT_POLICY_NAMES), async (all, policy) => {
        const bench = await DiskBench.start(folder(), { ...shape, policy });
        await play(bench, all);
        const { disk } = bench.cache.stats;
        expect(disk!.usedBytes).toBeLessThanOrEqual(shape.diskBytes);
        expect(disk!.failures).toBe(0);
        evicted += disk!.evictedTokens;
        loaded += disk!.loadedTokens;
        await bench.close();
      }),
      { seed: 21, numRuns: 60 },
    );
    expect(loaded).toBeGreaterThan(10);
    expect(evicted > 20).toBe(shape.diskBytes < PLENTY);
  });

  it('loses nothing that was ever committed, as long as the disk has room, not even in a restart', async () => {
    await fc.assert(
      fc.asyncProperty(steps, prompt, async (all, tokens) => {
        const directory = folder();
        const bench = await DiskBench.start(directory, { cells: 14, sequences: 6, hostBytes: 150 });
        await play(bench, all);
        const { device, host, disk } = bench.cache.match(tokens);
        expect(device + host + disk).toBe(bench.naiveMatch(tokens, tokens.length));
        await bench.close();

        const next = await DiskBench.start(directory, { cells: 14, sequences: 6, hostBytes: 150 });
        next.check();
        expect(next.cache.stats.disk!.refusedFiles).toBe(0);
        expect(next.cache.match(tokens)).toEqual({
          device: 0,
          host: 0,
          disk: bench.naiveMatch(tokens, tokens.length),
        });
        // Every token comes back as what it was: the memory refuses cells of another path.
        const expected = bench.naiveMatch(tokens, tokens.length - 1);
        expect(await next.serveWaiting(tokens)).toEqual({ device: 0, host: 0, disk: expected });
        await next.close();
      }),
      { seed: 22, numRuns: 60 },
    );
  });

  it('holds a smaller budget after a restart, and gives up what was used longest ago', async () => {
    const directory = folder();
    const bench = await DiskBench.start(directory, { cells: 9, hostBytes: 60 });
    for (let id = 1; id <= 8; id++) {
      bench.serve(asked(id), [4]);
    }
    await bench.close();
    const { usedBytes } = bench.cache.stats.disk!;
    const next = await DiskBench.start(directory, { cells: 9, hostBytes: 60, diskBytes: usedBytes / 2 });
    next.check();
    expect(next.cache.stats.disk!.usedBytes).toBeLessThanOrEqual(usedBytes / 2);
    expect(next.cache.stats.disk!.evictedTokens).toBeGreaterThan(10);
    await next.close();
  });

  it('computes again what a file that was damaged held, and forgets what stood behind it', async () => {
    let damaged = 0;
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.nat(), async (which, place) => {
        const directory = folder();
        const bench = await DiskBench.start(directory, { cells: 14, hostBytes: 120 });
        bench.serve(asked(1, 2, 3), [4, 8, 12]);
        bench.serve(asked(1, 4, 5), [4, 8, 12]);
        await bench.close();
        const names = (await readdir(directory)).filter((name) => name.endsWith('.kv'));
        const path = join(directory, names[which % names.length]!);
        const bytes = await readFile(path);
        bytes[place % bytes.length]! ^= 4;
        await writeFile(path, bytes);

        const next = await DiskBench.start(directory, { cells: 14, hostBytes: 120 });
        next.check();
        await next.serveWaiting(asked(1, 2, 3), [4, 8, 12]);
        await next.serveWaiting(asked(1, 4, 5), [4, 8, 12]);
        const { failures, refusedFiles } = next.cache.stats.disk!;
        damaged += Number(failures + refusedFiles > 0);
        await next.close();
      }),
      { seed: 23, numRuns: 60 },
    );
    // Some damage is where nothing is read: behind the last token that a prompt may share.
    expect(damaged).toBeGreaterThan(50);
  });

  it('brings a document back from the nearest tier', async () => {
    const bench = await DiskBench.start(folder(), { cells: 9, hostBytes: 90 });
    bench.serve(asked(1), [4]);
    bench.serve(asked(2, 3), [4, 8]);
    bench.serve(asked(4, 5), [4, 8]);
    await bench.settle();
    expect(bench.cache.match(asked(1))).toEqual({ device: 0, host: 0, disk: 5 });
    expect(await bench.serveWaiting(asked(1), [4])).toEqual({ device: 0, host: 0, disk: 4 });
    expect(await bench.serveWaiting(asked(1), [4])).toEqual({ device: 4, host: 0, disk: 0 });
    await bench.close();
  });

  it('writes a node once, however often it comes and goes', async () => {
    const bench = await DiskBench.start(folder(), { cells: 9, hostBytes: 90 });
    for (let round = 0; round < 4; round++) {
      for (const id of [1, 2, 3, 4, 5, 6, 7, 8]) {
        await bench.serveWaiting(asked(id), [4]);
        await bench.settle();
      }
    }
    const { savedTokens, tokens, loadedTokens } = bench.cache.stats.disk!;
    expect(loadedTokens).toBeGreaterThan(30);
    expect(savedTokens).toBe(tokens);
    await bench.close();
  });

  it('reads what a waiting prompt will need before its turn comes', async () => {
    const bench = await DiskBench.start(folder(), { cells: 9, hostBytes: 90 });
    bench.serve(asked(1), [4]);
    bench.serve(asked(2, 3), [4, 8]);
    bench.serve(asked(4, 5), [4, 8]);
    await bench.settle();
    bench.cache.prefetch(asked(1), 4);
    await bench.settle();
    expect(bench.cache.match(asked(1))).toMatchObject({ host: 4 });
    const run = bench.start(asked(1), [4])!;
    // It counts as from the disk: that is where it was when the prompt came.
    expect(bench.extend(run)).toEqual({ device: 0, host: 0, disk: 4, isAwaitingDisk: false });
    await bench.close();
  });

  it('waits no longer than computing takes', async () => {
    let nowMs = 0;
    const bench = await DiskBench.start(folder(), { cells: 9, hostBytes: 90, clock: () => nowMs });
    bench.serve(asked(1), [4]);
    bench.serve(asked(2, 3), [4, 8]);
    bench.serve(asked(4, 5), [4, 8]);
    await bench.settle();
    const run = bench.start(asked(1), [4])!;
    // A token costs a millisecond here, and four are on their way.
    expect(bench.extend(run).isAwaitingDisk).toBe(true);
    nowMs = 4;
    expect(bench.extend(run).isAwaitingDisk).toBe(true);
    nowMs = 5;
    expect(bench.extend(run).isAwaitingDisk).toBe(false);
    await bench.close();
  });

  it('keeps the prompts of each salt apart in a restart', async () => {
    const directory = folder();
    const bench = await DiskBench.start(directory, { cells: 30, hostBytes: 90 });
    bench.serve(asked(1), [4], 'one');
    bench.serve(asked(2), [4], 'other');
    await bench.close();
    const next = await DiskBench.start(directory, { cells: 30, hostBytes: 90 });
    expect(next.cache.match(asked(1), 5, 'one').disk).toBe(5);
    expect(next.cache.match(asked(1), 5, 'other').disk).toBe(0);
    expect(next.cache.match(asked(1), 5).disk).toBe(0);
    expect(next.cache.match(asked(2), 5, 'other').disk).toBe(5);
    await next.close();
  });
});
