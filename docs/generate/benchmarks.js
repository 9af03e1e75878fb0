import { readFileSync } from 'node:fs';
import { FRAME_MS } from '../../packages/gateway/bench/cells.js';
import { barsOf, STALL, tablesOf } from '../../packages/gateway/bench/report.js';
import { SYSTEMS } from '../../packages/gateway/bench/systems.js';
import { code, page, table } from './markdown.js';

const FIGURES = new URL('../../packages/gateway/bench/figures.json', import.meta.url);

const WHAT = {
  direct: 'the engine of the benchmark, asked directly. All other figures hold its work, too',
  nginx: 'one worker, connections to the engine kept, `proxy_buffering off`',
  http: 'a plain proxy that passes the bytes of the body on',
  fastify: 'a plain proxy that parses the body and writes it again',
  portkey: 'without its log page (`--headless`), with a version of `@hono/node-server` with which it can stream',
  warmpath: 'in its default configuration: documents are read, ordered and written into the prompt',
};

/** The rest is in the JSON only, to keep the page short. */
const SHOWN_CONNECTIONS = '32';
const HIDDEN_SYSTEMS = ['direct', '`node:http` + undici'];
/** Of all requests, a bar says how many failed. */
const HIDDEN_COLUMNS = ['connections', 'streams', 'errors', 'RSS MiB'];

/** The gateway beside what a user would pick instead: the figures of the benchmark's last runs. */
export function benchmarksPage() {
  const figures = JSON.parse(readFileSync(FIGURES, 'utf8'));
  const bars = barsOf(figures);
  return page(
    'Benchmarks',
    'What the gateway costs beside other proxies, losses included. `npm run docs:generate` writes the tables from the figures of every round, `packages/gateway/bench/figures.json`.',
    [
      '## Run it',
      '```sh\nnpm run bench:gateway\n```',
      `Options go behind ${code('--')}. ${code('--quick')} is a smoke run of a few minutes. ${code('--bars')} measures only what the bars need. ${code('--cells small/32,stream/512')} and ${code('--systems warmpath,portkey')} choose groups and systems. ${code('--rounds 5')} says how often each system has its turn. ${code('--json packages/gateway/bench/figures.json')} keeps the figures for this page. The command exits with 1 where a bar is missed. It sends requests with ${code('wrk')}, or with undici where ${code('wrk')} is not installed.`,
      '## What is measured',
      table(
        ['system', 'version', 'what it is'],
        Object.entries(SYSTEMS).map(([name, { title }]) => [title, versionOf(figures, name), WHAT[name]]),
      ),
      `The engine answers at once, or streams a frame every ${FRAME_MS} ms. Each system is one process behind real sockets on the loopback. Client, system and engine share the machine. Systems take turns. Figures are medians of the rounds; a ratio is taken within each round. Other numbers of connections, and streams of the other bodies, are in the JSON only.`,
      `A body with documents has 20 of 60. There are 300 such bodies, which come again. nginx and the plain proxies send the engine the same bytes; Portkey drops ${code('documents')} and sends 200 bytes. A frame is stalled when it comes ${STALL} after the one before, or later.`,
      table(
        ['measured', 'machine', 'Node', 'client', 'rounds', 'load at the start'],
        figures.runs.map(({ date, machine, node, client, rounds, isQuick, loadBefore }) => {
          return [
            date.slice(0, 10),
            machine,
            node,
            client,
            `${rounds}${isQuick ? ', quick' : ''}`,
            loadBefore.toFixed(1),
          ];
        }),
      ),
      ...caveatsOf(figures),
      '## Bars',
      'Limits that this project sets itself. In brackets: the least and the greatest of all rounds.',
      table(bars.head, bars.rows),
      ...shownTables(figures).flatMap(({ title, head, rows }) => [`## ${title}`, table(head, rows)]),
      '## Beside it',
      'The embedded engine beside llama-server: [`npm run bench:peer -w packages/engine`](./research/llama-server.md). Agents, a shared store and long runs: [the gateway under other loads](./research/gateway-loads.md). LiteLLM, Envoy and the gateways in Rust and Go are not measured here.',
    ],
  );
}

/** Streams are shown for prompts with documents alone. */
function shownTables(figures) {
  const tables = tablesOf(figures).filter(
    ({ title }) => !title.endsWith(', streamed') || title.includes('documents, '),
  );
  return tables.map(({ title, head, rows }) => {
    const isCompared = head[0] !== 'body';
    const columns = head.map((_, column) => column).filter((column) => isShownColumn(head[column], isCompared));
    const shown = rows.filter(
      (row) => row[isCompared ? 0 : 1] !== '1' && (!isCompared || row[0] === SHOWN_CONNECTIONS),
    );
    return {
      title: isCompared ? `${title}, ${SHOWN_CONNECTIONS} ${head[0]}` : title,
      head: columns.map((column) => head[column]),
      rows: shown
        .filter((row) => !HIDDEN_SYSTEMS.includes(row[head.indexOf('system')]))
        .map((row) => columns.map((column) => row[column])),
    };
  });
}

/** Other bodies do not all have the same number of connections. */
function isShownColumn(name, isCompared) {
  return !HIDDEN_COLUMNS.includes(name) || (name === 'connections' && !isCompared);
}

/** What a reader must know before the figures of some runs. */
function caveatsOf({ runs }) {
  const isBusy = runs.some(({ machine, loadBefore }) => loadBefore > Number.parseInt(machine, 10));
  const isQuick = runs.some((run) => run.isQuick);
  return [
    isBusy &&
      '**The machine was busy with other work** (its load was above its number of cores): every system got a fraction of a core, those with the most code the least. Compare nothing but the order of magnitude.',
    isQuick && '**Quick**: one round of a second a cell. The rest of the cells is not measured yet.',
  ].filter(Boolean);
}

/** Of its last run. */
function versionOf({ runs }, name) {
  return runs.map(({ versions }) => versions[name]).findLast((version) => version !== undefined) ?? 'not measured';
}
