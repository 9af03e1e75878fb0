import { fileURLToPath } from 'node:url';
import { replacementPolicy } from '@warmpath/core/internal';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import type { Lease } from '../../src/cache/lease-table.js';
import { PrefixCache } from '../../src/cache/prefix-cache.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeContext } from '../../src/native/context.js';
import { NativeModel } from '../../src/native/model.js';
import { SEQUENCE_IDS } from '../../src/native/sequence-ids.js';
import { someTokens } from '../support/engine.js';
import { MS_A_TOKEN } from './cache-bench.js';
import { verifyCaches } from './hierarchy-check.js';

verifyCaches();

const DEMO = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

/**
 * Schedules for each kind of model that shares prefixes: full attention, rope factors that depend on the size of the
 * context, positions in several dimensions, cells that hold no keys of heads, and layers that attend to a window.
 */
const RUNS = {
  demo: 10,
  'random:1m-longrope512': 6,
  'random:1m-mrope': 6,
  'random:1m-mla': 6,
  'random:4m-window32': 10,
};

/** Most tokens in one batch. */
const WHOLE = 512;
/** Sizes of the batches that a prompt is computed in; the cache leaves rests of any size to be computed. */
const SHAPES = [3, 7, 13, 32, 64, 100, 150];
/** Tokens of other sequences among which a prompt's cells lie. */
const FOREIGN = [0, 61, 190];

const FRAGMENT_LENGTHS = [19, 37, 53, 64, 90];

/** A prompt as a sequence of fragments, at whose ends its documents end. */
interface Prompt {
  readonly tokens: number[];
  readonly boundaries: number[];
}

function promptOf(fragments: readonly number[]): Prompt {
  let end = 0;
  const boundaries = fragments.map((fragment) => {
    end += FRAGMENT_LENGTHS[fragment]!;
    return end;
  });
  return { tokens: fragments.flatMap((fragment) => someTokens(FRAGMENT_LENGTHS[fragment]!, fragment)), boundaries };
}

const fragments = fc.array(fc.nat({ max: FRAGMENT_LENGTHS.length - 1 }), { minLength: 1, maxLength: 5 });

/**
 * The largest of some hundred differences is a little different in the next hundred; a wrong cell moves logits by whole
 * units.
 */
const SAMPLING_MARGIN = 1.5;

/** Tokens from one place on, in batches of so many. */
interface Range {
  readonly tokens: readonly number[];
  readonly from: number;
  readonly batch: number;
}

/** What can happen to a cache; every prefill and every graft ends with the logits of the prompt's last token. */
type Step =
  /** Computes what is missing of a prompt, in batches of so many tokens, and holds it while `isHeld`. */
  | {
      readonly kind: 'prefill';
      readonly fragments: readonly number[];
      readonly batch: number;
      readonly isHeld: boolean;
    }
  /** Computes a part of a prompt and goes, as a request does that is aborted. */
  | { readonly kind: 'abort'; readonly fragments: readonly number[]; readonly count: number }
  /** Asks for so many cells that others must leave them, to the host or for good. */
  | { readonly kind: 'evict'; readonly count: number }
  /** Lets go of the prompt that was held longest. */
  | { readonly kind: 'release' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('prefill' as const),
      fragments,
      batch: fc.constantFrom(...SHAPES.filter((shape) => shape > 3)),
      isHeld: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('abort' as const), fragments, count: fc.integer({ min: 1, max: 100 }) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('evict' as const), count: fc.integer({ min: 50, max: 700 }) }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('release' as const) }) },
);

describe.each(Object.entries(RUNS))(
  'the logits of %s behind a prompt, whatever became of its cells before',
  (spec, numRuns) => {
    let model: NativeModel;
    /** Holds nothing but what is computed afresh. */
    let empty: NativeContext;
    let shared: NativeContext;
    const fresh = new Map<string, Promise<Float32Array>>();
    let controls = 0;

    beforeAll(async () => {
      model = await NativeModel.load(llamaBindings(), spec === 'demo' ? DEMO : await modelPath(spec));
      [empty, shared] = [await newContext(), await newContext()];
    });
    afterAll(() => {
      empty.free();
      shared.free();
      model.free();
    });

    /** Of one size, for on some models the size decides how positions are rotated. */
    function newContext(): Promise<NativeContext> {
      return NativeContext.create(llamaBindings(), model, { cells: 768, batchTokens: WHOLE, outputs: 4, threads: 1 });
    }

    /** Computes tokens in batches; answers the output of the last. */
    async function decode(context: NativeContext, sequence: number, range: Range): Promise<number> {
      const { tokens, from } = range;
      let last = 0;
      for (let start = from; start < tokens.length; start += range.batch) {
        const end = Math.min(start + range.batch, tokens.length);
        const { batch } = context;
        batch.clear();
        for (let position = start; position < end; position++) {
          last = batch.add(tokens[position]!, position, sequence, position === tokens.length - 1);
        }
        expect(await context.decode()).toBe(0);
      }
      return last;
    }

    /** Computes tokens in batches; answers the logits behind the last. */
    async function compute(context: NativeContext, sequence: number, range: Range): Promise<Float32Array> {
      return context.logits(await decode(context, sequence, range)).slice();
    }

    /** What a context says that has never computed anything else, in one batch. */
    function computeFresh({ tokens }: Prompt): Promise<Float32Array> {
      const key = tokens.join();
      let logits = fresh.get(key);
      if (logits === undefined) {
        logits = compute(empty, 1, { tokens, from: 0, batch: WHOLE }).finally(() => empty.remove(1, 0, -1));
        fresh.set(key, logits);
      }
      return logits;
    }

    function distance(a: Float32Array, b: Float32Array): number {
      return a.reduce((most, value, token) => Math.max(most, Math.abs(value - b[token]!)), 0);
    }

    function mean(values: readonly number[]): number {
      return values.reduce((sum, value) => sum + value, 0) / values.length;
    }

    /**
     * How far a prompt is from itself without any cache. Its tokens from `from` on are computed in the batches that the
     * cache left to compute. The size of a batch decides how it is rounded: attention of fewer than 64 rows sums values
     * in 16 bits, of more in 32 bits, and one row is multiplied by another kernel than several. How much these differ
     * depends on the processor. The tokens before come from other batches. Their cells lie in two runs, the second
     * before the first.
     */
    async function ownDistance(prompt: Prompt, { from, batch }: { from: number; batch: number }): Promise<number> {
      const { tokens } = prompt;
      const turn = controls++;
      const shape = SHAPES[turn % SHAPES.length]!;
      const foreign = FOREIGN[turn % FOREIGN.length]!;
      const middle = Math.floor(from / 2);
      if (foreign > 0) {
        await decode(empty, 2, { tokens: someTokens(foreign, 9), from: 0, batch: WHOLE });
      }
      await decode(empty, 1, { tokens: tokens.slice(0, middle), from: 0, batch: shape });
      empty.remove(2, 0, -1);
      await decode(empty, 1, { tokens: tokens.slice(0, from), from: middle, batch: shape });
      const logits = await compute(empty, 1, { tokens, from, batch });
      empty.remove(1, 0, -1);
      return distance(logits, await computeFresh(prompt));
    }

    it('differ by no more than the same computation does behind other batches and in other cells', async () => {
      // What another document in its place does, where only the last one is the same.
      const wrong: number[] = [];
      for (const list of fc.sample(fragments, { seed: 23, numRuns: 16 })) {
        const other = [(list[0]! + 1) % FRAGMENT_LENGTHS.length, ...list.slice(1), 0];
        wrong.push(distance(await computeFresh(promptOf([...list, 0])), await computeFresh(promptOf(other))));
      }
      const own: number[] = [];
      const seen: number[] = [];
      let [swapped, grafted, evicted] = [0, 0, 0];
      await fc.assert(
        fc.asyncProperty(
          fc.array(step, { minLength: 10, maxLength: 24 }),
          fc.constantFrom(2 ** 17, 2 ** 19, 2 ** 24),
          fc.constantFrom('lru' as const, 'pgdsf' as const),
          async (steps, hostBytes, policy) => {
            const context = shared;
            const cache = new PrefixCache({
              memory: context,
              cells: context.cells,
              sequences: SEQUENCE_IDS.slice(0, 12),
              policy: replacementPolicy(policy),
              cost: MS_A_TOKEN,
              host: { memory: context, capacityBytes: hostBytes },
            });
            const held: Lease[] = [];
            for (const each of steps) {
              await take(each, { context, cache, held, own, seen });
            }
            const { host, evictedTokens } = cache.stats;
            swapped += host!.savedTokens;
            grafted += host!.restoredTokens;
            evicted += evictedTokens;
            expect(host!.failures).toBe(0);
            for (const lease of held) {
              cache.release(lease);
            }
            expect(cache.stats).toMatchObject({ leases: 0, usedCells: cache.stats.cachedCells });
            for (const sequence of SEQUENCE_IDS.slice(0, 12)) {
              context.remove(sequence, 0, -1);
            }
          },
        ),
        { seed: 22, numRuns },
      );
      const tolerance = SAMPLING_MARGIN * Math.max(...own);
      expect(Math.min(...wrong)).toBeGreaterThan(5 * tolerance);
      expect(Math.max(...seen)).toBeLessThanOrEqual(tolerance);
      expect(mean(seen)).toBeLessThanOrEqual(SAMPLING_MARGIN * mean(own));
      expect(Math.min(swapped, grafted, evicted)).toBeGreaterThan(6 * numRuns);
    });

    interface World {
      readonly context: NativeContext;
      readonly cache: PrefixCache;
      readonly held: Lease[];
      /** How far each prompt is from itself without a cache. */
      readonly own: number[];
      /** How far each answer was from a fresh one. */
      readonly seen: number[];
    }

    async function take(each: Step, world: World): Promise<void> {
      const { cache, held } = world;
      switch (each.kind) {
        case 'prefill': {
          const prompt = promptOf(each.fragments);
          const lease = await prefill(prompt, each.batch, world);
          if (lease !== undefined && each.isHeld && held.length < 3) {
            held.push(lease);
          } else if (lease !== undefined) {
            cache.release(lease);
          }
          break;
        }
        case 'abort': {
          const { tokens, boundaries } = promptOf(each.fragments);
          const lease = cache.acquire(tokens, tokens.length - 1, boundaries)!;
          cache.extend(lease, tokens, tokens.length - 1);
          const end = Math.min(lease.length + each.count, tokens.length);
          if (cache.grow(lease, end - lease.length)) {
            await compute(world.context, lease.sequence, {
              tokens: tokens.slice(0, end),
              from: lease.length,
              batch: 64,
            });
            cache.commit(lease, tokens.slice(lease.length, lease.length + Math.floor((end - lease.length) / 2)));
          }
          cache.release(lease);
          break;
        }
        case 'evict': {
          const lease = cache.acquire([], 0)!;
          cache.grow(lease, Math.min(each.count, cache.availableCells()));
          cache.release(lease);
          break;
        }
        case 'release': {
          const lease = held.shift();
          if (lease !== undefined) {
            cache.release(lease);
          }
        }
      }
    }

    async function prefill(prompt: Prompt, batch: number, world: World): Promise<Lease | undefined> {
      const { context, cache } = world;
      const { tokens, boundaries } = prompt;
      const lease = cache.acquire(tokens, tokens.length - 1, boundaries);
      if (lease === undefined) {
        return undefined;
      }
      cache.extend(lease, tokens, tokens.length - 1);
      if (!cache.grow(lease, tokens.length - lease.length)) {
        cache.release(lease);
        return undefined;
      }
      const { length: from } = lease;
      const logits = await compute(context, lease.sequence, { tokens, from, batch });
      cache.commit(lease, tokens.slice(lease.length));
      world.seen.push(distance(logits, await computeFresh(prompt)));
      world.own.push(await ownDistance(prompt, { from, batch }));
      return lease;
    }
  },
);
