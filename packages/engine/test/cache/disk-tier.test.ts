import { mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { REPLACEMENT_POLICY_NAMES, type ReplacementPolicyName } from '@warmpath/core/internal';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { KvEventLog } from '../../src/events/kv-event-log.js';
import { StateStore } from '../../src/store/state-store.js';
import { blocksOf, KvReplica } from '../events/kv-replica.js';
import { apply, Bench, operation, prompt, type Run } from './cache-bench.js';

const PLENTY = 2 ** 30;
/** Schedules of faults: a few hundred each time, and as many as one has time for when something was changed. */
const SCHEDULES = Number(process.env.WARMPATH_FAULT_SCHEDULES ?? runs(400));
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
  ) {
    const log = new KvEventLog(BLOCK);
    super(shape.cells, shape.sequences ?? 64, {
      hostBytes: shape.hostBytes,
      ...(shape.policy !== undefined && { policy: shape.policy }),
      disk,
      listener: log,
    });
    this.#log = log;
  }

  override check(): void {
    super.check();
    this.#replica.apply(this.#log.drain());
    expect(this.#replica.blocks).toEqual(blocksOf(this.cache.roots, BLOCK));
  }

  static async start(directory: string, shape: Shape, onWarning = (): void => undefined): Promise<DiskBench> {
    const { diskBytes: capacityBytes = PLENTY, clock = () => 0 } = shape;
    const opened = await StateStore.open({ directory, capacityBytes, identity: IDENTITY, clock, onWarning });
    return new DiskBench(opened.store, shape, opened);
  }

  /** Lets the disk finish what it was asked for. */
  async settle(): Promise<void> {
    await this.store.settled();
    this.check();
  }

  /** Reads what the disk holds of a request. @returns Whether there is more. */
  async load({ lease, tokens }: Run): Promise<boolean> {
    return lease.privateCells === 0 && this.cache.load(lease, tokens, tokens.length - 1);
  }

  /** A request that reads the disk as long as that gives something. */
  async serveWaiting(tokens: number[], boundaries: number[] = [], salt?: string): Promise<ReturnType<Bench['serve']>> {
    const run = this.start(tokens, boundaries, salt)!;
    const found = { device: run.computed, host: 0, disk: 0 };
    for (let isMore = true; isMore; ) {
      isMore = await this.load(run);
      const { device, host, disk } = this.extend(run);
      found.device += device;
      found.host += host;
      found.disk += disk;
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

/** Every write to a file fails from now on. */
async function fillDisk(directory: string): Promise<void> {
  const handle = await open(join(directory, 'any'), 'w');
  const refused = Object.assign(new Error('no space'), { code: 'ENOSPC' });
  vi.spyOn(Object.getPrototypeOf(handle) as typeof handle, 'writeFile').mockRejectedValue(refused);
  await handle.close();
}

describe('the cache with a disk tier', () => {
  let root: string;
  let folders = 0;
  const folder = (): string => join(root, String(folders++));

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'warmpath-disk-'));
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await rm(root, { recursive: true });
  });

  const steps = fc.array(
    fc.oneof(
      { weight: 6, arbitrary: operation },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant('load' as const), run: fc.nat({ max: 5 }) }) },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant('serve' as const), prompt }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('settle' as const) }) },
    ),
    { maxLength: 60, size: 'max' },
  );
  type Step = typeof steps extends fc.Arbitrary<(infer T)[]> ? T : never;
  const play = async (bench: DiskBench, all: readonly Step[]): Promise<void> => {
    for (const step of all) {
      if (step.kind === 'settle') {
        await bench.settle();
      } else if (step.kind === 'load') {
        const run = bench.runs[step.run % Math.max(1, bench.runs.length)];
        await (run && bench.load(run));
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
      { seed: 21, numRuns: 80 },
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
      { seed: 22, numRuns: runs(60) },
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
      { seed: 23, numRuns: runs(60) },
    );
    // Some damage is where nothing is read: behind the last token that a prompt may share.
    expect(damaged).toBeGreaterThan(runs(50));
  });

  it('keeps every invariant whatever becomes of its files: cuts, damage, loss, a full disk, restarts, aborts', async () => {
    const fault = fc.oneof(
      fc.record({ kind: fc.constant('abort' as const), run: fc.nat() }),
      fc.record({ kind: fc.constant('damage' as const), file: fc.nat(), place: fc.nat() }),
      fc.record({ kind: fc.constant('vanish' as const), file: fc.nat() }),
      fc.record({ kind: fc.constant('full' as const), isFull: fc.boolean() }),
      fc.record({ kind: fc.constant('restart' as const) }),
    );
    const schedule = fc.array(
      fc.oneof({ weight: 4, arbitrary: steps.map((all) => all.slice(0, 8)) }, { weight: 3, arbitrary: fault }),
      { maxLength: 12, size: 'max' },
    );
    const counts = { damaged: 0, lost: 0, restarts: 0, aborted: 0 };
    await fc.assert(
      fc.asyncProperty(schedule, fc.constantFrom(...REPLACEMENT_POLICY_NAMES), async (all, policy) => {
        vi.restoreAllMocks();
        const directory = folder();
        let nowMs = 0;
        const shape = { cells: 12, sequences: 6, hostBytes: 60, diskBytes: 900, policy, clock: () => nowMs };
        const onWarning = (): void => {
          counts.lost++;
        };
        let bench = await DiskBench.start(directory, shape, onWarning);
        for (const each of all) {
          // Beyond the pause after a full disk.
          nowMs += 100_000;
          if (Array.isArray(each)) {
            await play(bench, each);
          } else if (each.kind === 'abort') {
            const run = bench.runs[each.run % Math.max(1, bench.runs.length)];
            if (run !== undefined) {
              bench.release(run, false);
              counts.aborted++;
            }
          } else if (each.kind === 'restart') {
            await bench.close();
            vi.restoreAllMocks();
            const { committed } = bench;
            bench = await DiskBench.start(directory, shape, onWarning);
            for (const [salt, prompts] of committed) {
              bench.committed.set(salt, prompts);
            }
            counts.restarts++;
          } else if (each.kind === 'full') {
            vi.restoreAllMocks();
            if (each.isFull) {
              await fillDisk(directory);
            }
          } else {
            await bench.store.settled();
            const names = (await readdir(directory)).filter((name) => name.endsWith('.kv'));
            const path = join(directory, names[each.file % Math.max(1, names.length)] ?? 'none');
            if (each.kind === 'vanish') {
              await rm(path, { force: true });
            } else if (names.length > 0) {
              const bytes = await readFile(path);
              bytes[each.place % bytes.length]! ^= 4;
              await writeFile(path, bytes);
            }
          }
          bench.check();
        }
        vi.restoreAllMocks();
        for (const run of [...bench.runs]) {
          bench.release(run);
        }
        for (const [salt, texts] of bench.committed) {
          for (const committed of [...texts].slice(0, 6)) {
            await bench.serveWaiting([...committed.split(' ').filter(Boolean).map(Number), 2], [], salt);
          }
        }
        await bench.settle();
        const { failures, refusedFiles } = bench.cache.stats.disk!;
        counts.damaged += failures + refusedFiles;
        await bench.close();
      }),
      { seed: 24, numRuns: SCHEDULES },
    );
    expect(counts.damaged).toBeGreaterThan(SCHEDULES / 12);
    expect(counts.lost).toBeGreaterThan(SCHEDULES / 20);
    expect(counts.restarts).toBeGreaterThan(SCHEDULES / 4);
    expect(counts.aborted).toBeGreaterThan(SCHEDULES / 8);
  });

  it('gives up a file for all documents that it was cut into', async () => {
    const directory = folder();
    const bench = await DiskBench.start(directory, { cells: 20, hostBytes: 300 });
    bench.serve([1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0]);
    await bench.close();
    const next = await DiskBench.start(directory, { cells: 20, hostBytes: 300 });
    for (const name of (await readdir(directory)).filter((each) => each.endsWith('.kv'))) {
      await rm(join(directory, name));
    }
    // Two prompts that part from the stored one at two places, and wait for what is not there.
    await next.serveWaiting([1, 1, 1, 1, 9]);
    await next.serveWaiting([1, 1, 1, 1, 2, 2, 2, 2, 8]);
    await next.settle();
    expect(next.cache.stats.disk!.failures).toBeGreaterThan(0);
    expect((await next.serveWaiting([1, 1, 1, 1, 2, 2, 2, 2, 3, 0])).device).toBe(8);
    await next.close();
  });

  it('knows after a restart what was used most, however it was cut', async () => {
    const directory = folder();
    const shape = { cells: 20, hostBytes: 400, policy: 'pgdsf' as const };
    const bench = await DiskBench.start(directory, { ...shape, diskBytes: 4_000 });
    for (let use = 0; use < 20; use++) {
      await bench.serveWaiting([...asked(1).slice(0, 4), 50 + use], [4]);
    }
    await bench.close();
    const next = await DiskBench.start(directory, { ...shape, diskBytes: 4_000 });
    for (let id = 2; id <= 61; id++) {
      await next.serveWaiting(asked(id), [4]);
      await next.settle();
    }
    expect(next.cache.stats.disk!.evictedTokens).toBeGreaterThan(100);
    const { device, host, disk } = next.cache.match(asked(1), 4);
    expect(device + host + disk).toBe(4);
    await next.close();
  });

  it('knows of both parts of a document that was cut how often it was used', async () => {
    const bench = await DiskBench.start(folder(), { cells: 20, hostBytes: 200, diskBytes: 1, policy: 'pgdsf' });
    const document = [1, 2, 3, 4, 5, 6, 7, 8];
    for (let use = 0; use < 20; use++) {
      bench.serve([...document, 0], [8]);
    }
    // Another prompt parts from it in the middle, once.
    bench.serve([1, 2, 3, 4, 9, 0], []);
    for (let id = 10; id <= 60; id++) {
      bench.serve(asked(id), [4]);
    }
    const { device, host } = bench.cache.match(document);
    expect(device + host).toBe(8);
    expect(bench.cache.stats.host!.evictedTokens).toBeGreaterThan(100);
    await bench.close();
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

  it('reads on after the lease was extended, where host memory holds one document at a time', async () => {
    const bench = await DiskBench.start(folder(), { cells: 14, hostBytes: 60 });
    bench.serve(asked(1, 2), [4, 8]);
    bench.serve(asked(3, 4), [4, 8]);
    bench.serve(asked(5, 6), [4, 8]);
    bench.serve(asked(7, 8), [4, 8]);
    bench.serve(asked(9, 10), [4, 8]);
    await bench.settle();

    expect(bench.cache.match(asked(1, 2))).toMatchObject({ disk: 9 });
    const run = bench.start(asked(1, 2), [4, 8])!;
    expect(await bench.load(run)).toBe(true);
    // It counts as from the disk: that is where it was when the prompt came.
    expect(bench.extend(run)).toEqual({ device: 0, host: 0, disk: 4 });
    expect(await bench.load(run)).toBe(false);
    expect(bench.extend(run)).toEqual({ device: 0, host: 0, disk: 4 });
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
