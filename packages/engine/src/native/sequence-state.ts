/**
 * The bytes of `llama_state_seq_get_data` for one sequence in a unified KV buffer, as src/llama-context.cpp and
 * src/llama-kv-cache.cpp of the same build write them (little-endian, no padding):
 *
 *     u32 magic · i32 sequence · one buffer, or two where some layers attend to a sliding window:
 *       u32 streams = 1 · u32 cells
 *       for each cell:   i32 position · u32 labels = 1 · (12 bytes more where positions are of M-RoPE) · i32 label
 *       u32 values are transposed = 0 · u32 layers
 *       for each layer:  i32 type of the keys · u64 bytes of a row · a row for each cell
 *       for each layer:  i32 type of the values · u64 bytes of a row · a row for each cell
 *
 * Models with latent attention (MLA) have no values. Cells stand in the order of the buffer, which need not be the
 * order of positions. The second buffer holds no cells that have left the window, so the cells of these models are
 * saved in pieces ({@link statePieces}), whose bytes follow each other.
 */
const MAGIC = 0xaf143cd8;
export const HEAD_BYTES = 8;
const CELLS_HEAD_BYTES = 8;
const LAYERS_HEAD_BYTES = 8;
const ROWS_HEAD_BYTES = 12;

/** What differs between models: bytes of a cell, and tables of rows of each layer. */
export const FORMS = [12, 24].flatMap((cellBytes) => [2, 1].map((tablesPerLayer) => ({ cellBytes, tablesPerLayer })));
type Form = (typeof FORMS)[number];

/** Positions `from` … `to - 1`. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** A piece of a state: what one call of llama.cpp wrote. */
export interface StatePiece extends Range {
  readonly bytes: Uint8Array;
}

/**
 * The ranges that cells are saved in: as a whole, or where layers attend to a window of so many tokens, cut at its
 * multiples, so that no cell has left the window of the last one of its range.
 */
export function savedRanges(from: number, to: number, window: number): Range[] {
  const ranges: Range[] = [];
  for (let start = from; start < to; ) {
    const end = window > 0 ? Math.min(to, (Math.floor(start / window) + 1) * window) : to;
    ranges.push({ from: start, to: end });
    start = end;
  }
  return ranges;
}

/**
 * The pieces of a state of exactly the positions `from` … `to - 1`, each once in every buffer; `undefined` for any
 * other bytes. Cost: O(cells + layers).
 */
export function statePieces(state: Uint8Array, from: number, to: number): StatePiece[] | undefined {
  const pieces: StatePiece[] = [];
  let place = from;
  for (const piece of readPieces(state) ?? []) {
    const cells = piece.buffers[0]!.cells;
    if (!piece.buffers.every((buffer) => holdsPositions(piece.bytes, buffer, { from: place, to: place + cells }))) {
      return undefined;
    }
    pieces.push({ from: place, to: place + cells, bytes: piece.bytes });
    place += cells;
  }
  return place === to && to > from ? pieces : undefined;
}

/** The part of a state at the positions `from` … `to - 1`, as if these alone had been saved. Cost: one copy. */
export function sliceState(state: Uint8Array, from: number, to: number): Uint8Array {
  const pieces = readPieces(state);
  if (pieces === undefined) {
    throw new Error('A sequence state cannot be cut that is none');
  }
  return joinBytes(pieces.flatMap((piece) => slicePiece(piece, { from, to })));
}

/** One behind the other. */
export function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let end = 0;
  for (const part of parts) {
    joined.set(part, end);
    end += part.length;
  }
  return joined;
}

/** One buffer in the bytes of a piece: its cells, and the rows of each layer's keys, then of each layer's values. */
export interface BufferTables {
  /** Where it begins. */
  readonly start: number;
  readonly cells: number;
  readonly cellBytes: number;
  readonly rows: readonly { readonly start: number; readonly bytes: number }[];
  readonly end: number;
}

interface PieceTables {
  readonly bytes: Uint8Array;
  readonly buffers: readonly BufferTables[];
}

/** Whether bytes begin as every state does. */
export function isState(bytes: Uint8Array): boolean {
  return bytes.length >= HEAD_BYTES && viewOf(bytes).getUint32(0, true) === MAGIC;
}

function slicePiece({ bytes, buffers }: PieceTables, range: Range): Uint8Array[] {
  const sliced = buffers.map((buffer) => sliceBuffer(bytes, buffer, range));
  return sliced.every((parts) => parts.length === 1) ? [] : [bytes.subarray(0, HEAD_BYTES), ...sliced.flat()];
}

/** A buffer's cells in a range: its head, and where there are any, all that describes them. */
export function sliceBuffer(bytes: Uint8Array, buffer: BufferTables, range: Range): Uint8Array[] {
  const { start, cells, cellBytes, rows } = buffer;
  const view = viewOf(bytes);
  const cellsAt = start + CELLS_HEAD_BYTES;
  const kept: number[] = [];
  for (let cell = 0; cell < cells; cell++) {
    const position = view.getInt32(cellsAt + cell * cellBytes, true);
    if (position >= range.from && position < range.to) {
      kept.push(cell);
    }
  }
  const head = Uint8Array.from(bytes.subarray(start, cellsAt));
  viewOf(head).setUint32(4, kept.length, true);
  if (kept.length === 0) {
    return [head];
  }
  const layersAt = cellsAt + cells * cellBytes;
  return [
    head,
    gather(bytes, { start: cellsAt, bytes: cellBytes }, kept),
    bytes.subarray(layersAt, layersAt + LAYERS_HEAD_BYTES),
    ...rows.flatMap((table) => [
      bytes.subarray(table.start - ROWS_HEAD_BYTES, table.start),
      gather(bytes, table, kept),
    ]),
  ];
}

/** Some rows of a table, one behind the other. */
function gather(bytes: Uint8Array, table: { start: number; bytes: number }, rows: readonly number[]): Uint8Array {
  const gathered = new Uint8Array(rows.length * table.bytes);
  for (const [index, row] of rows.entries()) {
    const start = table.start + row * table.bytes;
    gathered.set(bytes.subarray(start, start + table.bytes), index * table.bytes);
  }
  return gathered;
}

/** Whether a buffer holds exactly these positions, each once. */
export function holdsPositions(
  bytes: Uint8Array,
  { start, cells, cellBytes }: BufferTables,
  { from, to }: Range,
): boolean {
  const view = viewOf(bytes);
  const seen = new Uint8Array(to - from);
  for (let cell = 0; cell < cells; cell++) {
    const at = start + CELLS_HEAD_BYTES + cell * cellBytes;
    const place = view.getInt32(at, true) - from;
    if (place < 0 || place >= seen.length || seen[place] === 1 || view.getUint32(at + 4, true) !== 1) {
      return false;
    }
    seen[place] = 1;
  }
  return cells === seen.length;
}

/** @returns `undefined` when the bytes are no such state. */
function readPieces(state: Uint8Array): PieceTables[] | undefined {
  for (const form of FORMS) {
    const pieces: PieceTables[] = [];
    for (let rest = state; rest.length > 0; ) {
      const piece = readPiece(rest, form);
      if (piece === undefined) {
        break;
      }
      pieces.push(piece);
      rest = rest.subarray(piece.bytes.length);
    }
    if (pieces.length > 0 && pieces.reduce((sum, { bytes }) => sum + bytes.length, 0) === state.length) {
      return pieces;
    }
  }
  return undefined;
}

/** The piece that the bytes begin with. */
function readPiece(bytes: Uint8Array, form: Form): PieceTables | undefined {
  if (!isState(bytes)) {
    return undefined;
  }
  const view = viewOf(bytes);
  const buffers: BufferTables[] = [];
  let end = HEAD_BYTES;
  do {
    const buffer = readBuffer(view, end, form);
    if (buffer === undefined || buffer.cells === 0) {
      return undefined;
    }
    buffers.push(buffer);
    end = buffer.end;
  } while (end + 4 <= bytes.length && view.getUint32(end, true) !== MAGIC);
  return { bytes: bytes.subarray(0, end), buffers };
}

/** @returns `undefined` when no buffer of this form begins there. */
export function readBuffer(
  view: DataView,
  start: number,
  { cellBytes, tablesPerLayer }: Form,
): BufferTables | undefined {
  const cellsAt = start + CELLS_HEAD_BYTES;
  if (cellsAt > view.byteLength || view.getUint32(start, true) !== 1) {
    return undefined;
  }
  const cells = view.getUint32(start + 4, true);
  if (cells === 0) {
    return { start, cells, cellBytes, rows: [], end: cellsAt };
  }
  const layersAt = cellsAt + cells * cellBytes;
  if (layersAt + LAYERS_HEAD_BYTES > view.byteLength || view.getUint32(layersAt, true) !== 0) {
    return undefined;
  }
  const tableCount = view.getUint32(layersAt + 4, true) * tablesPerLayer;
  const rows: { start: number; bytes: number }[] = [];
  let end = layersAt + LAYERS_HEAD_BYTES;
  for (let table = 0; table < tableCount; table++) {
    const rowsAt = end + ROWS_HEAD_BYTES;
    if (rowsAt > view.byteLength) {
      return undefined;
    }
    const bytes = Number(view.getBigUint64(end + 4, true));
    rows.push({ start: rowsAt, bytes });
    end = rowsAt + bytes * cells;
  }
  return end <= view.byteLength ? { start, cells, cellBytes, rows, end } : undefined;
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
