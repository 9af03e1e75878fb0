import { parentPort, workerData } from 'node:worker_threads';
import { HnswGraph } from './hnsw-graph.js';
import { divideIntoLists } from './ivf-search.js';
import type { VectorIndexKind, VectorIndexOptions, VectorIndexState } from './vector-index.js';
import { type SharedTable, VectorTable } from './vector-table.js';

/** What the thread is to build, over rows that lie in shared memory. */
export interface BuildTask {
  readonly kind: VectorIndexKind;
  readonly table: SharedTable;
  readonly options: VectorIndexOptions;
}

export type BuildOutcome = { readonly progress: number } | { readonly state: VectorIndexState };

/** Rows between two looks at the clock. */
const ROWS = 64;
/** Milliseconds between two messages of progress. */
const PROGRESS_MS = 200;

const { kind, table: shared, options } = workerData as BuildTask;
const table = new VectorTable(shared.dimension, shared.metric, shared);
let told = performance.now();

function progress(share: number): void {
  const now = performance.now();
  if (now - told < PROGRESS_MS) return;
  told = now;
  parentPort?.postMessage({ progress: share } satisfies BuildOutcome);
}

function build(): VectorIndexState {
  if (kind === 'ivf') return { kind, ivf: divideIntoLists(table, options.ivf ?? {}, progress) };
  const graph = new HnswGraph(table, options.hnsw);
  graph.reserve(table.count);
  for (let row = 0; row < table.count; row++) {
    graph.add();
    if (row % ROWS === 0) progress(row / table.count);
  }
  return { kind, hnsw: graph.state };
}

const state = build();
const arrays = Object.values(state.hnsw ?? state.ivf ?? {}).filter((value) => ArrayBuffer.isView(value));
parentPort?.postMessage(
  { state } satisfies BuildOutcome,
  arrays.map(({ buffer }) => buffer as ArrayBuffer),
);
