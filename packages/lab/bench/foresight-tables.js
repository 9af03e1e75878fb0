/** The tables of docs/research/foresight.md, as they are made from the figures in foresight-figures.json. */
import { fileURLToPath } from 'node:url';
import { percent, table } from './page-tables.js';

export const FIGURES_FILE = fileURLToPath(new URL('./foresight-figures.json', import.meta.url));
export const PAGE_FILE = fileURLToPath(new URL('../../../docs/research/foresight.md', import.meta.url));

/** Workloads that the page leaves out, because others show the same. The JSON has all of them. */
const HIDDEN_WORKLOADS = [
  ...['headline-2000', 'k-3', 'k-7', 'two-phase', 'sessions', 'hybrid'],
  ...['geospatial', 'sessions-settled', 'zipf'],
];

/** Markdown by the name of the table's marks in the page. */
export function tablesOf(cells) {
  return {
    workloads: workloadTable(cells),
    data: dataTable(cells),
  };
}

function workloadTable(cells) {
  const header = ['workload', '`exact`', 'nothing known', '8 ahead', 'unequal, nothing', 'unequal, 8'];
  const rows = namesOf(cells, 'workload/')
    .filter((name) => !HIDDEN_WORKLOADS.includes(name))
    .map((name) => {
      const cell = (lengths, queue) => cells[`workload/${name}/${lengths}/${queue}`];
      const differences = [
        ...[0, 8].map((queue) => cell('equal', queue)),
        ...[0, 8].map((queue) => cell('unequal', queue)),
      ];
      return [name, percent(cell('equal', 0).exact.mean), ...differences.map(({ difference }) => points(difference))];
    });
  return table(header, rows);
}

function dataTable(cells) {
  const names = Object.keys(cells).filter((name) => name.startsWith('data/') && name.endsWith('/5'));
  const rows = names.map((name) => {
    const [, title, topK] = name.split('/');
    const { exact, none, ahead } = cells[name];
    return [
      `${title}, ${topK} passages`,
      percent(exact),
      points({ mean: none, se: 0 }),
      points({ mean: ahead, se: 0 }),
    ];
  });
  return table(['data', '`exact`', 'nothing known', '8 ahead'], rows);
}

/** The workloads that cells are about, in the order in which they were made. */
function namesOf(cells, prefix) {
  const names = Object.keys(cells).filter((name) => name.startsWith(prefix));
  return [...new Set(names.map((name) => name.split('/')[1]))];
}

/** A difference in points with its standard error; zero without a sign. */
function points({ mean, se }) {
  const text = (100 * mean).toFixed(2);
  if (Number(text) === 0) return '0';
  return `${mean > 0 ? '+' : ''}${text}${se === 0 ? '' : ` (${(100 * se).toFixed(2)})`}`;
}
