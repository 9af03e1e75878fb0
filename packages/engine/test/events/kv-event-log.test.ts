import { REPLACEMENT_POLICY_NAMES } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { KvEvent } from '../../src/events/kv-event.js';
import { KvEventLog } from '../../src/events/kv-event-log.js';
import { apply, Bench, type BenchOptions, operation } from '../cache/cache-bench.js';
import { blocksOf, KvReplica, naiveHash } from './kv-replica.js';

const PLENTY = 2 ** 30;

/** A cache that tells, and a consumer that was told everything. */
class ToldBench extends Bench {
  readonly log: KvEventLog;
  readonly replica = new KvReplica();

  constructor(cells: number, sequences: number, options: BenchOptions & { readonly block: number }) {
    const log = new KvEventLog(options.block);
    super(cells, sequences, { ...options, listener: log });
    this.log = log;
    this.block = options.block;
  }

  readonly block: number;

  /** What happened since the last time, told to the consumer, which then holds what the tree holds. */
  tell(): KvEvent[] {
    const events = JSON.parse(JSON.stringify(this.log.drain())) as KvEvent[];
    this.replica.apply(events);
    expect(this.replica.blocks).toEqual(blocksOf(this.cache.roots, this.block));
    return events;
  }

  /** Ends what runs and asks for everything again that was ever committed. */
  askAgain(): KvEvent[] {
    for (const run of [...this.runs]) {
      this.release(run);
    }
    return [...this.committed].flatMap(([salt, texts]) =>
      [...texts].flatMap((text) => {
        this.serve([...text.split(' ').filter(Boolean).map(Number), 2], [3], salt);
        return this.tell();
      }),
    );
  }
}

describe('a consumer of all KV events', () => {
  it.each([
    { cells: 1000, sequences: 64, hostBytes: undefined, name: 'with room for everything' },
    { cells: 16, sequences: 8, hostBytes: undefined, name: 'short of cells' },
    { cells: 16, sequences: 8, hostBytes: PLENTY, name: 'with a host tier' },
    { cells: 12, sequences: 6, hostBytes: 60, name: 'with a small host tier' },
  ])(
    'holds after every step exactly the full blocks that each tier holds, $name',
    ({ cells, sequences, hostBytes }) => {
      const seen = new Set<string>();
      const note = (events: readonly KvEvent[]): void => {
        for (const event of events) {
          seen.add(`${event.type} ${event.type === 'cleared' ? '' : event.medium}`);
        }
      };
      fc.assert(
        fc.property(
          fc.array(operation, { maxLength: 80, size: 'max' }),
          fc.integer({ min: 1, max: 4 }),
          fc.constantFrom(...REPLACEMENT_POLICY_NAMES),
          (steps, block, policy) => {
            const bench = new ToldBench(cells, sequences, {
              block,
              policy,
              ...(hostBytes !== undefined && { hostBytes }),
            });
            for (const step of steps) {
              apply(bench, step);
              note(bench.tell());
            }
            note(bench.askAgain());
          },
        ),
        { seed: 11, numRuns: 120 },
      );
      expect(seen).toContain('stored GPU');
      expect(seen.has('removed GPU')).toBe(cells < 1000);
      expect(seen.has('stored CPU')).toBe(hostBytes !== undefined);
      expect(seen.has('removed CPU')).toBe(hostBytes === 60);
    },
  );

  it('hears it too when copies are lost because they were damaged', () => {
    let failures = 0;
    fc.assert(
      fc.property(
        fc.array(fc.tuple(operation, fc.nat({ max: 9 })), { maxLength: 80, size: 'max' }),
        fc.integer({ min: 1, max: 3 }),
        (steps, block) => {
          const bench = new ToldBench(12, 6, { block, hostBytes: PLENTY });
          const damaged = new Set<Uint8Array>();
          for (const [step, kind] of steps) {
            apply(bench, step);
            const state = bench.memory.saved.at(-1);
            if (kind < 5 && state !== undefined && !damaged.has(state)) {
              state[0]! ^= 1;
              damaged.add(state);
            }
            bench.tell();
          }
          bench.askAgain();
          failures += bench.cache.stats.host!.failures;
        },
      ),
      { seed: 12, numRuns: 120 },
    );
    expect(failures).toBeGreaterThan(20);
  });
});

describe('KV events', () => {
  it('name blocks by the hash of all tokens before them, and what they continue', () => {
    const bench = new ToldBench(100, 8, { block: 2 });
    bench.serve([1, 2, 3, 4, 5]);
    expect(bench.tell()).toEqual([
      {
        type: 'stored',
        medium: 'GPU',
        blockHashes: [naiveHash([1, 2], 2), naiveHash([1, 2, 3, 4], 2)],
        parentBlockHash: null,
        tokenIds: [1, 2, 3, 4],
        blockSize: 2,
      },
    ]);
    bench.serve([1, 2, 3, 4, 6, 7]);
    expect(bench.tell()).toEqual([
      {
        type: 'stored',
        medium: 'GPU',
        blockHashes: [naiveHash([1, 2, 3, 4, 6, 7], 2)],
        parentBlockHash: naiveHash([1, 2, 3, 4], 2),
        tokenIds: [6, 7],
        blockSize: 2,
      },
    ]);
  });

  it('say the salt where a prompt begins, and hash it', () => {
    const bench = new ToldBench(100, 8, { block: 2 });
    bench.serve([1, 2, 3, 4], [], 'tenant');
    bench.serve([1, 2, 3, 4]);
    const [salted, plain] = bench.tell();
    expect(salted).toMatchObject({ salt: 'tenant', blockHashes: [naiveHash([1, 2], 2, 'tenant'), expect.any(String)] });
    expect(plain).toMatchObject({ tokenIds: [1, 2, 3, 4] });
    expect(plain).not.toHaveProperty('salt');
    expect(bench.replica.counts).toEqual({ GPU: 4 });
  });

  it('tell of a document that moves to the host and back: stored there before it leaves', () => {
    const bench = new ToldBench(10, 8, { block: 4, hostBytes: PLENTY });
    bench.serve([1, 1, 1, 1, 2, 2, 2, 2, 0], [4, 8]);
    bench.tell();
    bench.serve([3, 3, 3, 3, 0], [4]);
    const second = naiveHash([1, 1, 1, 1, 2, 2, 2, 2], 4);
    expect(bench.tell()).toMatchObject([
      { type: 'stored', medium: 'CPU', blockHashes: [second], parentBlockHash: naiveHash([1, 1, 1, 1], 4) },
      { type: 'removed', medium: 'GPU', blockHashes: [second] },
      { type: 'stored', medium: 'GPU', tokenIds: [3, 3, 3, 3] },
    ]);
    bench.serve([1, 1, 1, 1, 2, 2, 2, 2, 0], [4, 8]);
    expect(bench.tell()).toContainEqual({
      type: 'stored',
      medium: 'GPU',
      blockHashes: [second],
      parentBlockHash: naiveHash([1, 1, 1, 1], 4),
      tokenIds: [2, 2, 2, 2],
      blockSize: 4,
    });
  });

  it('say nothing of a hit', () => {
    const bench = new ToldBench(100, 8, { block: 2 });
    bench.serve([1, 2, 3, 4, 5]);
    bench.tell();
    bench.serve([1, 2, 3, 4, 5]);
    expect(bench.tell()).toEqual([]);
  });
});
