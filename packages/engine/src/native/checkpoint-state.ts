import {
  type BufferTables,
  FORMS,
  HEAD_BYTES,
  holdsPositions,
  isState,
  joinBytes,
  type Range,
  readBuffer,
  sliceBuffer,
  viewOf,
} from './sequence-state.js';

/**
 * The recurrent part of a state, behind the buffers of attention, as src/llama-memory-recurrent.cpp writes it:
 *
 *     u32 states: 1, or 0 where there is none · for the one:  i32 position · u32 labels = 0
 *     u32 transposed = 0 · u32 layers
 *     for each table:  i32 type · u64 bytes of a row · a row for the one state
 */
const COUNT_BYTES = 4;
const STATE_HEAD_BYTES = 8;
const TABLES_HEAD_BYTES = 8;
const ROW_HEAD_BYTES = 12;

interface CheckpointTables {
  readonly buffers: readonly BufferTables[];
  /** Where the recurrent part begins. */
  readonly start: number;
  /** The position that its state is behind; `undefined` where there is none. */
  readonly position: number | undefined;
  /** Where the head of each table's row stands. */
  readonly tables: readonly number[];
}

/**
 * Whether bytes are a state of a model with recurrent layers: cells of attention at the positions `from` … `to - 1`,
 * and a recurrent state behind the last or none. Cost: O(cells + layers).
 * @param buffers Buffers of attention: 0 without any, 2 where some attend to a window.
 */
export function isCheckpointState(state: Uint8Array, { from, to }: Range, buffers: number): boolean {
  const tables = readTables(state, buffers);
  const attention = tables?.buffers[0];
  return (
    tables !== undefined &&
    (tables.position === undefined || tables.position === to - 1) &&
    (attention === undefined || holdsPositions(state, attention, { from, to }))
  );
}

/** Whether a sequence resumes behind a state: it holds a recurrent state. */
export function holdsCheckpoint(state: Uint8Array, buffers: number): boolean {
  return readTables(state, buffers)?.position !== undefined;
}

/** The part at some positions: a checkpoint only with the last position that the state had. Cost: one copy. */
export function sliceCheckpoint(state: Uint8Array, range: Range, buffers: number): Uint8Array {
  const tables = readTables(state, buffers);
  if (tables === undefined) {
    throw new Error('A sequence state cannot be cut that is none');
  }
  const { start, position } = tables;
  return joinBytes([
    state.subarray(0, HEAD_BYTES),
    ...tables.buffers.flatMap((buffer) => sliceBuffer(state, buffer, range)),
    ...(position === range.to - 1 ? [state.subarray(start)] : withoutState(state, tables)),
  ]);
}

/** The recurrent part without its state: llama.cpp reads the heads of the tables all the same. */
function withoutState(state: Uint8Array, { start, position, tables }: CheckpointTables): Uint8Array[] {
  const tablesAt = start + COUNT_BYTES + (position === undefined ? 0 : STATE_HEAD_BYTES);
  return [
    new Uint8Array(COUNT_BYTES),
    state.subarray(tablesAt, tablesAt + TABLES_HEAD_BYTES),
    ...tables.map((at) => state.subarray(at, at + ROW_HEAD_BYTES)),
  ];
}

/** @returns `undefined` when the bytes are no such state. */
function readTables(state: Uint8Array, buffers: number): CheckpointTables | undefined {
  if (!isState(state)) {
    return undefined;
  }
  const view = viewOf(state);
  for (const form of buffers === 0 ? FORMS.slice(0, 1) : FORMS) {
    const attention: BufferTables[] = [];
    let end: number | undefined = HEAD_BYTES;
    for (let place = 0; place < buffers && end !== undefined; place++) {
      const buffer = readBuffer(view, end, form);
      end = buffer?.end;
      if (buffer !== undefined) {
        attention.push(buffer);
      }
    }
    const recurrent = end === undefined ? undefined : readRecurrent(view, end);
    if (recurrent !== undefined) {
      return { buffers: attention, ...recurrent };
    }
  }
  return undefined;
}

function readRecurrent(view: DataView, start: number): Omit<CheckpointTables, 'buffers'> | undefined {
  if (start + COUNT_BYTES > view.byteLength) {
    return undefined;
  }
  const count = view.getUint32(start, true);
  const tablesAt = start + COUNT_BYTES + count * STATE_HEAD_BYTES;
  if (count > 1 || tablesAt + TABLES_HEAD_BYTES > view.byteLength || view.getUint32(tablesAt, true) !== 0) {
    return undefined;
  }
  const tables: number[] = [];
  let end = tablesAt + TABLES_HEAD_BYTES;
  while (end + ROW_HEAD_BYTES <= view.byteLength) {
    tables.push(end);
    end += ROW_HEAD_BYTES + count * Number(view.getBigUint64(end + 4, true));
  }
  const position = count === 0 ? undefined : view.getInt32(start + COUNT_BYTES, true);
  return end === view.byteLength ? { start, position, tables } : undefined;
}
