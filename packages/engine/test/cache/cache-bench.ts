import { type CostModel, type ReplacementPolicyName, replacementPolicy } from '@warmpath/core/internal';
import fc from 'fast-check';
import { expect } from 'vitest';
import type { DiskTierOptions } from '../../src/cache/disk-tier.js';
import type { Lease } from '../../src/cache/lease-table.js';
import { PrefixCache } from '../../src/cache/prefix-cache.js';
import type { TierListener } from '../../src/cache/radix-node.js';
import type { TokensByTier } from '../../src/cache/tokens-by-tier.js';
import { FakeMemory } from './fake-memory.js';
import { verifyCaches } from './hierarchy-check.js';

verifyCaches();

/** A request under way in the model: what it was asked to hold and how much of it is there. */
export interface Run {
  readonly lease: Lease;
  readonly tokens: number[];
  readonly salt: string | undefined;
  computed: number;
}

export interface BenchOptions {
  /** Size of the host tier; 0 when left out. */
  readonly hostBytes?: number;
  readonly policy?: ReplacementPolicyName;
  readonly cost?: CostModel;
  readonly listener?: TierListener;
  readonly disk?: DiskTierOptions;
}

/** A millisecond a token, whatever stands before it. */
export const MS_A_TOKEN: CostModel = { prefillMs: (_cachedTokens, newTokens) => newTokens };

/** The cache, its memory, and what must be true of both after every step. */
export class Bench {
  readonly memory: FakeMemory;
  readonly cache: PrefixCache;
  readonly runs: Run[] = [];
  /** By salt, every token sequence that was ever committed: the naive twin of the tree. */
  readonly committed = new Map<string | undefined, Set<string>>();

  constructor(
    readonly cells: number,
    readonly sequences: number,
    { hostBytes = 0, policy = 'lru', cost = MS_A_TOKEN, listener, disk }: BenchOptions = {},
  ) {
    this.memory = new FakeMemory(cells);
    this.cache = new PrefixCache({
      memory: this.memory,
      cells,
      sequences: Array.from({ length: sequences }, (_, index) => index),
      policy: replacementPolicy(policy),
      cost,
      host: { memory: this.memory, capacityBytes: hostBytes },
      listener,
      disk,
    });
  }

  /** Runs a request from its beginning to its end. */
  serve(tokens: number[], boundaries: number[] = [], salt?: string, canWait = false): TokensByTier {
    const run = this.start(tokens, boundaries, salt, canWait)!;
    const device = run.computed;
    const more = this.extend(run);
    expect(this.compute(run, tokens.length)).toBe(true);
    this.commit(run);
    this.release(run);
    this.check();
    return { device: device + more.device, host: more.host, disk: more.disk };
  }

  start(tokens: number[], boundaries: number[] = [], salt?: string, canWait = false): Run | undefined {
    const limit = Math.max(tokens.length - 1, 0);
    const expected = this.cache.match(tokens, limit, salt).device;
    expect(expected).toBeLessThanOrEqual(this.naiveMatch(tokens, limit, salt));
    const lease = this.cache.acquire(tokens, limit, boundaries, salt, canWait);
    if (lease === undefined) {
      return undefined;
    }
    expect(lease.length).toBe(expected);
    const run: Run = { lease, tokens, salt, computed: lease.length };
    this.runs.push(run);
    return run;
  }

  compute(run: Run, wanted: number): boolean {
    const count = Math.min(wanted, run.tokens.length - run.computed);
    const available = this.cache.availableCells();
    const { usedCells, evictedTokens } = this.cache.stats;
    const isRoom = this.cache.grow(run.lease, count);
    expect(isRoom).toBe(count <= available);
    const missing = isRoom ? Math.max(0, count - (this.cells - usedCells)) : 0;
    const evicted = this.cache.stats.evictedTokens - evictedTokens;
    // Nodes move as a whole.
    expect(evicted).toBeGreaterThanOrEqual(missing);
    if (isRoom) {
      this.memory.compute(run.lease.sequence, run.tokens.slice(run.computed, run.computed + count));
      run.computed += count;
    }
    return isRoom;
  }

  commit(run: Run): void {
    this.cache.commit(run.lease, run.tokens.slice(run.lease.length, run.computed));
    const committed = this.committed.get(run.salt) ?? new Set();
    this.committed.set(run.salt, committed.add(run.tokens.slice(0, run.computed).join(' ')));
    expect(run.lease.length).toBe(run.computed);
    expect(run.lease.privateCells).toBe(0);
  }

  extend(run: Run): TokensByTier {
    if (run.lease.privateCells > 0) {
      return { device: 0, host: 0, disk: 0 };
    }
    const gained = this.cache.extend(run.lease, run.tokens, run.tokens.length - 1);
    run.computed += gained.device + gained.host + gained.disk;
    return gained;
  }

  /** @param wasUsed False for a request that was aborted, or failed. */
  release(run: Run, wasUsed = true): void {
    this.runs.splice(this.runs.indexOf(run), 1);
    this.cache.release(run.lease, wasUsed);
  }

  naiveMatch(tokens: readonly number[], limit: number, salt?: string): number {
    let best = 0;
    for (const text of this.committed.get(salt) ?? []) {
      const other = text === '' ? [] : text.split(' ').map(Number);
      let length = 0;
      while (length < limit && length < other.length && other[length] === tokens[length]) {
        length++;
      }
      best = Math.max(best, length);
    }
    return best;
  }

  check(): void {
    const stats = this.cache.stats;
    expect(stats.usedCells).toBe(this.memory.liveCells);
    expect(stats.cachedCells).toBe(stats.usedCells - this.runs.reduce((sum, run) => sum + run.lease.privateCells, 0));
    expect(stats.leases).toBe(this.runs.length);
    for (const run of this.runs) {
      // Nothing that a running request holds was evicted or changed.
      expect(this.memory.tokensOf(run.lease.sequence)).toEqual(run.tokens.slice(0, run.computed));
      expect(run.lease.length + run.lease.privateCells).toBe(run.computed);
    }
    // An id that labels cells is in use; one that labels none is free, or belongs to a lease that holds nothing yet.
    const empty = this.runs.filter((run) => run.computed === 0).length;
    expect(this.memory.usedSequences.size + empty + stats.freeSequences).toBe(this.sequences);
  }
}

// Few distinct tokens, so that prompts share prefixes, split nodes and repeat each other.
export const prompt = fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 1, maxLength: 10, size: 'max' });
const boundaries = fc.uniqueArray(fc.integer({ min: 1, max: 9 }), { maxLength: 3 }).map((places) => places.sort());
const salt = fc.constantFrom(undefined, undefined, 'one', 'other');
export const operation = fc.oneof(
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('start' as const), prompt, boundaries, salt }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        'compute' as const,
        'compute' as const,
        'commit' as const,
        'extend' as const,
        'release' as const,
      ),
      run: fc.nat({ max: 5 }),
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
);
export type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

export function apply(bench: Bench, step: Operation): void {
  if (step.kind === 'start') {
    bench.start(step.prompt, step.boundaries, step.salt);
    return;
  }
  const run = bench.runs[step.run % Math.max(bench.runs.length, 1)];
  if (run === undefined) {
    return;
  }
  if (step.kind === 'compute') {
    bench.compute(run, step.count);
  } else {
    bench[step.kind](run);
  }
}
