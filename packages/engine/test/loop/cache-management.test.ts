import { describe, expect, it } from 'vitest';
import { CacheManagement } from '../../src/loop/cache-management.js';
import { Bench } from '../cache/cache-bench.js';

describe('a pinned prompt', () => {
  it('is kept until its time is over, and not longer', async () => {
    const bench = new Bench(12, 8, { hostBytes: 100 });
    let nowMs = 0;
    const management = new CacheManagement({
      cache: bench.cache,
      clock: () => nowMs,
      wake: () => undefined,
    });
    /** As the loop does it, between two decodes. */
    const between = async <T>(asked: Promise<T>): Promise<T> => {
      management.step();
      return asked;
    };
    const [one, others] = [[1, 1, 1, 1], [2, 3, 4, 5].map((id) => [id, id, id, id, id, id])];
    const cached = (): number => {
      const { device, host } = bench.cache.match(one);
      return device + host;
    };
    const push = (): void => {
      for (const other of others) {
        bench.serve(other);
      }
    };
    bench.serve(one);
    const pin = await between(management.pin(one, undefined, 600_000));
    expect(pin).toMatchObject({ tokens: 4, expiresMs: 600_000 });
    nowMs = 599_999;
    management.step();
    push();
    expect([cached(), management.pins]).toEqual([4, 1]);
    nowMs = 600_000;
    management.step();
    push();
    expect([cached(), management.pins]).toEqual([0, 0]);
    await expect(between(management.unpin(pin.id))).resolves.toBe(false);
  });
});
