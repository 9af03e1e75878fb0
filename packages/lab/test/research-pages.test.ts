import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import * as fleet from '../bench/fleet-tables.js';
import * as gateways from '../bench/gateways-tables.js';
import * as nonPrefix from '../bench/non-prefix-tables.js';
import * as offline from '../bench/offline-tables.js';
import { withTables } from '../bench/page-tables.js';
import { createWorkload, estimate, GraftCache, SglangRadixCache, simulate } from '../src/index.js';

interface Share {
  readonly mean: number;
}

const cellsOf = <Cell>(file: string): { readonly seeds: readonly number[]; readonly cells: Record<string, Cell> } =>
  JSON.parse(readFileSync(file, 'utf8'));

test.each([
  ['reuse at other places', nonPrefix],
  ['the offline bracket', offline],
  ['fleets', fleet],
  ['several gateways', gateways],
])('the tables of the page about %s are those of its figures', (_, { FIGURES_FILE, PAGE_FILE, tablesOf }) => {
  const page = readFileSync(PAGE_FILE, 'utf8');
  expect(withTables(page, tablesOf(cellsOf(FIGURES_FILE).cells))).toBe(page);
});

test('a figure comes out again: what grafts save of retrieval order', () => {
  const { seeds, cells } = cellsOf<{ readonly grafts: readonly Share[] }>(nonPrefix.FIGURES_FILE);
  const shares = seeds.map((seed) => {
    const cache = new GraftCache({ prefix: new SglangRadixCache() });
    const outcomes = simulate(createWorkload('mixed', { seed }), 'retrieval', { cache });
    const sum = (of: (outcome: (typeof outcomes)[number]) => number) =>
      outcomes.reduce((total, outcome) => total + of(outcome), 0);
    return sum((o) => o.cachedTokens + (o.graftedTokens ?? 0)) / sum((o) => o.promptTokens);
  });
  expect(estimate(shares).mean).toBeCloseTo(cells['saved/mixed']!.grafts[0]!.mean, 5);
});

test('grafts never save less than the prefix cache, and an order helps beside them', () => {
  const { cells } = cellsOf<{ readonly prefix: readonly Share[]; readonly grafts: readonly Share[] }>(
    nonPrefix.FIGURES_FILE,
  );
  const saved = Object.entries(cells).filter(([name]) => name.startsWith('saved/'));
  expect(saved.length).toBeGreaterThan(15);
  for (const [name, { prefix, grafts }] of saved) {
    for (const [policy, { mean }] of grafts.entries()) {
      expect(mean, name).toBeGreaterThanOrEqual(prefix[policy]!.mean - 1e-9);
    }
    expect(grafts[2]!.mean, name).toBeGreaterThanOrEqual(grafts[0]!.mean - 1e-9);
  }
});

test('the offline optimum lies in its bracket, above what policies find and below what pairs allow', () => {
  const { cells } = cellsOf<Record<'exact' | 'foresight' | 'low' | 'high' | 'pairs', Share>>(offline.FIGURES_FILE);
  for (const [name, { exact, foresight, low, high, pairs }] of Object.entries(cells)) {
    const means = [exact, foresight, low, high, pairs].map(({ mean }) => mean);
    expect(means, name).toEqual([...means].sort((a, b) => a - b));
  }
});
