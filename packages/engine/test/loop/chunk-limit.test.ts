import { describe, expect, it } from 'vitest';
import { ChunkLimit } from '../../src/loop/chunk-limit.js';

/** A machine on which a step takes 4 ms for its streams and some time for each prompt token. */
function settle(limit: ChunkLimit, { steps = 40, msPerToken = 0.1, streams = 8 } = {}): number {
  let tokens = 0;
  for (let step = 0; step < steps; step++) {
    tokens = Math.min(128, limit.tokens(streams, msPerToken));
    limit.observe({ generating: streams, promptTokens: tokens }, 4 + tokens * msPerToken);
  }
  return tokens;
}

describe('the prompt tokens beside running streams', () => {
  const quiet = (gap: number): ChunkLimit => {
    const limit = new ChunkLimit(gap);
    for (let step = 0; step < 20; step++) {
      limit.observe({ generating: 8, promptTokens: 0 }, step === 7 ? 90 : 4);
    }
    return limit;
  };

  it('are as many as keep the gap, of which three quarters are aimed at', () => {
    // 4 ms alone and 3 times that allowed: 9 ms, of which 5 are left for tokens of 0.1 ms.
    expect(settle(quiet(3))).toBe(50);
    expect(settle(quiet(6))).toBe(128);
  });

  it('follow what a token costs when that grows', () => {
    const limit = quiet(3);
    settle(limit);
    expect(settle(limit, { msPerToken: 0.5 })).toBe(10);
    expect([49, 50]).toContain(settle(limit, { msPerToken: 0.1 }));
  });

  it('begin with a guess and grow no faster than by half', () => {
    const limit = quiet(3);
    expect(limit.tokens(8, 0.5)).toBe(10);
    limit.observe({ generating: 8, promptTokens: 10 }, 4.01);
    expect(limit.tokens(8, 0.5)).toBe(15);
  });

  it('are few before a quiet step was seen, and never none', () => {
    expect(new ChunkLimit(3).tokens(8, 0.001)).toBe(4);
    expect(settle(quiet(3), { msPerToken: 50 })).toBe(4);
    expect(quiet(1).tokens(8, 0.001)).toBe(4);
  });

  it('know quiet steps of the nearest number of streams', () => {
    const limit = quiet(3);
    for (let step = 0; step < 5; step++) {
      limit.observe({ generating: 2, promptTokens: 0 }, 1);
    }
    expect(limit.tokens(3, 0.1)).toBe(12);
    expect(limit.tokens(16, 0.1)).toBe(50);
  });

  it('have no limit when none is asked for, and learn nothing from steps without streams', () => {
    const limit = new ChunkLimit(0);
    limit.observe({ generating: 0, promptTokens: 128 }, 10);
    limit.observe({ generating: 8, promptTokens: 0 }, 4);
    expect(limit.tokens(8, 10)).toBe(Number.POSITIVE_INFINITY);
  });
});
