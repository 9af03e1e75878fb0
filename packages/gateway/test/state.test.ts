import { type Arrangement, arrange, observe, prepareRequest } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { heldBytes } from '../../../test/held-bytes.js';
import { isFull, runs } from '../../../test/suite.js';
import { dialectOf } from '../src/dialects/dialects.js';
import {
  EngineCounts,
  type PromptPrefix,
  prefixOf,
  ReportedCounts,
  ServedHistories,
  type TenantModel,
  WarmPrefixes,
} from '../src/memory/served-histories.js';

/** Serves one request of fresh documents. */
function serve({ history }: TenantModel, name: string, count = 8): Arrangement {
  const documents = Array.from({ length: count }, (_, i) => ({ id: `${name}-${i}`, content: 'Some text.' }));
  const arrangement = arrange(prepareRequest({ documents }), history, 0);
  observe({ kind: 'dispatched', arrangement, now: 0 }, history);
  return arrangement;
}

/** An engine without KV events. */
const ENGINE = {
  number: 0,
  name: 'engine',
  url: 'http://engine',
  dialect: dialectOf('generic'),
  kvResidency: undefined,
};

describe('ServedHistories', () => {
  it('never hold more than their bound, and forget the least recently used first', () => {
    const empty = new ServedHistories(1e6);
    empty.of(ENGINE, 'tenant-0', 'm');
    fc.assert(
      fc.property(fc.array(fc.nat(9), { maxLength: 60 }), (visits) => {
        const histories = new ServedHistories(4.5 * empty.bytes);
        let recent: number[] = [];
        const seen = new Map<number, TenantModel>();
        for (const visit of visits) {
          const state = histories.of(ENGINE, `tenant-${visit}`, 'm');
          expect(seen.get(visit) === state).toBe(recent.includes(visit));
          seen.set(visit, state);
          recent = [...recent.filter((other) => other !== visit), visit].slice(-4);
          expect(histories.size).toBe(recent.length);
        }
      }),
      { seed: 11, numRuns: runs(200) },
    );
  });

  it('stay within their bytes together', () => {
    const maxBytes = 600_000;
    const histories = new ServedHistories(maxBytes);
    for (let round = 0; round < 2_000; round++) {
      serve(histories.of(ENGINE, `tenant-${round % 20}`, 'm'), `d${round}`);
      // The bytes are taken when a history is asked for: one request may still stand out.
      histories.of(ENGINE, `tenant-${round % 20}`, 'm');
      expect(histories.bytes).toBeLessThanOrEqual(maxBytes);
    }
    expect(histories.size).toBeGreaterThan(1);
    expect(histories.size).toBeLessThan(20);
    expect(histories.treeNodes).toBeGreaterThan(8);
  });

  it.runIf(isFull).each([
    ['of one small request', 1, 1, 1_500],
    ['whose window is full of large ones', 120, 100, 60],
  ])('take what they say: histories %s', async (_, requests, documents, count) => {
    const fill = (histories: ServedHistories, many: number): void => {
      for (let number = 0; number < many; number++) {
        const state = histories.of(ENGINE, `tenant-${number}`, 'm');
        for (let request = 0; request < requests; request++) serve(state, `${number}-${request % 3}`, documents);
        histories.of(ENGINE, `tenant-${number}`, 'm');
      }
    };
    // What code takes that runs for the first time, or is optimised, is there before.
    fill(new ServedHistories(1e9), count);
    const histories = new ServedHistories(1e9);
    const before = await heldBytes();
    fill(histories, count);
    expect(histories.size).toBe(count);
    expect((await heldBytes()) - before).toBeLessThan(1.1 * histories.bytes);
  });

  it('let one history have only a part of the memory', () => {
    const maxBytes = 4_000_000;
    const histories = new ServedHistories(maxBytes);
    const state = histories.of(ENGINE, 't', 'm');
    for (let round = 0; round < 5_000; round++) serve(state, `d${round}`);
    expect(state.history.tree.bytes).toBeLessThanOrEqual(maxBytes / 4);
    expect(state.history.bytes).toBeLessThan(maxBytes / 2);
    expect(histories.of(ENGINE, 't', 'm')).toBe(state);
  });
});

describe('WarmPrefixes', () => {
  it('know when a prefix was used last, for as many prefixes as allowed', () => {
    const prefixes = new WarmPrefixes(1_412, 100);
    const [a, b, c] = ['a', 'b', 'c'].map((key) => prefixOf('t', 'm', key)) as [
      PromptPrefix,
      PromptPrefix,
      PromptPrefix,
    ];
    prefixes.touch(a, 0);
    prefixes.touch(b, 1);
    prefixes.touch(a, 50);
    expect(prefixes.isWarm(a, 150)).toBe(true);
    expect(prefixes.isWarm(a, 151)).toBe(false);
    prefixes.touch(c, 60);
    expect(prefixes.size).toBe(2);
    expect([prefixes.isWarm(a, 60), prefixes.isWarm(b, 60), prefixes.isWarm(c, 60)]).toEqual([true, false, true]);
  });
});

describe('EngineCounts', () => {
  it('follow the ratio of actual to estimated tokens, the first observation at once', () => {
    const counts = new EngineCounts();
    expect(counts.toEngineTokens(100)).toBe(100);
    counts.observe(100, { promptTokens: 150, cachedTokens: undefined });
    expect(counts.toEngineTokens(100)).toBe(150);
    expect(counts.toEstimatedTokens(150)).toBe(100);
    for (let i = 0; i < 40; i++) counts.observe(100, { promptTokens: 80, cachedTokens: undefined });
    expect(counts.toEngineTokens(100)).toBe(80);
  });

  it('stay within bounds whatever an engine says', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(), fc.nat())), (observations) => {
        const counts = new EngineCounts();
        for (const [estimated, promptTokens] of observations)
          counts.observe(estimated, { promptTokens, cachedTokens: undefined });
        expect(counts.factor).toBeGreaterThanOrEqual(0.25);
        expect(counts.factor).toBeLessThanOrEqual(4);
      }),
      { seed: 13 },
    );
  });
});

describe('ReportedCounts', () => {
  const silent = { promptTokens: 1_000, cachedTokens: undefined };

  it('take a missing count for 0 only from an engine that has sent one, where nothing is known of its kind', () => {
    const counts = new ReportedCounts(false);
    expect(counts.cachedTokens(silent, 0)).toBeUndefined();
    expect(counts.cachedTokens({ promptTokens: 10, cachedTokens: 4 }, 0)).toBe(4);
    expect(counts.cachedTokens(silent, 900)).toBe(0);
  });

  it('take it for 0 from a kind that leaves out 0 where nothing should be cached, or counts have come', () => {
    const counts = new ReportedCounts(true);
    for (let i = 0; i < 100; i++) expect(counts.cachedTokens(silent, 0)).toBe(0);
    // An engine that reports nothing: the first prompt that should be cached is no miss.
    expect(counts.cachedTokens(silent, 900)).toBeUndefined();
    expect(counts.cachedTokens(silent, 0)).toBe(0);
    expect(counts.cachedTokens({ promptTokens: 10, cachedTokens: 4 }, 0)).toBe(4);
    expect(counts.cachedTokens(silent, 900)).toBe(0);
  });

  it.each([true, false])('take it for unknown from an engine that has written a 0 itself', (leavesOutZero) => {
    const counts = new ReportedCounts(leavesOutZero);
    expect(counts.cachedTokens({ promptTokens: 10, cachedTokens: 4 }, 0)).toBe(4);
    expect(counts.cachedTokens({ promptTokens: 10, cachedTokens: 0 }, 0)).toBe(0);
    expect(counts.cachedTokens(silent, 900)).toBeUndefined();
    expect(counts.cachedTokens(silent, 0)).toBeUndefined();
  });
});
