import { readFileSync } from 'node:fs';
import { FRAME_MS } from '../../packages/gateway/bench/cells.js';
import { barsOf, STALL, tablesOf } from '../../packages/gateway/bench/report.js';
import { SYSTEMS } from '../../packages/gateway/bench/systems.js';
import { code, page, table } from './markdown.js';

const FIGURES = new URL('../../packages/gateway/bench/figures.json', import.meta.url);

const WHAT = {
  direct: 'the engine of the benchmark, asked without anything in between. Its own work is in all other figures, too',
  nginx: 'one worker, connections to the engine kept, `proxy_buffering off`',
  http: 'a plain proxy that passes the bytes of the body on',
  fastify: 'a plain proxy that parses the body and writes it again',
  portkey: 'without its log page (`--headless`), with a version of `@hono/node-server` with which it can stream',
  warmpath: 'in its default configuration: documents are read, ordered and written into the prompt',
};

/** Left out of the page, to keep it short. The JSON has all of them. */
const HIDDEN_CONNECTIONS = ['128'];
const HIDDEN_SYSTEMS = ['`node:http` + undici'];

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
      'Options go behind `--`, as in `npm run bench:gateway -- --quick`.',
      table(
        ['option', 'what it does'],
        [
          [
            '`--json packages/gateway/bench/figures.json`',
            'keeps the figures; `npm run docs:generate` writes this page from them',
          ],
          [
            '`--quick`',
            'a smoke run of a few minutes: one short round, without 128 connections and without streams of one of the bodies',
          ],
          ['`--bars`', 'only what the bars need; `npm run bench -w packages/gateway` is the same'],
          [
            '`--cells small/32,stream/512`',
            'only these groups, by parts of their names. So it can be run in parts: what is in the file of `--json` already stays there. The file is written after every group',
          ],
          ['`--systems warmpath,portkey`', 'only these systems; bars that need another stay open'],
          ['`--rounds 5`', 'how often every system has its turn'],
        ],
      ),
      `It says at the start how long it will take, and exits with 1 where a bar is missed (not with ${code('--quick')}). Requests are sent by \`wrk\` where it is installed, otherwise by undici. A system that is not installed is left out, with a line that says so.`,
      '## What is measured',
      table(
        ['system', 'version', 'what it is'],
        Object.entries(SYSTEMS).map(([name, { title }]) => [title, versionOf(figures, name), WHAT[name]]),
      ),
      `The engine behind them answers at once, or streams a frame every ${FRAME_MS} ms. Each system is one process behind real sockets on the loopback; client, system and engine share the machine, so requests a second are what is left for the system. They take turns in an order that rotates. Figures are medians of the rounds; a ratio is taken within each round. CPU and memory are those of the system's process. 128 connections, a proxy of plain Node and streams of the other bodies are measured too, and stand in the JSON only.`,
      `Bodies of documents are 300 that come again and again, 20 of 60 documents each. nginx and the plain proxies send the engine the same bytes; Portkey drops ${code('documents')} and sends it 200 bytes. A frame is stalled when it comes ${STALL} after the one before, or later; an incomplete stream lacks a frame or its end.`,
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
      'What this project holds itself to. In brackets: of all rounds the least and the greatest.',
      table(bars.head, bars.rows),
      ...shownTables(figures).flatMap(({ title, head, rows }) => [`## ${title}`, table(head, rows.filter(isShown))]),
      '## Beside it',
      'The embedded engine beside llama-server: [`npm run bench:peer -w packages/engine`](./research/llama-server.md). Agents, a shared store and long runs: [the gateway under other loads](./research/gateway-loads.md). LiteLLM, Envoy and the gateways in Rust and Go are not measured here.',
    ],
  );
}

/** Streams are shown for prompts with documents alone. */
function shownTables(figures) {
  return tablesOf(figures).filter(({ title }) => !title.endsWith(', streamed') || title.includes('documents, '));
}

/** @param row the text of its cells: connections, or another column and then connections, and the system */
function isShown(row) {
  const isOfBody = Number.isNaN(Number(row[0]));
  return isOfBody || !(HIDDEN_CONNECTIONS.includes(row[0]) || HIDDEN_SYSTEMS.includes(row[1]));
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
