import fc from 'fast-check';
import { expect, it } from 'vitest';
import { TenantCounts } from '../src/observe/tenant-counts.js';

it('counts as a map that forgets what is 0', () => {
  const step = fc.record({ tenant: fc.nat(150), by: fc.integer({ min: -3, max: 5 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 600, size: 'max' }), (steps) => {
      const counts = new TenantCounts();
      const naive = new Map<string, number>();
      for (const { tenant: number, by } of steps) {
        const tenant = `t${number}`;
        const before = naive.get(tenant) ?? 0;
        const change = Math.max(by, -before);
        counts.add(tenant, change);
        if (before + change > 0) naive.set(tenant, before + change);
        else naive.delete(tenant);
        expect(counts.get(tenant)).toBe(naive.get(tenant) ?? 0);
        expect(counts.size).toBe(naive.size);
      }
      for (const least of [1, 4, 9]) expect(counts.someHas(least)).toBe([...naive.values()].some((n) => n >= least));
      for (let number = 0; number <= 150; number++) expect(counts.get(`t${number}`)).toBe(naive.get(`t${number}`) ?? 0);
    }),
  );
});
