import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { apply, Bench, operation, prompt } from './cache-bench.js';

describe('the prefix cache', () => {
  it.each([
    { cells: 1000, sequences: 64, name: 'with room for everything' },
    { cells: 24, sequences: 64, name: 'short of cells' },
    { cells: 1000, sequences: 5, name: 'short of sequence ids' },
    { cells: 20, sequences: 6, name: 'short of both' },
  ])('counts cells exactly, keeps what is in use and leaks no sequence id, $name', ({ cells, sequences }) => {
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 80, size: 'max' }), (steps) => {
        const bench = new Bench(cells, sequences);
        for (const step of steps) {
          apply(bench, step);
          bench.check();
        }
        for (const run of [...bench.runs]) {
          bench.release(run);
          bench.check();
        }
        expect(bench.cache.availableCells()).toBe(cells);
      }),
      { seed: 1, numRuns: runs(80) },
    );
  });

  it('finds exactly the longest prefix of everything committed, as long as nothing was evicted', () => {
    fc.assert(
      fc.property(fc.array(prompt, { maxLength: 20, size: 'max' }), prompt, (prompts, asked) => {
        const bench = new Bench(10_000, 64);
        for (const tokens of prompts) {
          const run = bench.start(tokens)!;
          bench.compute(run, tokens.length);
          bench.commit(run);
          bench.release(run);
        }
        expect(bench.cache.match(asked).device).toBe(bench.naiveMatch(asked, asked.length));
        expect(bench.cache.stats.usedCells).toBe(distinctPrefixes(bench.committed.get(undefined) ?? []));
      }),
      { seed: 2, numRuns: runs(300) },
    );
  });

  it('can use every cell and every id again after all requests have ended', () => {
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 60, size: 'max' }), (steps) => {
        const bench = new Bench(30, 8);
        for (const step of steps) {
          apply(bench, step);
        }
        for (const run of [...bench.runs]) {
          bench.release(run);
        }
        const whole = bench.start(Array.from({ length: 30 }, () => 9))!;
        expect(bench.compute(whole, 30)).toBe(true);
        bench.check();
      }),
      { seed: 3, numRuns: runs(200) },
    );
  });

  it('evicts the longest unused leaf first, as a whole', () => {
    const bench = new Bench(10, 8);
    bench.serve([1, 1, 1, 1]);
    bench.serve([2, 2, 2, 2]);
    bench.serve([1, 1, 1, 1]);
    bench.serve([3, 3, 3]);
    // Four and four and three cells do not fit into ten: the second prompt had to go.
    expect(bench.cache.match([1, 1, 1, 1]).device).toBe(4);
    expect(bench.cache.match([2, 2, 2, 2]).device).toBe(0);
    expect(bench.cache.match([3, 3, 3]).device).toBe(3);
    expect(bench.cache.stats).toMatchObject({ usedCells: 7, evictedTokens: 4 });
  });

  it('counts a request as using its tokens until it ends', () => {
    const bench = new Bench(8, 8);
    const long = bench.start([1, 1, 1])!;
    bench.compute(long, 3);
    bench.commit(long);
    for (const tokens of [
      [2, 2, 2],
      [3, 3],
    ]) {
      const run = bench.start(tokens)!;
      bench.compute(run, tokens.length);
      bench.commit(run);
      bench.release(run);
      if (tokens[0] === 2) {
        bench.release(long);
      }
    }
    const next = bench.start([4])!;
    bench.compute(next, 1);
    expect(bench.cache.match([1, 1, 1]).device).toBe(3);
    expect(bench.cache.match([2, 2, 2]).device).toBe(0);
  });

  it('lets a prefix outlive everything that extends it', () => {
    const bench = new Bench(8, 8);
    for (const tail of [
      [1, 1],
      [2, 2],
      [3, 3],
      [4, 4],
    ]) {
      const run = bench.start([0, 0, 0, 0, ...tail])!;
      bench.compute(run, 6);
      bench.commit(run);
      bench.release(run);
    }
    expect(bench.cache.match([0, 0, 0, 0, 4, 4]).device).toBe(6);
    expect(bench.cache.match([0, 0, 0, 0, 1, 1]).device).toBe(4);
  });

  it('shares what another running request has committed, also in the middle of a prompt', () => {
    const bench = new Bench(100, 8);
    const first = bench.start([1, 2, 3, 4, 5, 6])!;
    const second = bench.start([1, 2, 3, 4, 9, 9])!;
    bench.compute(first, 5);
    bench.commit(first);
    bench.extend(second);
    expect(second.computed).toBe(4);
    expect(bench.cache.samePath(first.lease, second.lease)).toBe(false);
    bench.check();
    expect(bench.memory.liveCells).toBe(5);
  });

  it('frees duplicates when two requests have computed the same tokens', () => {
    const bench = new Bench(100, 8);
    const runs = [bench.start([1, 2, 3, 4])!, bench.start([1, 2, 3, 4])!, bench.start([1, 2, 8, 9])!];
    for (const run of runs) {
      bench.compute(run, 4);
    }
    expect(bench.memory.liveCells).toBe(12);
    for (const run of runs) {
      bench.commit(run);
      bench.check();
    }
    expect(bench.memory.liveCells).toBe(6);
  });

  it('grows a leaf in place only while nobody else ends there', () => {
    const bench = new Bench(100, 8);
    const first = bench.start([1, 2, 3, 4, 5])!;
    bench.compute(first, 2);
    bench.commit(first);
    const second = bench.start([1, 2, 9, 9])!;
    expect(second.computed).toBe(2);
    bench.compute(first, 2);
    bench.commit(first);
    bench.compute(second, 2);
    bench.commit(second);
    bench.check();
    expect(bench.cache.match([1, 2, 9, 9]).device).toBe(4);
    expect(bench.cache.match([1, 2, 3, 4]).device).toBe(4);
  });

  it('refuses a lease when every sequence id is held by running requests', () => {
    const bench = new Bench(100, 2);
    const first = bench.start([1, 2])!;
    bench.start([3, 4]);
    expect(bench.start([5, 6])).toBeUndefined();
    bench.release(first);
    expect(bench.start([5, 6])).toBeDefined();
  });

  it('refuses to be used wrongly', () => {
    const bench = new Bench(10, 4);
    const run = bench.start([1, 2, 3])!;
    expect(() => bench.cache.commit(run.lease, [1])).toThrow('more tokens than it computed');
    bench.compute(run, 1);
    expect(() => bench.cache.extend(run.lease, [1, 2, 3], 2)).toThrow('private cells');
    bench.release(run);
    expect(() => bench.cache.grow(run.lease, 1)).toThrow('released');
  });
});

function distinctPrefixes(texts: Iterable<string>): number {
  const prefixes = new Set<string>();
  for (const text of texts) {
    const tokens = text.split(' ');
    for (let length = 1; length <= tokens.length; length++) {
      prefixes.add(tokens.slice(0, length).join(' '));
    }
  }
  return prefixes.size;
}
