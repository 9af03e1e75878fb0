import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { PAPERS, tablesOf } from '../src/papers.js';
import { DEVIATES, KeptLines, NO_EVIDENCE } from '../src/summary.js';

test('every reason is about a table that there is', () => {
  const tables = new Set(PAPERS.flatMap((paper) => tablesOf(paper).map((table) => `${paper} ${table}`)));
  for (const name of [...Object.keys(DEVIATES), ...Object.keys(NO_EVIDENCE)]) expect(tables).toContain(name);
});

describe('a summary that is gone on with', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'warmpath-summary-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  test('makes no line twice, and keeps those of one setting apart from those of another', () => {
    const file = join(folder, 'lines.json');
    const made: string[] = [];
    const lineOf = (kept: KeptLines, name: string) =>
      kept.line(name, () => {
        made.push(name);
        return `line of ${name}`;
      });
    const first = new KeptLines(file, 'all seeds');
    for (const name of ['a', 'b', 'a']) expect(lineOf(first, name)).toBe(`line of ${name}`);
    const second = new KeptLines(file, 'all seeds');
    for (const name of ['a', 'b', 'c']) expect(lineOf(second, name)).toBe(`line of ${name}`);
    expect(made).toEqual(['a', 'b', 'c']);
    expect(readdirSync(folder)).toEqual(['lines.json']);
    expect(() => new KeptLines(file, 'two seeds')).toThrow(/begun with all seeds/);
  });

  test('refuses a file of something else, and one that cannot be written', () => {
    const file = join(folder, 'other.json');
    for (const text of ['', 'x', '[]', '{"settings": 3, "lines": {}}']) {
      writeFileSync(file, text);
      expect(() => new KeptLines(file, 'all seeds')).toThrow(
        expect.objectContaining({ code: 'WARMPATH_USAGE', path: '--resume' }),
      );
    }
    expect(() => new KeptLines(join(folder, 'none', 'lines.json'), '').line('a', () => 'b')).toThrow(/cannot write/);
  });
});
