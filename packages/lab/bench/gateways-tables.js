/** The table of docs/research/fleet.md about several gateways, as it is made from gateways-figures.json. */
import { fileURLToPath } from 'node:url';
import { table } from './page-tables.js';

export const FIGURES_FILE = fileURLToPath(new URL('./gateways-figures.json', import.meta.url));
export const PAGE_FILE = fileURLToPath(new URL('../../../docs/research/fleet.md', import.meta.url));

/** One gateway, and two that hear of each other's orders never, or so many milliseconds later. */
export const LANES = [
  { gateways: 1, heardAfterMs: null },
  { gateways: 2, heardAfterMs: null },
  { gateways: 2, heardAfterMs: 1_000 },
  { gateways: 2, heardAfterMs: 100 },
];

/** The ordering policy that the page shows. The JSON has others. */
const SHOWN_POLICY = '/foresight';

/** Markdown by the name of the table's marks in the page. */
export function tablesOf(cells) {
  const header = ['workload', 'engines', 'one gateway', 'two, by themselves', 'heard after 1 s', 'after 0.1 s'];
  const shown = Object.entries(cells).filter(([name]) => name.endsWith(SHOWN_POLICY));
  const rows = shown.map(([name, lanes]) => {
    const [workload, replicas] = name.split('/');
    const [alone, ...others] = lanes;
    const beside = others.map(({ mean }) => {
      const share = mean / alone.mean - 1;
      return `${share > 0 ? '+' : ''}${(100 * share).toFixed(1)} %`;
    });
    return [workload, replicas, `${alone.mean.toFixed(0)} (${alone.se.toFixed(0)})`, ...beside];
  });
  return { gateways: table(header, rows) };
}
