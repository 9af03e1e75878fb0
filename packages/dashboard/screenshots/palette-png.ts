import { crc32, deflateSync, inflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const PALETTE = 256;
/** Bits of a colour by which rare colours are counted together. */
const COARSE = 0xf8f8f8;

/** Writes a screenshot (8 bits, without interlacing) with a palette of 256 colours: a third of the bytes. O(pixels). */
export function withPalette(png: Buffer): Buffer {
  const { width, height, colours } = decode(png);
  const uses = new Map<number, number>();
  for (const colour of colours) uses.set(colour, (uses.get(colour) ?? 0) + 1);
  const palette = paletteOf(uses);
  const placeOf = new Map<number, number>();
  const rows = Buffer.alloc(height * (width + 1));
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const colour = colours[y * width + x]!;
      const place = placeOf.get(colour) ?? nearest(palette, colour);
      placeOf.set(colour, place);
      rows[y * (width + 1) + 1 + x] = place;
    }
  }
  const header = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 3, 0, 0, 0]);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  const entries = Buffer.from(palette.flatMap((colour) => [colour >>> 16, (colour >>> 8) & 255, colour & 255]));
  const data = deflateSync(rows, { level: 9, memLevel: 9 });
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', header),
    chunk('PLTE', entries),
    chunk('IDAT', data),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

/** The colours that are used most, then the most used of each coarse class. */
function paletteOf(uses: ReadonlyMap<number, number>): number[] {
  const byUse = [...uses].toSorted((a, b) => b[1] - a[1]).map(([colour]) => colour);
  if (byUse.length <= PALETTE) return byUse;
  const first = byUse.slice(0, PALETTE / 2);
  const classes = new Set(first.map((colour) => colour & COARSE));
  const others = byUse.filter((colour) => !classes.has(colour & COARSE) && classes.add(colour & COARSE));
  return [...first, ...others].slice(0, PALETTE);
}

function nearest(palette: readonly number[], colour: number): number {
  let best = 0;
  let least = Number.POSITIVE_INFINITY;
  for (const [place, entry] of palette.entries()) {
    const [red, green, blue] = [16, 8, 0].map((shift) => ((entry >>> shift) & 255) - ((colour >>> shift) & 255));
    const distance = red! ** 2 + green! ** 2 + blue! ** 2;
    if (distance >= least) continue;
    least = distance;
    best = place;
  }
  return best;
}

/** The pixels of an RGB or RGBA image, as numbers; transparency is left out. */
function decode(png: Buffer): { readonly width: number; readonly height: number; readonly colours: Int32Array } {
  const width = png.readUInt32BE(16);
  const height = png.readUInt32BE(20);
  const channels = png[25] === 6 ? 4 : 3;
  const parts: Buffer[] = [];
  for (let at = SIGNATURE.length; at < png.length; at += 12 + png.readUInt32BE(at)) {
    if (png.toString('latin1', at + 4, at + 8) === 'IDAT')
      parts.push(png.subarray(at + 8, at + 8 + png.readUInt32BE(at)));
  }
  const bytes = inflateSync(Buffer.concat(parts));
  const stride = width * channels;
  const colours = new Int32Array(width * height);
  let above = new Uint8Array(stride);
  for (let y = 0; y < height; y++) {
    const filter = bytes[y * (stride + 1)]!;
    const row = new Uint8Array(stride);
    for (let i = 0; i < stride; i++) {
      const left = i < channels ? 0 : row[i - channels]!;
      const corner = i < channels ? 0 : above[i - channels]!;
      row[i] = bytes[y * (stride + 1) + 1 + i]! + predicted(filter, left, above[i]!, corner);
    }
    for (let x = 0; x < width; x++) {
      const at = x * channels;
      colours[y * width + x] = (row[at]! << 16) | (row[at + 1]! << 8) | row[at + 2]!;
    }
    above = row;
  }
  return { width, height, colours };
}

/** The filters of the PNG specification, section 9. */
function predicted(filter: number, left: number, up: number, corner: number): number {
  if (filter === 0) return 0;
  if (filter === 1) return left;
  if (filter === 2) return up;
  if (filter === 3) return (left + up) >> 1;
  const guess = left + up - corner;
  const [toLeft, toUp, toCorner] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
  return toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner;
}

function chunk(type: string, data: Buffer): Buffer {
  const typed = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const whole = Buffer.alloc(typed.length + 8);
  whole.writeUInt32BE(data.length, 0);
  typed.copy(whole, 4);
  whole.writeUInt32BE(crc32(typed) >>> 0, typed.length + 4);
  return whole;
}
