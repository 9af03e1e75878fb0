/**
 * The bytes of `llama_state_seq_get_data` for one sequence in a unified KV buffer, as llama.cpp of the same build
 * writes them (little-endian, no padding):
 *
 *     u32 magic · i32 sequence · one section for each buffer of cells, and one for the recurrent state:
 *       only in a buffer: u32 streams = 1
 *       u32 cells
 *       for each cell:  i32 position · u32 labels · in a buffer: i32 label (before it 12 bytes more with M-RoPE)
 *       u32 values are transposed = 0 · u32 layers
 *       for each table:  i32 type · u64 bytes of a row · a row for each cell
 *
 * A buffer has a table of keys for each layer, and one of values without latent attention (MLA). A buffer without cells
 * ends behind their number. Cells stand in any order. The second buffer, of layers that attend to a sliding window,
 * lacks cells that have left it, so cells are saved in several pieces, whose bytes follow each other.
 */
const MAGIC = 0xaf143cd8;
const HEAD_BYTES = 8;
const LAYERS_HEAD_BYTES = 8;
const ROWS_HEAD_BYTES = 12;

/** What the states of a model consist of. */
export interface StateShape {
  /** Buffers of cells: two where some layers attend to a sliding window, none without attention. */
  readonly buffers: number;
  readonly isRecurrent: boolean;
  /** Tokens of the sliding window; 0 without one. */
  readonly window: number;
}

/** Positions `from` … `to - 1`. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** A kind of section. Without a number of tables for each layer, these take all bytes that are left. */
interface Kind {
  readonly headBytes: number;
  readonly cellBytes: number;
  readonly tablesPerLayer: number | undefined;
}

const BUFFERS: readonly Kind[] = [12, 24].flatMap((cellBytes) =>
  [2, 1].map((tablesPerLayer) => ({ headBytes: 8, cellBytes, tablesPerLayer })),
);
const RECURRENT: Kind = { headBytes: 4, cellBytes: 8, tablesPerLayer: undefined };

interface Section {
  readonly kind: Kind;
  readonly start: number;
  readonly cells: number;
  readonly tables: readonly { readonly start: number; readonly bytes: number }[];
  readonly end: number;
}

/** What one call of llama.cpp wrote. */
interface Piece {
  readonly bytes: Uint8Array;
  readonly sections: readonly Section[];
}

/** The ranges that cells are saved in: cut at multiples of the window, so that none has left it. */
export function savedRanges(from: number, to: number, { window }: StateShape): Range[] {
  const ranges: Range[] = [];
  for (let start = from; start < to; ) {
    const end = window > 0 ? Math.min(to, (Math.floor(start / window) + 1) * window) : to;
    ranges.push({ from: start, to: end });
    start = end;
  }
  return ranges;
}

/**
 * The pieces of a state of the positions `from` … `to - 1`; `undefined` when the bytes are none. Cost: O(layers).
 */
export function statePieces(
  state: Uint8Array,
  { from, to }: Range,
  shape: StateShape,
): readonly (Range & { readonly bytes: Uint8Array })[] | undefined {
  let place = from;
  const pieces = readPieces(state, shape)?.map(({ bytes, sections }) => {
    const cells = shape.buffers === 0 ? to - from : sections[0]!.cells;
    place += cells;
    return { from: place - cells, to: place, bytes };
  });
  return place === to ? pieces : undefined;
}

/** Whether every buffer has all cells of a range, and a recurrent state is behind the last. Cost: O(layers). */
export function isComplete(state: Uint8Array, { from, to }: Range, shape: StateShape): boolean {
  const pieces = readPieces(state, shape) ?? [];
  const holdsAll = (index: number): boolean =>
    pieces.reduce((sum, { sections }) => sum + sections[index]!.cells, 0) === to - from;
  const isLast = ({ bytes, sections }: Piece): boolean => positions(bytes, sections.at(-1)!)[0] === to - 1;
  return (
    pieces.length > 0 &&
    Array.from({ length: shape.buffers }, (_, index) => holdsAll(index)).every(Boolean) &&
    (!shape.isRecurrent || isLast(pieces[0]!))
  );
}

/** Whether a sequence can go on behind a state: it has a recurrent state where the model needs one. */
export function isResumable(state: Uint8Array, shape: StateShape): boolean {
  return !shape.isRecurrent || readPieces(state, shape)?.[0]?.sections.at(-1)?.cells === 1;
}

/**
 * The part of a state at some positions: a recurrent state only with the position that it is behind. Cost: one copy.
 */
export function sliceState(state: Uint8Array, range: Range, shape: StateShape): Uint8Array {
  const pieces = readPieces(state, shape);
  if (pieces === undefined) throw new Error('These bytes are no state of a sequence');
  return Buffer.concat(
    pieces.flatMap(({ bytes, sections }) => {
      const kept = sections.map((section) => cellsIn(bytes, section, range));
      const isEmpty = !shape.isRecurrent && kept.every(({ length }) => length === 0);
      return isEmpty
        ? []
        : [
            bytes.subarray(0, HEAD_BYTES),
            ...sections.flatMap((each, index) => sliceSection(bytes, each, kept[index]!)),
          ];
    }),
  );
}

function cellsIn(bytes: Uint8Array, section: Section, { from, to }: Range): number[] {
  return positions(bytes, section).flatMap((position, cell) => (position >= from && position < to ? [cell] : []));
}

function positions(bytes: Uint8Array, { start, kind, cells }: Section): number[] {
  const view = viewOf(bytes);
  return Array.from({ length: cells }, (_, cell) =>
    view.getInt32(start + kind.headBytes + cell * kind.cellBytes, true),
  );
}

/** A section with some of its cells. */
function sliceSection(
  bytes: Uint8Array,
  { start, kind, cells, tables }: Section,
  kept: readonly number[],
): Uint8Array[] {
  const { headBytes, cellBytes, tablesPerLayer } = kind;
  const cellsAt = start + headBytes;
  const head = Uint8Array.from(bytes.subarray(start, cellsAt));
  viewOf(head).setUint32(headBytes - 4, kept.length, true);
  if (kept.length === 0 && tablesPerLayer !== undefined) return [head];
  const layersAt = cellsAt + cells * cellBytes;
  return [
    head,
    gather(bytes, { start: cellsAt, bytes: cellBytes }, kept),
    bytes.subarray(layersAt, layersAt + LAYERS_HEAD_BYTES),
    ...tables.flatMap((table) => [
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

/** @returns `undefined` when the bytes are no such state. */
function readPieces(state: Uint8Array, shape: StateShape): Piece[] | undefined {
  for (const kind of BUFFERS) {
    const pieces: Piece[] = [];
    let rest = state;
    for (let piece = readPiece(rest, kind, shape); piece !== undefined; piece = readPiece(rest, kind, shape)) {
      pieces.push(piece);
      rest = rest.subarray(piece.bytes.length);
    }
    if (pieces.length > 0 && rest.length === 0) return pieces;
  }
  return undefined;
}

/** The piece that the bytes begin with. */
function readPiece(bytes: Uint8Array, kind: Kind, { buffers, isRecurrent }: StateShape): Piece | undefined {
  const view = viewOf(bytes);
  if (bytes.length < HEAD_BYTES || view.getUint32(0, true) !== MAGIC) return undefined;
  const sections: Section[] = [];
  let end = HEAD_BYTES;
  for (const each of [...Array.from({ length: buffers }, () => kind), ...(isRecurrent ? [RECURRENT] : [])]) {
    const section = readSection(view, end, each);
    if (section === undefined) return undefined;
    sections.push(section);
    end = section.end;
  }
  return { bytes: bytes.subarray(0, end), sections };
}

function readSection(view: DataView, start: number, kind: Kind): Section | undefined {
  const { headBytes, cellBytes, tablesPerLayer } = kind;
  const cellsAt = start + headBytes;
  if (cellsAt > view.byteLength) return undefined;
  const cells = view.getUint32(cellsAt - 4, true);
  if (cells === 0 && tablesPerLayer !== undefined) return { kind, start, cells, tables: [], end: cellsAt };
  const layersAt = cellsAt + cells * cellBytes;
  if (layersAt + LAYERS_HEAD_BYTES > view.byteLength || view.getUint32(layersAt, true) !== 0) return undefined;
  const layers = view.getUint32(layersAt + 4, true);
  const most = tablesPerLayer === undefined ? Number.POSITIVE_INFINITY : layers * tablesPerLayer;
  const tables: { start: number; bytes: number }[] = [];
  let end = layersAt + LAYERS_HEAD_BYTES;
  while (tables.length < most && end + ROWS_HEAD_BYTES <= view.byteLength) {
    const bytes = Number(view.getBigUint64(end + 4, true));
    tables.push({ start: end + ROWS_HEAD_BYTES, bytes });
    end += ROWS_HEAD_BYTES + bytes * cells;
  }
  const isWhole = end <= view.byteLength && (tablesPerLayer === undefined || tables.length === most);
  return isWhole ? { kind, start, cells, tables, end } : undefined;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
