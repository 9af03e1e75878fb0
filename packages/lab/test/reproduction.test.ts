import { describe, expect, it } from 'vitest';
import { reproduce } from '../src/index.js';

const tables = reproduce('ragcache++');

/** Ours, by table, row and figure. */
function ours(table: string, row: string, figure: string): number {
  const rows = tables.find(({ title }) => title.startsWith(table))!.rows;
  const figures = rows.find(({ label }) => label === row)!.figures;
  return figures.find(({ name }) => name === figure)!.ours;
}

describe('RAGCache++', () => {
  it.each([
    ['APC+Retrieval', 59.4, 54.3, 12.3],
    ['APC+Sorted', 78.5, 73.1, 25.6],
    ['APC+Optimized', 41.7, 50.1, 20],
  ])('headline, %s: median, mean and Fast%%', (strategy, p50, average, fast) => {
    expect(ours('Table 1', strategy, 'p50 ms')).toBeCloseTo(p50, 1);
    expect(ours('Table 1', strategy, 'mean ms')).toBeCloseTo(average, 1);
    expect(ours('Table 1', strategy, 'Fast%')).toBeCloseTo(fast, 1);
  });

  it('names what Fast% is by its definition', () => {
    expect(tables[0]!.notes.join()).toContain('APC+Retrieval 90.3, APC+Sorted 42.6, APC+Optimized 90.3');
  });

  it('has the overlaps of the sweep', () => {
    for (const { figures } of tables.find(({ title }) => title.startsWith('Table 12'))!.rows) {
      const [jaccard] = figures;
      expect(Math.abs(jaccard!.ours - jaccard!.paper!)).toBeLessThan(0.001);
    }
  });

  it('has the means of true zero', () => {
    expect(ours('§4.4', 'greedy over retrieval order', 'mean gain %')).toBeCloseTo(10.4, 1);
  });

  it('comes within 5 ms of every figure of concurrent load and retrieval latency', () => {
    for (const title of ['Table 8', 'CacheWeaver Table 12']) {
      const { rows } = tables.find((table) => table.title.startsWith(title))!;
      const figures = rows.flatMap((row) => row.figures).filter(({ name }) => name.endsWith(' ms'));
      expect(figures.length).toBeGreaterThan(10);
      for (const { paper, ours } of figures) expect(Math.abs(ours - paper!)).toBeLessThan(5);
    }
  });

  it('knows what batches do to each strategy', () => {
    const reuse = (strategy: string, sharing: string) => ours('Batches', strategy, `geospatial B=16, ${sharing}`);
    const [exact, foresight] = ['exact, told at once', 'foresight, told at once, batch mates known'];
    expect(reuse(foresight, 'shared')).toBeGreaterThan(reuse(exact, 'shared') + 4);
    expect(reuse(exact, 'shared')).toBeGreaterThan(reuse('greedy, history of the batch before', 'shared') + 4);
    // Counting on mates that share nothing costs more than it brings; one leader brings it back.
    expect(reuse(foresight, 'not shared')).toBeLessThan(reuse(exact, 'not shared'));
    expect(reuse(foresight, 'leader first')).toBeGreaterThan(reuse(exact, 'leader first') + 4);
  });

  it('explains every table', () => {
    for (const { notes, rows } of tables) {
      expect(notes.length).toBeGreaterThan(0);
      expect(new Set(rows.map(({ figures }) => figures.map(({ name }) => name).join())).size).toBe(1);
    }
  });
});
