import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { FIGURES_FILE, PAGE_FILE, tablesOf } from '../bench/foresight-tables.js';
import { withTables } from '../bench/page-tables.js';
import { createWorkload, mean, type ServedOutcome, simulate } from '../src/index.js';

const { seeds, cells } = JSON.parse(readFileSync(FIGURES_FILE, 'utf8'));
const page = readFileSync(PAGE_FILE, 'utf8');

test('the tables of the page about foresight are those of its figures', () => {
  expect(withTables(page, tablesOf(cells))).toBe(page);
});

test('a figure comes out again: the difference on the first test seed', () => {
  const share = (outcomes: readonly ServedOutcome[]) =>
    mean(outcomes.map(({ cachedDocuments, documents }) => cachedDocuments / documents));
  for (const [name, queue] of [
    ['mixed', 8],
    ['two-phase', 32],
    ['sessions-settled', 8],
  ] as const) {
    const workload = createWorkload(name, { seed: seeds.test.first });
    const difference = share(simulate(workload, 'foresight', { queue })) - share(simulate(workload, 'exact'));
    expect(difference).toBeCloseTo(cells[`workload/${name}/equal/${queue}`].first, 12);
  }
});

test('in no cell does `foresight` lose more than 0.2 points to `exact`', () => {
  const workloads = Object.entries<{ difference: { mean: number } }>(cells).filter(([name]) =>
    name.startsWith('workload/'),
  );
  expect(workloads.length).toBeGreaterThan(80);
  for (const [name, { difference }] of workloads) expect(difference.mean, name).toBeGreaterThanOrEqual(-0.002);
});
