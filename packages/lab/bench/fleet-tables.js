/** The tables of docs/research/fleet.md, as they are made from the figures in fleet-figures.json. */
import { fileURLToPath } from 'node:url';
import { table } from './page-tables.js';

export const FIGURES_FILE = fileURLToPath(new URL('./fleet-figures.json', import.meta.url));
export const PAGE_FILE = fileURLToPath(new URL('../../../docs/research/fleet.md', import.meta.url));

/** What is compared: an order, and a router that may know what replicas hold. The last is what the gateway does. */
export const LANES = [
  { policy: 'retrieval', router: 'random', title: 'random' },
  { policy: 'retrieval', router: 'round-robin', title: 'round robin' },
  { policy: 'retrieval', router: 'least-loaded', title: 'least loaded' },
  { policy: 'retrieval', router: 'session-hash', title: 'session hash' },
  { policy: 'retrieval', router: 'prefix-hash', title: 'prefix hash, bounded load' },
  { policy: 'retrieval', router: 'two-mode', title: "SGLang's two modes" },
  { policy: 'retrieval', router: 'weighted-score', title: "llm-d's score" },
  { policy: 'retrieval', router: 'cache-aware', title: 'KV-aware, retrieval order' },
  { policy: 'retrieval', router: 'cache-pressure', title: "Warmpath's rule, retrieval order" },
  { policy: 'exact', router: 'cache-pressure', title: '`exact`, order and replica together' },
  { policy: 'foresight', router: 'cache-pressure', title: '`foresight`, order and replica together' },
];

/** Routers and loads that the page leaves out or shows. The JSON has all of them. */
const HIDDEN_ROUTERS = ['random', 'least-loaded', 'session-hash', 'two-mode'];
const SHOWN_LOADS = ['0.8', '1.2'];
/** Replicas of the fleet that the page shows. */
const SHOWN_FLEET = '8';

/** What the joint decision is held against: the best that routes by caches and leaves the order alone. */
const BASE = 'retrieval/cache-aware';

/** Markdown by the name of the table's marks in the page. */
export function tablesOf(cells) {
  return { fleet: fleetTable(cells, SHOWN_FLEET) };
}

function fleetTable(cells, replicas) {
  const names = Object.keys(cells).filter((name) => name.startsWith(`${replicas}/`));
  const measured = [...new Set(names.map((name) => name.split('/')[1]))];
  const shown = measured.filter((load) => SHOWN_LOADS.includes(load));
  const loads = shown.length > 0 ? shown : measured;
  const lanes = LANES.filter(({ policy, router }) => policy !== 'exact' && !HIDDEN_ROUTERS.includes(router));
  const header = ['load', 'who decides', 'uncached tokens', 'beside KV-aware', 'TTFT mean, ms', 'p99, ms', 'busiest'];
  const rows = loads.flatMap((load) =>
    lanes.map(({ policy, router, title }) => {
      const cell = cells[`${replicas}/${load}/${policy}/${router}`];
      const base = cells[`${replicas}/${load}/${BASE}`];
      const share = cell.uncached / base.uncached - 1;
      return [
        load,
        title,
        cell.uncached.toFixed(0),
        `${share > 0 ? '+' : ''}${(100 * share).toFixed(0)} %`,
        cell.ttftMs.toFixed(0),
        cell.p99Ms.toFixed(0),
        `${cell.imbalance.toFixed(2)}×`,
      ];
    }),
  );
  return table(header, rows);
}
