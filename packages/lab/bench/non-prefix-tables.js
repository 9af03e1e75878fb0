/** The tables of docs/research/non-prefix-reuse.md, as they are made from the figures in non-prefix-figures.json. */
import { fileURLToPath } from 'node:url';
import { percent, table } from './page-tables.js';

export const FIGURES_FILE = fileURLToPath(new URL('./non-prefix-figures.json', import.meta.url));
export const PAGE_FILE = fileURLToPath(new URL('../../../docs/research/non-prefix-reuse.md', import.meta.url));

export const POLICIES = ['retrieval', 'exact', 'foresight'];

/** The workloads that the page shows. All are in the JSON. */
const SHOWN = [
  'headline',
  'geospatial',
  'sessions-settled',
  'topics',
  'multi-session-multihoprag',
  'MultiHop-RAG, 5 passages',
  'SQuAD 2.0, 5 passages',
  'HotpotQA, 5 passages',
  'MTRAG-UN, 5 passages',
];

/** What is done with a grafted document, by the name of the row. */
export const VARIANTS = {
  'nothing computed again': { recomputed: 0, seam: 0 },
  'the first 16 tokens (EPIC)': { recomputed: 0, seam: 16 },
  '15 % (CacheBlend)': { recomputed: 0.15, seam: 0 },
  '16 tokens and 15 %': {},
  '16 tokens and 30 %': { recomputed: 0.3 },
};

/** Markdown by the name of the table's marks in the page. */
export function tablesOf(cells) {
  return {
    saved: savedTable(cells),
    variants: variantTable(cells),
    exact: exactTable(cells),
    limited: limitedTable(cells),
  };
}

const namesOf = (cells, prefix) =>
  Object.keys(cells)
    .filter((name) => name.startsWith(prefix))
    .map((name) => name.slice(prefix.length));

const shownOf = (cells) => SHOWN.filter((name) => `saved/${name}` in cells);

const share = ({ mean, se }) => (se === 0 ? percent(mean) : `${percent(mean)} (${(100 * se).toFixed(1)})`);

function savedTable(cells) {
  const header = [
    '',
    'seen before',
    'prefix: retrieval',
    '`exact`',
    '`foresight`',
    'with grafts: retrieval',
    '`exact`',
    '`foresight`',
  ];
  const rows = shownOf(cells).map((name) => {
    const { seen, prefix, grafts } = cells[`saved/${name}`];
    return [name, percent(seen.mean), ...[...prefix, ...grafts].map(share)];
  });
  return table(header, rows);
}

function variantTable(cells) {
  const names = namesOf(cells, 'variants/');
  const rows = Object.keys(VARIANTS).map((variant) => [
    variant,
    ...names.flatMap((name) => cells[`variants/${name}`][variant].map(share)),
  ]);
  return table(['computed again', ...names.flatMap((name) => [`${name}, retrieval`, `${name}, \`exact\``])], rows);
}

function exactTable(cells) {
  const rows = shownOf(cells).map((name) => {
    const { approximate, apart } = cells[`saved/${name}`];
    return [name, ...approximate.map(share), ...apart.map(share)];
  });
  return table(
    ['', 'grafted: retrieval', '`exact`', '`foresight`', 'kept apart, saved: retrieval', '`exact`', '`foresight`'],
    rows,
  );
}

function limitedTable(cells) {
  const rows = namesOf(cells, 'limited/').map((name) => [name, ...cells[`limited/${name}`].map(share)]);
  return table(['', 'prefix, two tiers: `exact`', 'with grafts: retrieval', '`exact`', '`foresight`'], rows);
}
