import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { bytesOfPart, MEMORY_PARTS } from '../src/limits/memory-budget.js';

it('is divided as the documentation says, and given out whole', () => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/operate/memory.md'), 'utf8');
  const told = [...page.matchAll(/^\| `(\w+)` \| (\d+)\/64 \|/gm)].map(([, part, share]) => [part, Number(share)]);
  expect(told).toHaveLength(MEMORY_PARTS.length);
  expect(Object.fromEntries(told)).toEqual(
    Object.fromEntries(MEMORY_PARTS.map((part) => [part, bytesOfPart(part, 64)])),
  );
  expect(MEMORY_PARTS.reduce((sum, part) => sum + bytesOfPart(part, 64), 0)).toBe(64);
});
