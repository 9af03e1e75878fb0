import { describe, expect, it } from 'vitest';
import { RestoreCost } from '../../src/cache/restore-cost.js';

describe('what a transfer is expected to cost', () => {
  it('is nothing before the first', () => {
    expect(new RestoreCost().expectedMs(1000)).toBe(0);
  });

  it('is the fastest rate, which a slow moment changes little', () => {
    const cost = new RestoreCost();
    cost.observe(1000, 10);
    cost.observe(1000, 1000);
    expect(cost.expectedMs(1000)).toBeCloseTo(10.5);
    cost.observe(1000, 5);
    expect(cost.expectedMs(500)).toBeCloseTo(2.5);
  });

  it('is no more for a larger one than for the largest so far, until that was tried', () => {
    const cost = new RestoreCost();
    cost.observe(10, 2);
    expect(cost.expectedMs(100_000)).toBe(2);
    cost.observe(100_000, 100);
    expect(cost.expectedMs(100_000)).toBeCloseTo(100);
  });

  it('falls when something was left where it is', () => {
    const cost = new RestoreCost();
    cost.observe(10, 10);
    cost.fade();
    expect(cost.expectedMs(10)).toBeCloseTo(8);
  });
});
