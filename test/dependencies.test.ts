import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { root } from './docs-blocks.js';

// What `npm ci` would warn of stands in the lock file. Frameworks that nobody maintains any more, or that ask for a
// newer Node than ours, are installed apart: `test/frameworks`.

interface Locked {
  readonly deprecated?: string;
  readonly engines?: { readonly node?: string };
}

const read = (path: string) => readFileSync(join(root, path), 'utf8');
const { packages } = JSON.parse(read('package-lock.json')) as { readonly packages: Readonly<Record<string, Locked>> };

/** Places of installed packages that a warning would be about. */
const placesOf = (isMeant: (locked: Locked) => boolean) =>
  Object.keys(packages).filter((place) => place.includes('node_modules/') && isMeant(packages[place]!));

/** Whether a range asks for more than Node 20.20: none of its alternatives begins there or below. */
function wantsNewerNode({ engines }: Locked): boolean {
  const ranges = (engines?.node ?? '*').split('||').map((range) => /(\d+)(?:\.(\d+))?/.exec(range));
  return ranges.every((found) => found !== null && 100 * Number(found[1]) + Number(found[2] ?? 0) > 2_020);
}

describe('npm ci has nothing to warn of', () => {
  it('no package is deprecated', () => {
    expect(placesOf(({ deprecated }) => deprecated !== undefined)).toEqual([]);
  });

  it('no package wants a newer Node', () => {
    expect(Object.keys(packages).length).toBeGreaterThan(300);
    expect(placesOf(wantsNewerNode)).toEqual([]);
  });

  it('and nothing keeps it from warning', () => {
    expect(read('.npmrc')).not.toMatch(/loglevel|silent/);
  });
});
