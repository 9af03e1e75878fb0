import { Worker } from 'node:worker_threads';
import { WarmpathError } from '@warmpath/core';
import type { BuildOutcome, BuildTask } from './build-worker.js';
import { StoredRows, type VectorEntry } from './stored-rows.js';
import {
  checkVectorIndexOptions,
  Turn,
  VectorIndex,
  type VectorIndexOptions,
  type VectorIndexState,
  vectorIndexKind,
} from './vector-index.js';
import { VectorTable } from './vector-table.js';

/** The built file, from the sources as well: a thread cannot be started from TypeScript. */
const WORKER = new URL('../../dist/vector/build-worker.js', import.meta.url);

export interface BuildOptions extends VectorIndexOptions {
  /** Called a few times a second with a share from 0 to 1 of the work that is done. */
  readonly onProgress?: (share: number) => void;
  /** Ends the build; it then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/**
 * Builds an index over vectors. What takes long is computed in a thread of its own, on the same memory; the rest gives
 * everything else its turn. The same vectors in the same order with the same seed give the same index.
 *
 * @throws WARMPATH_INVALID_VECTOR with the place of the vector, WARMPATH_INVALID_REQUEST for an option.
 */
export async function buildVectorIndex(
  entries: Iterable<VectorEntry> | AsyncIterable<VectorEntry>,
  options: BuildOptions,
): Promise<VectorIndex> {
  checkVectorIndexOptions(options);
  const { onProgress, signal, ...indexOptions } = options;
  signal?.throwIfAborted();
  const table = new VectorTable(options.dimension, options.metric ?? 'cosine');
  const rows = new StoredRows(table);
  const turn = new Turn();
  const take = (entry: VectorEntry) => rows.push(entry, `vectors[${table.count}]`);
  if (Symbol.asyncIterator in entries) {
    for await (const entry of entries) {
      take(entry);
      if (turn.isOver) await turn.next();
      signal?.throwIfAborted();
    }
  } else {
    for (const entry of entries) {
      take(entry);
      if (turn.isOver) await turn.next();
      signal?.throwIfAborted();
    }
  }
  const kind = options.kind ?? vectorIndexKind(table.count);
  const state: VectorIndexState =
    kind === 'exact' ? { kind } : await computeState({ kind, table: table.shared, options: indexOptions }, options);
  onProgress?.(1);
  return new VectorIndex(indexOptions, rows, state);
}

function computeState(task: BuildTask, { onProgress, signal }: BuildOptions): Promise<VectorIndexState> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(WORKER, { workerData: task, execArgv: [] });
    const end = () => {
      signal?.removeEventListener('abort', abort);
      void worker.terminate();
    };
    const abort = () => {
      reject(signal?.reason);
      end();
    };
    signal?.addEventListener('abort', abort);
    worker.on('message', (outcome: BuildOutcome) => {
      if ('progress' in outcome) return onProgress?.(outcome.progress);
      resolve(outcome.state);
      end();
    });
    worker.once('error', (error) => {
      reject(
        new WarmpathError('WARMPATH_INTERNAL', { detail: 'the thread that builds an index failed.', cause: error }),
      );
      end();
    });
    worker.once('exit', (code) => {
      reject(new WarmpathError('WARMPATH_INTERNAL', { detail: `the thread that builds an index ended (${code}).` }));
      end();
    });
  });
}
