/** What the benchmarks of fleets share: the engines that they simulate, and where their figures go. */
import { readFileSync, writeFileSync } from 'node:fs';
import { VllmBlockCache } from '../dist/index.js';
import { withTables } from './page-tables.js';

/** Engines with caches of vLLM's kind behind one router. */
export function fleetServer({ replicas, blocks }) {
  return {
    createCache: () => new VllmBlockCache({ blocks }),
    replicas,
    maxBatch: 16,
    stepTokens: 2_048,
    chunked: true,
    queue: 16,
    answerTokens: () => 32,
  };
}

/** Writes figures to the file `json`, if there is one, and with `write` to the repository and into their page. */
export function writeFigures(figures, { json, write }, { FIGURES_FILE, PAGE_FILE, tablesOf }) {
  const raw = `${JSON.stringify(figures, undefined, 2)}\n`;
  if (json !== undefined) writeFileSync(json, raw);
  if (!write) return;
  writeFileSync(FIGURES_FILE, raw);
  writeFileSync(PAGE_FILE, withTables(readFileSync(PAGE_FILE, 'utf8'), tablesOf(figures.cells)));
}
