/** The tables of docs/research/non-prefix-reuse.md, as they are made from the figures in non-prefix-figures.json. */
import { fileURLToPath } from 'node:url';
import { percent, table } from './page-tables.js';

export const FIGURES_FILE = fileURLToPath(new URL('./non-prefix-figures.json', import.meta.url));
export const PAGE_FILE = fileURLToPath(new URL('../../../docs/research/non-prefix-reuse.md', import.meta.url));

export const POLICIES = ['retrieval', 'exact', 'foresight'];

/** The workloads that the page shows. All are in the JSON. */
const SHOWN = ['topics', 'multi-session-multihoprag', 'MultiHop-RAG, 5 passages', 'SQuAD 2.0, 5 passages'];

/** What is done with a grafted document, by name. */
export const VARIANTS = {
  'nothing computed again': { recomputed: 0, seam: 0 },
  'the first 16 tokens (EPIC)': { recomputed: 0, seam: 16 },
  '15 % (CacheBlend)': { recomputed: 0.15, seam: 0 },
  '16 tokens and 15 %': {},
  '16 tokens and 30 %': { recomputed: 0.3 },
};

/** Markdown by the name of the table's marks in the page. The JSON has more. */
export function tablesOf(cells) {
  return { saved: savedTable(cells) };
}

const shownOf = (cells) => SHOWN.filter((name) => `saved/${name}` in cells);

const share = ({ mean, se }) => (se === 0 ? percent(mean) : `${percent(mean)} (${(100 * se).toFixed(1)})`);

function savedTable(cells) {
  const header = ['', 'seen before', 'prefix: retrieval', '`foresight`', 'grafts: retrieval', '`foresight`'];
  const rows = shownOf(cells).map((name) => {
    const { seen, prefix, grafts } = cells[`saved/${name}`];
    return [name, percent(seen.mean), ...[prefix[0], prefix[2], grafts[0], grafts[2]].map(share)];
  });
  return table(header, rows);
}
