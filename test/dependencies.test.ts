import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { root } from './docs-blocks.js';

// `npm ci` is quiet here (`.npmrc`), so that newcomers do not read warnings which are not theirs. What it would warn of
// is known and stands in this test; anything more fails it.

interface Locked {
  readonly version: string;
  readonly deprecated?: string;
  /** Of a link to a package of ours: where it leads. */
  readonly resolved?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly engines?: { readonly node?: string };
}

const { workspaces } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { workspaces: string[] };
const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
  readonly packages: Readonly<Record<string, Locked>>;
};

/** Places of installed packages that warnings would be about. */
const placesOf = (isMeant: (locked: Locked) => boolean) =>
  Object.keys(packages).filter((place) => place.includes('node_modules/') && isMeant(packages[place]!));
const nameOf = (place: string) => place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length);

/** Whether a range asks for more than Node 20.20: none of its alternatives begins there or below. */
function wantsNewerNode({ engines }: Locked): boolean {
  const ranges = (engines?.node ?? '*').split('||').map((range) => /(\d+)(?:\.(\d+))?/.exec(range));
  return ranges.every((found) => found !== null && 100 * Number(found[1]) + Number(found[2] ?? 0) > 2_020);
}

it('deprecated are the packages of LlamaIndex.TS, which its adapter is tested with', () => {
  const names = placesOf(({ deprecated }) => deprecated !== undefined).map(nameOf);
  expect(names.toSorted()).toEqual(['@llamaindex/core', '@llamaindex/env', '@llamaindex/openai']);
});

it('a newer Node is wanted by frameworks that adapters are tested with', () => {
  const names = placesOf(wantsNewerNode).map(nameOf);
  expect(names.filter((name) => !/^(?:ai|ai-7|openai|@ai-sdk\/.*|@mastra\/.*|@langchain\/openai)$/.test(name))).toEqual(
    [],
  );
});

it('none of these comes with a package of ours', () => {
  const known = new Set<string>();
  const visit = (place: string): void => {
    if (known.has(place)) return;
    known.add(place);
    const { dependencies = {}, optionalDependencies = {} } = packages[place]!;
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      const found = placeFrom(place, name);
      // Optional ones of other platforms are not there.
      if (found !== undefined) visit(packages[found]!.resolved ?? found);
    }
  };
  for (const folder of workspaces) if (!isPrivate(folder)) visit(folder);
  expect(known.size).toBeGreaterThan(100);
  const warned = placesOf((locked) => locked.deprecated !== undefined || wantsNewerNode(locked));
  expect(warned.filter((place) => known.has(place))).toEqual([]);
});

function isPrivate(folder: string): boolean {
  const manifest = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')) as { private?: boolean };
  return manifest.private === true;
}

/** Where Node finds a package from a place: there, or in the nearest folder above. */
function placeFrom(place: string, name: string): string | undefined {
  for (let folder = place; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf('/')))) {
    const found = `${folder === '' ? '' : `${folder}/`}node_modules/${name}`;
    if (packages[found] !== undefined) return found;
    if (folder === '') return undefined;
  }
}
