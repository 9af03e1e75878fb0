/** By a value's first byte: bytes of its length field. */
const LENGTH_BYTES = byFirstByte([
  [1, 0xc4, 0xc7, 0xd9],
  [2, 0xc5, 0xc8, 0xda, 0xdc, 0xde],
  [4, 0xc6, 0xc9, 0xdb, 0xdd, 0xdf],
]);
/** By a value's first byte: bytes of its content, without the length field. Extensions have a byte for their type. */
const VALUE_BYTES = byFirstByte([
  [1, 0xcc, 0xd0, 0xc7, 0xc8, 0xc9],
  [2, 0xcd, 0xd1, 0xd4],
  [3, 0xd5],
  [4, 0xca, 0xce, 0xd2],
  [5, 0xd6],
  [8, 0xcb, 0xcf, 0xd3],
  [9, 0xd7],
  [17, 0xd8],
  ...Array.from({ length: 32 }, (_, length) => [length, 0xa0 + length]),
]);

/**
 * Whether the lengths in MessagePack bytes are possible: each element of an array or map takes at least one byte. A
 * decoder allocates an array before it reads it, so false lengths could exhaust the memory. O(bytes).
 */
export function hasTrueLengths(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  /** Values that all open arrays and maps still need. */
  let open = 1;
  while (open > 0) {
    if (open > bytes.length - at) return false;
    const kind = bytes[at++]!;
    open--;
    const lengthBytes = LENGTH_BYTES[kind]!;
    if (at + lengthBytes > bytes.length) return false;
    const length = lengthBytes === 0 ? 0 : lengthAt(view, at, lengthBytes);
    at += lengthBytes + VALUE_BYTES[kind]!;
    if (kind >= 0x80 && kind <= 0x8f) open += 2 * (kind & 0x0f);
    else if (kind >= 0x90 && kind <= 0x9f) open += kind & 0x0f;
    else if (kind === 0xdc || kind === 0xdd) open += length;
    else if (kind === 0xde || kind === 0xdf) open += 2 * length;
    else at += length;
  }
  return at <= bytes.length;
}

function lengthAt(view: DataView, at: number, bytes: number): number {
  if (bytes === 1) return view.getUint8(at);
  return bytes === 2 ? view.getUint16(at) : view.getUint32(at);
}

/** A table from first bytes to numbers. */
function byFirstByte(rows: readonly (readonly number[])[]): Uint8Array {
  const table = new Uint8Array(256);
  for (const [number, ...kinds] of rows) for (const kind of kinds) table[kind] = number!;
  return table;
}
