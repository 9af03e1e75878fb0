import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

/** A timer that fires while the request runs adds its functions: on a busy machine more do. */
const TIMER_FUNCTIONS = 5;

const ROW = /^\| ([^|]+?) \| (\d+) \| (\d+) \|$/gm;

describe('the files and functions that one request passes', () => {
  it('are no more than ARCHITECTURE.md says', () => {
    const printed = execFileSync(process.execPath, [path('scripts/footprint.js')], { encoding: 'utf8' });
    const stated = rows(readFileSync(path('ARCHITECTURE.md'), 'utf8'));
    const measured = rows(printed.split('\n\n')[0]!);
    expect(measured.size).toBe(3);
    for (const [kind, [files, functions]] of measured) {
      expect(stated.get(kind), kind).toBeDefined();
      const [statedFiles, statedFunctions] = stated.get(kind)!;
      expect(files, kind).toBeLessThanOrEqual(statedFiles);
      expect(functions, kind).toBeLessThanOrEqual(statedFunctions + TIMER_FUNCTIONS);
    }
  });
});

function rows(text: string): Map<string, readonly [number, number]> {
  return new Map(
    [...text.matchAll(ROW)].map(([, kind, files, functions]) => [kind!, [Number(files), Number(functions)]]),
  );
}

function path(name: string): string {
  return fileURLToPath(new URL(`../${name}`, import.meta.url));
}
