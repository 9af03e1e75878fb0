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

/** Before vLLM, from `bench/gpu.sh`: order, computed tokens of 300 questions, TTFT of 150 (median / p90). */
const GPU_ROWS = [
  ['retrieval order', '150,937', '1', '95 / 120 ms'],
  ['random order', '167,577', '1.110', ''],
  ['field `documents`', '114,097', '0.756', '62 / 75 ms'],
  ['the same, with KV events', '', '', '79 / 99 ms'],
  ['the same, without hints', '108,185', '0.717', '76 / 106 ms'],
  ['planned', '105,508', '0.699', ''],
  ['planned, without hints', '99,545', '0.660', ''],
];

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
    'What vLLM computes on a GPU, and what the gateway costs beside other proxies, losses included.',
    [
      '## On a GPU',
      '`bash bench/gpu.sh FOLDER` on one NVIDIA H200: vLLM 0.26.0, a model of the shape of Qwen2.5 7B with random weights (bf16, eager), a cache that never evicts, MultiHop-RAG, five passages by BM25, four requests at once.',
      table(['order', 'computed tokens, 300 questions', 'ratio', 'TTFT, 150 questions, median / p90'], GPU_ROWS),
      'One run, and another server started on the same GPU during it. So the times are rough: those of the three rows of the field differ by more than their computed tokens do.',
      '## The gateway',
      '```sh\nnpm run bench:gateway\n```',
      `Options go behind ${code('--')}: ${code('--quick')}, ${code('--bars')} (only what the bars need), ${code('--cells small/32,stream/512')}, ${code('--systems warmpath,portkey')}, ${code('--rounds 5')}, ${code('--json FILE')}. It sends requests with ${code('wrk')}, or with undici where ${code('wrk')} is not installed, and exits with 1 where a bar is missed.`,
      '### What is measured',
      table(
        ['system', 'version', 'what it is'],
        Object.entries(SYSTEMS).map(([name, { title }]) => [title, versionOf(figures, name), WHAT[name]]),
      ),
      `The engine answers at once, or streams a frame every ${FRAME_MS} ms. Each system is one process behind real sockets on the loopback. Client, system and engine share the machine. Systems take turns. Figures are medians of the rounds; a ratio is taken within each round. The figures of every round, with other bodies and numbers of connections, are in ${code('packages/gateway/bench/figures.json')}.`,
      `A body with documents has 20 of 60. There are 300 such bodies, which come again. nginx and the plain proxies send the engine the same bytes; Portkey drops ${code('documents')} and sends 200 bytes. A frame is stalled when it comes ${STALL} after the one before, or later.`,
      table(
        ['measured', 'machine', 'rounds', 'load at the start'],
        figures.runs.map(({ date, machine, node, rounds, isQuick, loadBefore }) => {
          return [
            date.slice(0, 10),
            `${machine}, Node ${node}`,
            `${rounds}${isQuick ? ', quick' : ''}`,
            loadBefore.toFixed(1),
          ];
        }),
      ),
      ...caveatsOf(figures),
      '### Bars',
      'Limits that this project sets itself. In brackets: the least and the greatest of all rounds.',
      table(bars.head, bars.rows),
      ...shownTables(figures).flatMap(({ title, head, rows }) => [`### ${title}`, table(head, rows)]),
      '## Other benchmarks',
      'The embedded engine beside llama-server: [`npm run bench:peer -w packages/engine`](./research/llama-server.md). LiteLLM, Envoy and the gateways in Rust and Go are not measured here.',
    ],
  );
}

/** Prompts with documents, then the bodies of which Warmpath alone was measured. The bars have the others. */
function shownTables(figures) {
  return tablesOf(figures)
    .filter(({ title }) => title.includes('documents, ') || title === 'Other bodies')
    .map((measured) => (measured.head[0] === 'body' ? withoutPeers(measured) : comparedTable(measured)));
}

function comparedTable({ title, head, rows }) {
  const shown = rows.filter(([connections, system]) => {
    return connections === SHOWN_CONNECTIONS && !HIDDEN_SYSTEMS.includes(system);
  });
  return withoutColumns(HIDDEN_COLUMNS, { title: `${title}, ${SHOWN_CONNECTIONS} ${head[0]}`, head, rows: shown });
}

function withoutPeers({ title, head, rows }) {
  const alone = rows.filter(([body]) => rows.filter(([other]) => other === body).length === 1);
  return withoutColumns([...HIDDEN_COLUMNS, 'system', "Warmpath's, times it"], {
    title: `${title}, ${SHOWN_CONNECTIONS} connections`,
    head,
    rows: alone,
  });
}

function withoutColumns(hidden, { title, head, rows }) {
  const keep = (cells) => cells.filter((_, column) => !hidden.includes(head[column]));
  return { title, head: keep(head), rows: rows.map(keep) };
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
