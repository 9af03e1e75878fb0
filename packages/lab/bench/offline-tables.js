/** The table of docs/research/offline-bracket.md, as it is made from the figures in offline-figures.json. */
import { fileURLToPath } from 'node:url';
import { percent, table } from './page-tables.js';

export const FIGURES_FILE = fileURLToPath(new URL('./offline-figures.json', import.meta.url));
export const PAGE_FILE = fileURLToPath(new URL('../../../docs/research/offline-bracket.md', import.meta.url));

/** Markdown by the name of the table's marks in the page. */
export function tablesOf(cells) {
  const header = ['', '`exact`', '`foresight`', 'found', 'at most', 'at most, by pairs', 'known within'];
  const rows = Object.entries(cells).map(([name, { exact, foresight, low, high, pairs, width }]) => [
    name,
    ...[exact, foresight, low, high, pairs].map(({ mean }) => percent(mean)),
    `${(100 * width.mean).toFixed(1)}`,
  ]);
  return { bracket: table(header, rows) };
}
