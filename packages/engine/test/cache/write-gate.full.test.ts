import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ReplacementPolicyName } from '@warmpath/core/internal';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StateStore } from '../../src/store/state-store.js';
import { Bench } from './cache-bench.js';

/** A document of eight tokens that are its number. */
const asked = (document: number): number[] => Array.from({ length: 8 }, () => document);

describe('what is written to the disk', () => {
  let directory: string;
  let store: StateStore;
  let bench: Bench;
  const start = async (capacityBytes: number, policy: ReplacementPolicyName): Promise<void> => {
    const opened = await StateStore.open({
      directory,
      capacityBytes,
      identity: { model: 'm', library: 'l', cells: 'c' },
      clock: () => 0,
      onWarning: () => undefined,
    });
    store = opened.store;
    // The host holds two or three documents.
    bench = new Bench(16, 8, { hostBytes: 300, policy, disk: { ...opened, clock: () => 0 } });
  };
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'warmpath-gate-'));
  });
  afterEach(async () => {
    await bench.cache.close(() => true);
    await rm(directory, { recursive: true });
  });

  /** Tokens that a prompt finds, wherever they lie. */
  async function serve(tokens: number[]): Promise<number> {
    const { device, host, disk } = bench.cache.match(tokens, tokens.length - 1);
    const run = bench.start(tokens)!;
    while (bench.extend(run).isAwaitingDisk) {
      await bench.cache.waitForDisk();
      bench.cache.settle();
    }
    bench.compute(run, tokens.length);
    bench.commit(run);
    bench.release(run);
    bench.cache.clearIdle();
    await store.settled();
    bench.cache.settle();
    return device + host + disk;
  }
  const written = (): number => bench.cache.stats.disk!.savedTokens;

  it('is not what nobody asks for again, once the disk is full of it', async () => {
    // About thirty documents.
    await start(10_000, 'pgdsf');
    for (let document = 1_000; document < 2_200; document++) {
      expect(await serve(asked(document))).toBe(0);
    }
    const { leftOutTokens, evictedTokens, savedTokens } = bench.cache.stats.disk!;
    expect(savedTokens).toBeLessThan(330 * 8);
    expect(leftOutTokens).toBeGreaterThan(850 * 8);
    expect(evictedTokens).toBeGreaterThan(200 * 8);
  });

  it.each(['pgdsf', 'lru'] as const)('is everything where all is asked for again, with %s', async (policy) => {
    await start(400_000, policy);
    for (let round = 0; round < 3; round++) {
      for (let document = 1_000; document < 1_300; document++) {
        expect(await serve(asked(document))).toBe(round === 0 ? 0 : 7);
      }
    }
    expect(bench.cache.stats.disk!.leftOutTokens).toBe(0);
  });

  it('is what is asked for again among much that is not, with nine in ten of its hits and a third of the writes', async () => {
    await start(10_000, 'pgdsf');
    let found = 0;
    let wanted = 0;
    let next = 1_000;
    const requests = { all: 0 };
    for (let round = 0; round < 40; round++) {
      // Eight documents come back, every sixty requests.
      for (let document = 1; document <= 8; document++) {
        const tokens = await serve(asked(document));
        requests.all++;
        if (round > 0) {
          wanted += 7;
          found += tokens;
        }
      }
      for (let count = 0; count < 52; count++) {
        await serve(asked(next++));
        requests.all++;
      }
    }
    expect(found / wanted).toBeGreaterThan(0.9);
    expect(written()).toBeLessThan((requests.all * 8) / 3);
  });

  it('is written again when what was left out comes back', async () => {
    await start(10_000, 'lru');
    for (let document = 1_000; document < 1_600; document++) {
      await serve(asked(document));
    }
    const before = bench.cache.stats.disk!;
    await serve(asked(1_600));
    await serve(asked(1_601));
    expect(written()).toBe(before.savedTokens);
    // Four documents by turns: more than the host holds.
    let found = 0;
    for (let request = 0; request < 400; request++) {
      found = await serve(asked(2_000 + (request % 4)));
    }
    expect(found).toBe(7);
    expect(written()).toBeGreaterThan(before.savedTokens);
  });
});
