import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HotCopies } from '../../src/cache/hot-copies.js';
import { StateStore } from '../../src/store/state-store.js';
import { Bench } from './cache-bench.js';

const IDENTITY = { model: 'a'.repeat(64), library: 'llama.cpp v0.5.0', cells: 'f16/f16' };
const MAX_COPIES = 256;

describe('copies for a restart', () => {
  let directory: string;
  let opened: Awaited<ReturnType<typeof StateStore.open>>;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'warmpath-hot-'));
    const options = { directory: join(directory, 'hot'), capacityBytes: 2 ** 26, identity: IDENTITY, clock: () => 0 };
    opened = await StateStore.open({ ...options, onWarning: (message) => expect.unreachable(message) });
  });
  afterEach(async () => {
    await opened.store.close();
    await rm(directory, { recursive: true });
  });

  it.each([MAX_COPIES - 1, MAX_COPIES, MAX_COPIES + 1, MAX_COPIES + 20])(
    'are made of the upper nodes and no more than there may be, of a path of %i',
    async (length) => {
      const { cache, memory, ...bench } = newBench(length);
      const copies = new HotCopies({ ...opened, cache, memory });
      for (let use = 0; use < 2; use++) {
        bench.serve();
        copies.noteUse();
      }
      // What waits to be written is bounded, so several looks may be needed.
      let made = -1;
      while (copies.stats.copies > made) {
        made = copies.stats.copies;
        copies.noteUse();
        while (copies.step(true)) await new Promise((resolve) => setImmediate(resolve));
      }
      expect(copies.stats).toMatchObject({ copies: Math.min(length, MAX_COPIES), failures: 0 });
    },
  );

  /** A prompt of so many documents, one token each. */
  function newBench(length: number): Pick<Bench, 'cache' | 'memory'> & { serve(): void } {
    const bench = new Bench(2 * length, 8);
    const prompt = Array.from({ length }, (_, place) => place);
    const ends = prompt.map((place) => place + 1);
    return { cache: bench.cache, memory: bench.memory, serve: () => void bench.serve(prompt, ends) };
  }
});
