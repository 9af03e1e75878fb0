import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { REPLACEMENT_POLICY_NAMES, type ReplacementPolicyName } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isFull, runs } from '../../../../test/suite.js';
import { StateStore } from '../../src/store/state-store.js';
import { Bench } from './cache-bench.js';

/** A document of eight tokens that are its number. */
const asked = (document: number): number[] => Array.from({ length: 8 }, () => document);
/** Documents that nobody has asked for before. */
function* newDocuments(): Generator<number> {
  for (let document = 1_000; ; document++) {
    yield document;
  }
}
const policy = fc.constantFrom(...REPLACEMENT_POLICY_NAMES);

function held(bench: Bench, document: number, salt: string | undefined): number {
  const { device, host, disk } = bench.cache.match(asked(document), 8, salt);
  return device + host + disk;
}

/** What the copies of so many documents take in host memory, and the numbers of four digits that floods ask for. */
async function bytesOf(documents: number): Promise<number> {
  const bench = new Bench(8, 8, { hostBytes: 2 ** 20 });
  for (let document = 0; document < documents; document++) {
    bench.serve(asked(1_000 + document));
    bench.cache.clearIdle();
  }
  return bench.cache.stats.host!.usedBytes;
}

/** Who asks for which document: a few documents of one caller again and again, and ever new ones of another. */
interface Schedule {
  /** For each request of the first caller, which of its documents, and how many requests of the other come after it. */
  readonly turns: readonly { readonly document: number; readonly flood: number }[];
  readonly policy: ReplacementPolicyName;
}
const schedule: fc.Arbitrary<Schedule> = fc.record({
  turns: fc.array(fc.record({ document: fc.nat({ max: 3 }), flood: fc.nat({ max: 25 }) }), {
    minLength: 8,
    maxLength: 16,
  }),
  policy,
});

describe('the share of a salt', () => {
  it('in host memory is not displaced by another that floods it', async () => {
    // Half is eight documents, and the first caller has four.
    const hostBytes = await bytesOf(16);
    let evicted = 0;
    fc.assert(
      fc.property(schedule, ({ turns, policy }) => {
        const bench = new Bench(16, 8, { hostBytes, policy });
        const documents = newDocuments();
        const used = new Set<number>();
        for (const { document, flood } of turns) {
          const { device, host } = bench.serve(asked(document), [], 'few');
          expect(device + host).toBe(used.has(document) ? 7 : 0);
          used.add(document);
          bench.cache.clearIdle();
          for (let count = 0; count < flood; count++) {
            bench.serve(asked(documents.next().value!), [], 'flood');
            bench.cache.clearIdle();
          }
        }
        evicted += bench.cache.stats.host!.evictedTokens;
      }),
      { seed: 3, numRuns: runs(30) },
    );
    expect(evicted).toBeGreaterThan(5_000);
  });

  it('on the device alone is not displaced either', () => {
    fc.assert(
      fc.property(schedule, ({ turns, policy }) => {
        const bench = new Bench(128, 32, { policy });
        const documents = newDocuments();
        const used = new Set<number>();
        for (const { document, flood } of turns) {
          expect(bench.serve(asked(document), [], 'few').device).toBe(used.has(document) ? 7 : 0);
          used.add(document);
          for (let count = 0; count < flood; count++) {
            bench.serve(asked(documents.next().value!), [], 'flood');
          }
        }
      }),
      { seed: 4, numRuns: runs(20) },
    );
  });

  it('on the disk is not displaced either, and not by prompts without a salt', async () => {
    await fc.assert(
      fc.asyncProperty(schedule, async ({ turns, policy }) => {
        const directory = await mkdtemp(join(tmpdir(), 'warmpath-shares-'));
        const { store, entries } = await StateStore.open({
          directory,
          capacityBytes: 16_384,
          identity: { model: 'm', library: 'l', cells: 'c' },
          clock: () => 0,
          onWarning: () => undefined,
        });
        const bench = new Bench(16, 8, { hostBytes: 200, policy, disk: { store, entries } });
        const documents = newDocuments();
        const used = new Set<number>();
        for (const { document, flood } of turns) {
          expect(held(bench, document, 'few')).toBe(used.has(document) ? 8 : 0);
          used.add(document);
          bench.serve(asked(document), [], 'few');
          bench.cache.clearIdle();
          for (let count = 0; count < flood; count++) {
            bench.serve(asked(documents.next().value!));
            bench.cache.clearIdle();
            await store.settled();
          }
        }
        await bench.cache.close(() => true);
        await rm(directory, { recursive: true });
      }),
      { seed: 5, numRuns: 5 },
    );
  });

  it('is all there is where nobody else comes, and again when the others have long been gone', async () => {
    const bench = new Bench(16, 8, { hostBytes: await bytesOf(16), policy: 'lru' });
    const tokens = (): number => bench.cache.stats.host!.tokens;
    for (let document = 0; document < 40; document++) {
      bench.serve(asked(1_000 + document), [], `gone ${document % 20}`);
      bench.cache.clearIdle();
    }
    expect(tokens()).toBeGreaterThanOrEqual(15 * 8);
    for (let request = 0; request < 4_000; request++) {
      bench.serve(asked(2_000 + (request % 15)), [], 'stays');
      bench.cache.clearIdle();
    }
    const all = Array.from({ length: 15 }, (_, index) => held(bench, 2_000 + index, 'stays'));
    expect(all.every((count) => count === 8)).toBe(true);
  });
});

describe('work that can wait', () => {
  it.runIf(isFull)('displaces nothing that other work uses, whosever it is and however often it is used', async () => {
    const hostBytes = await bytesOf(12);
    fc.assert(
      fc.property(schedule, fc.constantFrom('few', 'batch', undefined), ({ turns, policy }, salt) => {
        const bench = new Bench(16, 8, { hostBytes, policy });
        const documents = newDocuments();
        const used = new Set<number>();
        for (const { document, flood } of turns) {
          // Ten documents, which is most of the tier.
          for (const own of [document, ...Array.from({ length: 6 }, (_, index) => 100 + index)]) {
            const { device, host } = bench.serve(asked(own), [], 'few');
            expect(device + host).toBe(used.has(own) ? 7 : 0);
            used.add(own);
            bench.cache.clearIdle();
          }
          for (let count = 0; count < flood; count++) {
            const next = documents.next().value!;
            for (let time = 0; time < 3; time++) {
              bench.serve(asked(next), [], salt, true);
            }
            bench.cache.clearIdle();
          }
        }
      }),
      { seed: 6, numRuns: runs(12) },
    );
  });

  it('keeps what it shares with other work', async () => {
    const bench = new Bench(16, 8, { hostBytes: await bytesOf(4) });
    bench.serve(asked(1), [], undefined, true);
    bench.serve(asked(1));
    bench.cache.clearIdle();
    for (let document = 2; document < 30; document++) {
      bench.serve(asked(document), [], undefined, true);
      bench.cache.clearIdle();
    }
    expect(held(bench, 1, undefined)).toBe(8);
  });
});
