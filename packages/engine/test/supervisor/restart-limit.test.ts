import { describe, expect, it } from 'vitest';
import { CRASH_WINDOW_MS, RestartLimit } from '../../src/supervisor/restart-limit.js';

describe('how often a crashed worker is started again', () => {
  it('at once after a crash that stands alone, then later each time, then no more', () => {
    const limit = new RestartLimit(8);
    const delays = Array.from({ length: 9 }, (_, index) => limit.crashed(index));
    expect(delays).toEqual([0, 200, 400, 800, 1600, 3200, 5000, 5000, undefined]);
    expect(limit.crashes).toBe(9);
  });

  it('forgets crashes that are further back than the window', () => {
    const limit = new RestartLimit(1);
    expect(limit.crashed(0)).toBe(0);
    expect(limit.crashed(CRASH_WINDOW_MS)).toBe(0);
    expect(limit.crashed(2 * CRASH_WINDOW_MS - 1)).toBeUndefined();
  });

  it('counts a crash that was forgiven as one with the one before', () => {
    const limit = new RestartLimit(2);
    limit.crashed(0);
    limit.crashed(1);
    limit.forgive();
    expect(limit.crashes).toBe(1);
    expect(limit.crashed(2)).toBe(200);
    expect(limit.crashed(3)).toBeUndefined();
  });

  it('never, where none is allowed', () => {
    expect(new RestartLimit(0).crashed(0)).toBeUndefined();
  });
});
