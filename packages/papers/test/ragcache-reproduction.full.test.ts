import { describe, expect, it } from 'vitest';
import { reproduce, tablesOf } from '../src/papers.js';
import type { ReproducedTable } from '../src/reproduction.js';

/** One seed and a part of the paper's hour. By then, 64 and 128 GiB have seldom had to evict anything. */
const settings = { seeds: [201], requests: 900 };
/** Rows of 8, 16 and 32 GiB, of both datasets. */
const SHORT_OF_MEMORY = [0, 1, 2, 5, 6, 7];

function tableOf(name: string): ReproducedTable {
  return reproduce('ragcache', name, settings)[0]!;
}

/** Ours of every row, by the figure's name. */
function ours(table: ReproducedTable, name: string): number[] {
  return table.rows.map(({ figures }) => figures.find((figure) => figure.name === name)!.ours);
}

/** The least of ours in the rows that are short of memory. */
function least(table: ReproducedTable, name: string): number {
  return Math.min(...SHORT_OF_MEMORY.map((row) => ours(table, name)[row]!));
}

// Thousands of simulated requests each: seconds where nothing else runs.
describe('RAGCache', () => {
  it('Fig. 20: PGDSF hits more than GDSF and LRU, by remembering what it evicted', () => {
    const table = tableOf('figure-20');
    expect(table.rows).toHaveLength(10);
    expect(least(table, '× GDSF')).toBeGreaterThan(1.02);
    expect(least(table, '× LRU')).toBeGreaterThan(1.06);
    for (const ratio of ours(table, '× GDSF remembering')) expect(Math.abs(ratio - 1)).toBeLessThan(0.05);
    // What the notes say: with shuffled questions nothing beats counting.
    expect(Math.max(...ours(table, '× LFU remembering'))).toBeLessThan(1);
    const [eight, , , , most] = ours(table, 'PGDSF');
    expect(most).toBeGreaterThan(1.5 * eight!);
  });

  it('Fig. 20 with drift: LFU falls behind where memory is short', () => {
    const table = tableOf('figure-20-drift');
    expect(least(table, '× GDSF')).toBeGreaterThan(1.02);
    expect(least(table, '× LRU')).toBeGreaterThan(1.06);
    expect(least(table, '× LFU')).toBeGreaterThan(1.02);
  });

  it('Table 2: PGDSF answers sooner than GDSF and LRU where memory is short, and sooner with more of it', () => {
    const table = tableOf('table-2');
    const own = ours(table, 'PGDSF s');
    for (const other of ['GDSF s', 'LRU s']) {
      const sum = (values: readonly number[]) => SHORT_OF_MEMORY.reduce((total, row) => total + values[row]!, 0);
      expect(sum(own)).toBeLessThan(sum(ours(table, other)));
    }
    expect(own[3]).toBeLessThan(own[0]!);
    expect(own[8]).toBeLessThan(own[5]!);
  });

  it('Fig. 21: reordering cuts the mean TTFT 1.2 times or more under saturation', () => {
    expect(Math.min(...ours(tableOf('figure-21'), 'times less'))).toBeGreaterThan(1.2);
  });

  it('Table 3: speculation cuts the search that nothing overlaps 1.5 times or more', () => {
    expect(Math.min(...ours(tableOf('table-3'), 'times less'))).toBeGreaterThan(1.5);
  });

  it('§7.1: more requests a second than vLLM and SGLang', () => {
    const table = tableOf('section-7.1');
    for (const name of ['times vLLM', 'times SGLang']) expect(Math.min(...ours(table, name))).toBeGreaterThan(1.1);
  });

  it('has a table for each name, with notes and the same figures in every row', () => {
    expect(tablesOf('ragcache')).toEqual(
      expect.arrayContaining(['figure-15', 'figure-20', 'table-2', 'figure-21', 'table-3', 'section-7.5']),
    );
    const { rows, notes } = tableOf('section-7.5');
    expect(notes.length).toBeGreaterThan(0);
    expect(rows[0]!.figures[0]!.ours).toBeGreaterThan(0);
  });
});
