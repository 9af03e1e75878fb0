import { REPLACEMENT_POLICY_NAMES } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { apply, Bench, operation, prompt } from './cache-bench.js';

const PLENTY = 2 ** 30;
/** The prompts of documents 1, 2, 3 … of four tokens each, and a question. */
const asked = (...documents: number[]): number[] => [...documents.flatMap((id) => [id, id, id, id]), 0];

const salts = [undefined, 'one', 'other'];

/** Tokens of a salt that lie in each tier. */
function lying(bench: Bench, salt: string | undefined): { device: number; host: number } {
  const nodes = bench.cache.roots.filter((root) => root.salt === salt).flatMap((root) => [...root.children.values()]);
  const tokens = { device: 0, host: 0 };
  for (let node = nodes.pop(); node !== undefined; node = nodes.pop()) {
    tokens.device += node.onDevice ? node.tokenCount : 0;
    tokens.host += node.copy === undefined ? 0 : node.tokenCount;
    nodes.push(...node.children.values());
  }
  return tokens;
}

describe('the cache with a host tier', () => {
  it.each([
    { cells: 24, sequences: 64, hostBytes: PLENTY, name: 'short of cells' },
    { cells: 1000, sequences: 5, hostBytes: PLENTY, name: 'short of sequence ids' },
    { cells: 20, sequences: 6, hostBytes: 400, name: 'short of everything' },
    { cells: 20, sequences: 6, hostBytes: 40, name: 'with a host that holds hardly anything' },
  ])('keeps its hierarchy and every count after every step, $name', ({ cells, sequences, hostBytes }) => {
    fc.assert(
      fc.property(
        fc.array(operation, { maxLength: 80, size: 'max' }),
        fc.constantFrom(...REPLACEMENT_POLICY_NAMES),
        (steps, policy) => {
          const bench = new Bench(cells, sequences, { hostBytes, policy });
          for (const step of steps) {
            apply(bench, step);
            bench.check();
            expect(bench.cache.stats.host!.usedBytes).toBeLessThanOrEqual(hostBytes);
          }
          for (const run of [...bench.runs]) {
            bench.release(run);
            bench.check();
          }
          expect(bench.cache.availableCells()).toBe(cells);
          expect(bench.cache.stats.host!.failures).toBe(0);
        },
      ),
      { seed: 5, numRuns: runs(120) },
    );
  });

  it.each([
    { hostBytes: undefined, name: 'on the device alone' },
    { hostBytes: 400, name: 'with a host tier' },
  ])('drops what nobody needs of what it is told to drop, and nothing else, $name', ({ hostBytes }) => {
    const flush = fc.record({
      kind: fc.constant('flush' as const),
      salt: fc.constantFrom(undefined, 'one', 'other'),
      tiers: fc.subarray(['device', 'host'] as const, { minLength: 1 }),
    });
    fc.assert(
      fc.property(
        fc.array(fc.oneof({ weight: 9, arbitrary: operation }, flush), { maxLength: 60, size: 'max' }),
        (all) => {
          const bench = new Bench(20, 6, { ...(hostBytes !== undefined && { hostBytes }) });
          for (const step of all) {
            if (step.kind !== 'flush') {
              apply(bench, step);
              continue;
            }
            const before = salts.map((salt) => lying(bench, salt));
            const dropped = bench.cache.flush(step.tiers, step.salt);
            bench.check();
            for (const [index, salt] of salts.entries()) {
              const after = lying(bench, salt);
              if (step.salt !== undefined && step.salt !== salt) {
                expect(after).toEqual(before[index]);
              }
            }
            const sum = (tier: 'device' | 'host'): number =>
              salts.reduce((total, salt, index) => total + before[index]![tier] - lying(bench, salt)[tier], 0);
            expect(dropped).toEqual({ device: sum('device'), host: sum('host'), disk: 0 });
          }
          for (const run of [...bench.runs]) {
            bench.release(run);
          }
          bench.cache.flush(['device', 'host', 'disk']);
          bench.check();
          expect(bench.cache.roots.map(({ children }) => children.size)).toEqual([0]);
          expect(bench.memory.liveCells).toBe(0);
          expect(bench.cache.stats.host?.usedBytes ?? 0).toBe(0);
        },
      ),
      { seed: 11, numRuns: runs(200) },
    );
  });

  it('loses nothing that was ever committed, however small the device is, as long as the host has room', () => {
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 80, size: 'max' }), prompt, (steps, tokens) => {
        const bench = new Bench(16, 6, { hostBytes: PLENTY });
        for (const step of steps) {
          apply(bench, step);
          const { device, host } = bench.cache.match(tokens);
          expect(device + host).toBe(bench.naiveMatch(tokens, tokens.length));
        }
        for (const run of [...bench.runs]) {
          bench.release(run);
        }
        // All of it can be had, token for token, without computing it again.
        const expected = bench.naiveMatch(tokens, tokens.length - 1);
        const served = bench.serve(tokens);
        expect(served.device + served.host).toBe(expected);
      }),
      { seed: 6, numRuns: runs(150) },
    );
  });

  it('never takes a damaged copy for what it was: it is computed again', () => {
    let failures = 0;
    fc.assert(
      fc.property(
        fc.array(fc.tuple(operation, fc.nat({ max: 9 })), { maxLength: 80, size: 'max' }),
        fc.nat(),
        (steps, place) => {
          const bench = new Bench(14, 6, { hostBytes: PLENTY });
          const damaged = new Set<Uint8Array>();
          for (const [step, kind] of steps) {
            apply(bench, step);
            const state = bench.memory.saved.at(-1);
            if (kind < 5 && state !== undefined && !damaged.has(state)) {
              state[place % state.length]! ^= 1;
              damaged.add(state);
            }
            // Throws when a sequence holds other cells than it should.
            bench.check();
          }
          for (const run of [...bench.runs]) {
            bench.release(run);
          }
          for (const [salt, texts] of bench.committed) {
            for (const committed of [...texts]) {
              bench.serve([...committed.split(' ').filter(Boolean).map(Number), 2], [], salt);
            }
          }
          failures += bench.cache.stats.host!.failures;
        },
      ),
      { seed: 7, numRuns: 150 },
    );
    expect(failures).toBeGreaterThan(20);
  });

  it('computes again what the memory does not take back', () => {
    const bench = new Bench(9, 8, { hostBytes: PLENTY });
    bench.serve(asked(1), [4]);
    bench.serve(asked(2, 3), [4, 8]);
    bench.memory.takesBack = false;
    expect(bench.cache.match(asked(1))).toEqual({ device: 0, host: 5, disk: 0 });
    expect(bench.serve(asked(1), [4])).toEqual({ device: 0, host: 0, disk: 0 });
    expect(bench.cache.stats.host!.failures).toBe(1);
    expect(bench.cache.match(asked(1)).device).toBe(5);
  });

  it('moves a document as a whole, and brings it back without computing it', () => {
    const bench = new Bench(10, 8, { hostBytes: PLENTY });
    bench.serve(asked(1, 2), [4, 8]);
    bench.serve(asked(3), [4]);
    // Nine cells and five in ten: the question and the second document went, which is one token more than was missing.
    expect(bench.cache.match(asked(1, 2))).toEqual({ device: 4, host: 5, disk: 0 });
    expect(bench.cache.stats).toMatchObject({ evictedTokens: 5, host: { savedTokens: 5, restoredTokens: 0 } });
    expect(bench.serve(asked(1, 2), [4, 8])).toEqual({ device: 4, host: 4, disk: 0 });
    expect(bench.cache.stats.host).toMatchObject({ restoredTokens: 4 });
  });

  it('cuts prompts at blocks where nobody says where documents end', () => {
    const bench = new Bench(400, 8, { hostBytes: PLENTY });
    bench.serve(Array.from({ length: 300 }, () => 1));
    bench.serve(Array.from({ length: 101 }, () => 2));
    expect(bench.cache.stats.evictedTokens).toBe(300 - 256);
  });

  it('copies a node out once, however often it leaves the device', () => {
    const bench = new Bench(10, 8, { hostBytes: PLENTY });
    for (let round = 0; round < 4; round++) {
      bench.serve(asked(1, 2), [4, 8]);
      bench.serve(asked(3, 4), [4, 8]);
    }
    const { evictedTokens, host } = bench.cache.stats;
    expect(host!.tokens).toBe(host!.savedTokens);
    expect(host!.savedTokens).toBeLessThanOrEqual(18);
    expect(evictedTokens).toBeGreaterThan(50);
  });

  it('lets a copy go only after those that stand behind it', () => {
    const bench = new Bench(9, 8, { hostBytes: 200 });
    for (let id = 1; id < 20; id++) {
      bench.serve(asked(1, id), [4, 8]);
      bench.serve([...asked(id), 9, 9, 9], [4]);
    }
    expect(bench.cache.stats.host!.evictedTokens).toBeGreaterThan(0);
    expect(bench.cache.match(asked(1, 19)).device + bench.cache.match(asked(1, 19)).host).toBeGreaterThan(4);
  });

  it('lets copies of what lies on the device too go first, and holds together more than either', () => {
    const bench = new Bench(10, 8, { hostBytes: 60 });
    bench.serve(asked(1), [4]);
    bench.serve(asked(2), [4]);
    // The first prompt comes back, and with it its document has a copy that nobody needs.
    bench.serve(asked(3), [4]);
    expect(bench.serve(asked(1), [4])).toEqual({ device: 0, host: 4, disk: 0 });
    bench.serve(asked(4), [4]);
    const held = [1, 2, 3, 4].map((id) => bench.cache.match(asked(id).slice(0, 4)));
    expect(held.map(({ device, host }) => device + host)).toEqual([4, 4, 4, 4]);
    expect(bench.cache.stats.host!.evictedTokens).toBeGreaterThan(0);
  });

  it('shares what the host holds between requests that run at the same time', () => {
    const bench = new Bench(13, 8, { hostBytes: PLENTY });
    bench.serve(asked(1, 2), [4, 8]);
    bench.serve(asked(3, 4, 5), [4, 8, 12]);
    const [first, second] = [bench.start(asked(1, 2, 6))!, bench.start([...asked(1, 2), 7])!];
    expect(bench.extend(first)).toMatchObject({ device: 0, host: 8, disk: 0 });
    expect(bench.extend(second)).toMatchObject({ device: 8, host: 1, disk: 0 });
    bench.check();
    expect(bench.memory.liveCells).toBe(13);
  });
});

describe('the replacement policy', () => {
  /** Document 1 is asked for four times, then documents 2 to 5 once each, in nine cells. */
  function afterPopularity(policy: 'pgdsf' | 'gdsf' | 'lru' | 'lfu', later: readonly number[]): boolean {
    const bench = new Bench(10, 8, { policy });
    for (let time = 0; time < 4; time++) {
      bench.serve(asked(1), [4]);
    }
    for (const id of later) {
      bench.serve(asked(id), [4]);
    }
    return bench.cache.match(asked(1).slice(0, 4)).device === 4;
  }

  it.each([
    { policy: 'lru', stays: false },
    { policy: 'lfu', stays: true },
    { policy: 'gdsf', stays: true },
    { policy: 'pgdsf', stays: true },
  ] as const)('$policy keeps what is asked for often: $stays', ({ policy, stays }) => {
    expect(afterPopularity(policy, [2, 3])).toBe(stays);
  });

  it('has a clock that overtakes what is no longer asked for, unless it is lfu', () => {
    const many = Array.from({ length: 30 }, (_, index) => index + 2);
    expect(afterPopularity('lfu', many)).toBe(true);
    expect(afterPopularity('gdsf', many)).toBe(false);
    expect(afterPopularity('pgdsf', many)).toBe(false);
  });

  it('keeps, in pgdsf, what is dearer to compute', () => {
    const bench = new Bench(14, 8, {
      policy: 'pgdsf',
      // Tokens behind others cost more.
      cost: { prefillMs: (cached, tokens) => tokens * (1 + cached) },
    });
    bench.serve([1, 1, 1, 1], []);
    bench.serve([1, 1, 1, 1, 2, 2, 2, 2], [4]);
    bench.serve([3, 3, 3, 3], []);
    // Two cells are missing; the cheap third prompt is younger than the dear end of the second.
    bench.serve([4, 4, 4, 4], []);
    expect(bench.cache.match([1, 1, 1, 1, 2, 2, 2, 2]).device).toBe(8);
    expect(bench.cache.match([3, 3, 3, 3]).device).toBeLessThan(4);
  });
});
