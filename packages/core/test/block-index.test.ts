import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { KvEvent, Tier } from '../src/internal.js';
import { BlockIndex, chainsOf } from '../src/residency/block-index.js';
import './seed.js';
import { runs } from '../../../test/suite.js';

const BLOCK = 2;

/** Prompts over few tokens, so that they share beginnings. */
const prompt = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: BLOCK, maxLength: 5 * BLOCK });
const tier = fc.constantFrom<Tier>('device', 'host', 'disk');
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('store' as const), prompt, from: fc.nat(4), tier }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('move' as const), prompt, at: fc.nat(4), tier }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('remove' as const), prompt, at: fc.nat(4), tier }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'clear' as const }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** The engine's name of a prompt's block: here its tokens, from the prompt's start. */
function hashOf(tokens: readonly number[], index: number): string {
  return tokens.slice(0, (index + 1) * BLOCK).join('');
}

function blocksOf(tokens: readonly number[]): number {
  return Math.floor(tokens.length / BLOCK);
}

function eventOf(step: Step): KvEvent {
  if (step.kind === 'clear') return { kind: 'cleared' };
  const { prompt: tokens, tier: where } = step;
  const last = blocksOf(tokens) - 1;
  if (step.kind === 'store') {
    const from = Math.min(step.from, last);
    return stored(tokens, { from, tier: where });
  }
  const hashes = [hashOf(tokens, Math.min(step.at, last))];
  if (step.kind === 'remove') return { kind: 'removed', tier: where, hashes };
  return { kind: 'stored', tier: where, hashes, parent: undefined, tokens: [], blockSize: 0 };
}

function stored(
  tokens: readonly number[],
  { from = 0, tier: where = 'device' as Tier, salt = undefined as string | undefined } = {},
): KvEvent {
  const blocks = Array.from({ length: blocksOf(tokens) - from }, (_, place) => from + place);
  return {
    kind: 'stored',
    tier: where,
    hashes: blocks.map((block) => hashOf(tokens, block)),
    parent: from === 0 ? undefined : hashOf(tokens, from - 1),
    tokens: tokens.slice(from * BLOCK, blocksOf(tokens) * BLOCK),
    blockSize: BLOCK,
    ...(salt !== undefined && { extras: blocks.map((block) => (block === 0 ? salt : undefined)) }),
  };
}

/** The same by counting: copies of each hash in each tier. */
class CountedBlocks {
  readonly #copies = new Map<string, Map<Tier, number>>();

  apply(event: KvEvent): void {
    if (event.kind === 'cleared') {
      this.#copies.clear();
      return;
    }
    for (const hash of event.hashes) {
      const copies = this.#copies.get(hash) ?? new Map<Tier, number>();
      const held = copies.get(event.tier) ?? 0;
      if (event.kind === 'stored' && (event.tokens.length > 0 || this.has(hash))) copies.set(event.tier, held + 1);
      if (event.kind === 'removed' && held > 0) copies.set(event.tier, held - 1);
      this.#copies.set(hash, copies);
    }
  }

  has(hash: string): boolean {
    return [...(this.#copies.get(hash)?.values() ?? [])].some((count) => count > 0);
  }

  prefixBlocks(tokens: readonly number[]): number {
    let count = 0;
    while (count < blocksOf(tokens) && this.has(hashOf(tokens, count))) count++;
    return count;
  }

  get size(): number {
    return [...this.#copies.keys()].filter((hash) => this.has(hash)).length;
  }
}

describe('a block index', () => {
  test('tells of every prompt how many leading blocks lie somewhere', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), fc.array(prompt, { maxLength: 10 }), (steps, questions) => {
        const index = new BlockIndex();
        const counted = new CountedBlocks();
        for (const each of steps) {
          const event = eventOf(each);
          index.apply(event);
          counted.apply(event);
          expect(index.size).toBe(counted.size);
        }
        for (const tokens of questions) {
          expect(index.prefixBlocks(chainsOf(tokens, BLOCK))).toBe(counted.prefixBlocks(tokens));
        }
      }),
      { numRuns: runs(2_000) },
    );
  });

  test('says of each block whose place is known when it comes and when it goes', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const heard = new Set<number>();
        const index: BlockIndex = new BlockIndex({
          onChange: (chain, isResident) => {
            expect(heard.has(chain)).toBe(!isResident);
            if (isResident) heard.add(chain);
            else heard.delete(chain);
          },
        });
        for (const each of steps) index.apply(eventOf(each));
        for (const chain of heard) expect(index.has(chain)).toBe(true);
        expect(heard.size).toBeLessThanOrEqual(index.size - index.waitingBlocks);
      }),
      { numRuns: runs(1_000) },
    );
  });

  test('never takes a prompt for one of another salt', () => {
    const index = new BlockIndex();
    const tokens = [1, 1, 2, 2, 0, 0];
    index.apply({ ...stored(tokens, { salt: 'tenant-a' }) });
    expect(index.prefixBlocks(chainsOf(tokens, BLOCK, 'tenant-a'))).toBe(3);
    expect(index.prefixBlocks(chainsOf(tokens, BLOCK, 'tenant-b'))).toBe(0);
    expect(index.prefixBlocks(chainsOf(tokens, BLOCK))).toBe(0);
  });

  test('keeps blocks of different scopes apart where their hashes are equal, and removes one of them', () => {
    const index = new BlockIndex();
    const event = stored([1, 1, 2, 2]);
    index.apply({ ...event, scope: 'a', extras: ['a', undefined] } as KvEvent);
    index.apply({ ...event, scope: 'b', extras: ['b', undefined] } as KvEvent);
    expect(index.size).toBe(4);
    index.apply({ kind: 'removed', tier: 'device', hashes: [hashOf([1, 1, 2, 2], 1)] });
    expect(index.anomalies.ambiguous).toBe(1);
    expect(index.size).toBe(3);
    const left = ['a', 'b'].map((salt) => index.prefixBlocks(chainsOf([1, 1, 2, 2], BLOCK, salt)));
    expect(left.toSorted()).toEqual([1, 2]);
  });

  test('counts what it cannot apply, and goes on', () => {
    const index = new BlockIndex({ maxBlocks: 3 });
    index.apply({ ...(stored([1, 1]) as Extract<KvEvent, { kind: 'stored' }>), tokens: [1] });
    index.apply({ kind: 'removed', tier: 'host', hashes: ['x', 'y'] });
    index.apply({ kind: 'stored', tier: 'host', hashes: ['x'], parent: undefined, tokens: [], blockSize: 0 });
    index.apply(stored([1, 1, 2, 2, 0, 0, 1, 1]));
    expect(index.anomalies).toEqual({ unknownRemoved: 2, unknownStored: 1, malformed: 1, overflow: 1, ambiguous: 0 });
    expect(index.prefixBlocks(chainsOf([1, 1, 2, 2, 0, 0, 1, 1], BLOCK))).toBe(3);
  });

  test('takes the copies that are left from the engine where it tells', () => {
    const index = new BlockIndex();
    const event = stored([1, 1]);
    index.apply(event);
    index.apply(event);
    index.apply({ kind: 'removed', tier: 'device', hashes: [hashOf([1, 1], 0)], copiesLeft: [1] });
    expect(index.size).toBe(1);
    index.apply({ kind: 'removed', tier: 'device', hashes: [hashOf([1, 1], 0)], copiesLeft: [0] });
    expect(index.size).toBe(0);
  });

  test('gives chains that differ: a million prompts of few tokens', () => {
    const seen = new Set<number>();
    for (let number = 0; number < 1_000_000; number++) {
      seen.add(chainsOf([number % 100, Math.floor(number / 100) % 100, Math.floor(number / 10_000)], 3)[0]!);
    }
    expect(seen.size).toBe(1_000_000);
  });
});
