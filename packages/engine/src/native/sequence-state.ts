/**
 * The bytes of `llama_state_seq_get_data` for one sequence in a unified KV buffer, as src/llama-context.cpp and
 * src/llama-kv-cache.cpp of the same build write them (little-endian, no padding):
 *
 *     u32 magic · i32 sequence · u32 streams = 1 · u32 cells
 *     for each cell:   i32 position · u32 labels = 1 · (12 bytes more where positions are of M-RoPE) · i32 label
 *     u32 values are transposed = 0 · u32 layers
 *     for each layer:  i32 type of the keys · u64 bytes of a row · a row for each cell
 *     for each layer:  i32 type of the values · u64 bytes of a row · a row for each cell
 *
 * Models with latent attention (MLA) have no values. Cells stand in the order of the buffer, which need not be the
 * order of positions.
 */
const MAGIC = 0xaf143cd8;
const HEAD_BYTES = 16;
const LAYERS_HEAD_BYTES = 8;
const ROWS_HEAD_BYTES = 12;

/** What differs between models: bytes of a cell, and tables of rows of each layer. */
const FORMS = [12, 24].flatMap((cellBytes) => [2, 1].map((tablesPerLayer) => ({ cellBytes, tablesPerLayer })));

/**
 * Whether these bytes are the state of a sequence with exactly the positions `from` … `to - 1`, each once, and of the
 * length that its own fields say. Models whose memory has several parts (sliding windows) write other bytes, for which
 * the answer is no. Cost: O(cells + layers).
 */
export function holdsPositions(state: Uint8Array, from: number, to: number): boolean {
  const count = to - from;
  const tables = rowTables(state);
  if (count <= 0 || tables?.cells !== count) {
    return false;
  }
  const { cellBytes } = tables;
  const view = viewOf(state);
  const seen = new Uint8Array(count);
  for (let cell = 0; cell < count; cell++) {
    const at = HEAD_BYTES + cell * cellBytes;
    const place = view.getInt32(at, true) - from;
    if (place < 0 || place >= count || seen[place] === 1 || view.getUint32(at + 4, true) !== 1) {
      return false;
    }
    seen[place] = 1;
  }
  return true;
}

/**
 * The part of a state that holds the positions `from` … `to - 1`: what saving these alone would have given.
 * Cost: one copy of the part.
 *
 * @param state One for which {@link holdsPositions} was true with a range around this one.
 */
export function sliceState(state: Uint8Array, from: number, to: number): Uint8Array {
  const tables = rowTables(state);
  if (tables === undefined) {
    throw new Error('A sequence state cannot be cut that is none');
  }
  const { cellBytes } = tables;
  const view = viewOf(state);
  const cells: number[] = [];
  for (let cell = 0; cell < tables.cells; cell++) {
    const position = view.getInt32(HEAD_BYTES + cell * cellBytes, true);
    if (position >= from && position < to) {
      cells.push(cell);
    }
  }
  const rowBytes = tables.rows.reduce((sum, { bytes }) => sum + ROWS_HEAD_BYTES + bytes * cells.length, 0);
  const slice = new Uint8Array(HEAD_BYTES + cells.length * cellBytes + LAYERS_HEAD_BYTES + rowBytes);
  let end = 0;
  const append = (start: number, bytes: number): void => {
    slice.set(state.subarray(start, start + bytes), end);
    end += bytes;
  };
  append(0, HEAD_BYTES);
  viewOf(slice).setUint32(HEAD_BYTES - 4, cells.length, true);
  for (const cell of cells) {
    append(HEAD_BYTES + cell * cellBytes, cellBytes);
  }
  append(HEAD_BYTES + tables.cells * cellBytes, LAYERS_HEAD_BYTES);
  for (const { start, bytes } of tables.rows) {
    append(start - ROWS_HEAD_BYTES, ROWS_HEAD_BYTES);
    for (const cell of cells) {
      append(start + cell * bytes, bytes);
    }
  }
  return slice;
}

/** Where the rows of each layer's keys, then of each layer's values begin, and the bytes of one row. */
interface RowTables {
  readonly cells: number;
  readonly cellBytes: number;
  readonly rows: readonly { readonly start: number; readonly bytes: number }[];
}

/** @returns `undefined` when the bytes are no such state. */
function rowTables(state: Uint8Array): RowTables | undefined {
  if (state.length < HEAD_BYTES + LAYERS_HEAD_BYTES) {
    return undefined;
  }
  const view = viewOf(state);
  if (view.getUint32(0, true) !== MAGIC || view.getUint32(8, true) !== 1) {
    return undefined;
  }
  const cells = view.getUint32(HEAD_BYTES - 4, true);
  for (const { cellBytes, tablesPerLayer } of FORMS) {
    const rows = rowsOfForm(view, cells, HEAD_BYTES + cells * cellBytes, tablesPerLayer);
    if (rows !== undefined) {
      return { cells, cellBytes, rows };
    }
  }
  return undefined;
}

/** @returns `undefined` when the state is not of a form with this many bytes before its layers. */
function rowsOfForm(
  view: DataView,
  cells: number,
  layersAt: number,
  tablesPerLayer: number,
): RowTables['rows'] | undefined {
  if (layersAt + LAYERS_HEAD_BYTES > view.byteLength || view.getUint32(layersAt, true) !== 0) {
    return undefined;
  }
  const tableCount = view.getUint32(layersAt + 4, true) * tablesPerLayer;
  const rows: { start: number; bytes: number }[] = [];
  let end = layersAt + LAYERS_HEAD_BYTES;
  for (let table = 0; table < tableCount; table++) {
    const start = end + ROWS_HEAD_BYTES;
    if (start > view.byteLength) {
      return undefined;
    }
    const bytes = Number(view.getBigUint64(end + 4, true));
    rows.push({ start, bytes });
    end = start + bytes * cells;
  }
  return end === view.byteLength ? rows : undefined;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
