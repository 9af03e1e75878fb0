import { raised } from './signs.js';

/** A run of text on a page, as pdf.js gives it. */
export interface PdfItem {
  readonly str?: string;
  /** Of letters from right to left, `rtl`. */
  readonly dir?: string;
  readonly width?: number;
  /** Four numbers of the direction and size, then the position. */
  readonly transform?: readonly number[];
}

/** A line of a page in reading order. Lengths are in points, `y` upwards. */
export interface PdfLine {
  readonly text: string;
  readonly left: number;
  readonly right: number;
  readonly y: number;
  readonly size: number;
  /** The table whose row it is. */
  readonly table?: number;
  /** Whether it is an entry of a table of contents, which never goes on in the next line. */
  readonly isEntry?: boolean;
}

/** Text of one line without a wide gap. */
interface Segment {
  /** As they were drawn. */
  readonly parts: Part[];
  /** Known when all parts are. */
  text: string;
  left: number;
  right: number;
  y: number;
  size: number;
  /** In radians: text of another direction never shares a line. */
  readonly angle: number;
}

/** Text of one direction, or the space between two. */
interface Part {
  text: string;
  readonly left: number;
  readonly isRightToLeft: boolean;
}

/** Segments side by side, from left to right. */
type Row = readonly Segment[];

/** Extents of columns, from left to right. */
type Extents = readonly { left: number; right: number }[];

/** Wider than a space between words, in font sizes: what stands behind it may be another column. */
const COLUMN_GAP = 0.9;

/** What begins the item of a list. */
const LIST_MARK = /^(?:[•‣◦▪■●○*–—-]|\(?[\p{L}\d]{1,3}[.)])$/u;
/** Lines of one cell of a table. */
const MAX_CELL_LINES = 8;
const SECTION_NUMBER = /^\d+(?:\.\d+)+$/;
/** Scripts that are written without spaces, and their punctuation. */
const CJK = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303f\uff00-\uffef\u30fb\u30fc]/u;
const HYPHEN_AT_END = /(?<=\p{L})[-\u2010\u00ad]$/u;
/** Words before which a hyphen stands for a word left out. */
const SUSPENDED = /^(?:und|oder|bzw|sowie|and|or|to|en|of|og|och|eller|et|ou|y|e|o)\b/u;
const LEADERS_AT_END = /(?:[.·․…‥]\s*){4}$/u;
const LEADERS = /[\s.·․…‥]*(?:[.·․…‥]\s*){4}[\s.·․…‥]*(?=\S{1,8}$|$)/u;

/**
 * The lines of a page in reading order: in the order in which they were drawn, but columns that were drawn row by row
 * one after the other, and rows of a table with their cells parted. O(items).
 */
export function linesOfPage(items: readonly PdfItem[]): PdfLine[] {
  const rows = rowsOf(segmentsOf(items));
  const lines: PdfLine[] = [];
  for (let first = 0; first < rows.length; ) {
    const columns = structureAt(rows, first, true);
    if (columns !== undefined && isProse(columns.rows, columns.extents)) {
      for (const extent of columns.extents) {
        for (const row of columns.rows) lines.push(...row.filter((segment) => overlaps(segment, extent)).map(lineOf));
      }
      first += columns.rows.length;
      continue;
    }
    const table = structureAt(rows, first, false);
    if (table !== undefined) lines.push(...linesOfTable(table.rows, table.extents, first));
    else lines.push(lineOfRow(rows[first]!));
    first += table?.rows.length ?? 1;
  }
  return lines.filter(({ text }) => text !== '');
}

function segmentsOf(items: readonly PdfItem[]): Segment[] {
  const segments: Segment[] = [];
  let open: Segment | undefined;
  let hasSpace = false;
  for (const { str = '', dir, width = 0, transform = [1, 0, 0, 1, 0, 0] } of items) {
    if (str.trim() === '') {
      hasSpace ||= str !== '';
      continue;
    }
    const [a, b, c, d, x, y] = transform as [number, number, number, number, number, number];
    const angle = Math.round(Math.atan2(b, a) * 100) / 100;
    const along = x * Math.cos(angle) + y * Math.sin(angle);
    const next: Segment = {
      parts: [{ text: str, left: along, isRightToLeft: dir === 'rtl' }],
      text: str,
      left: along,
      right: along + width,
      y: y * Math.cos(angle) - x * Math.sin(angle),
      size: Math.hypot(c, d) || 1,
      angle,
    };
    if (open !== undefined && isRepeated(open, next)) continue;
    if (open === undefined || !continues(open, next)) {
      segments.push(next);
      open = next;
    } else append(open, next, hasSpace);
    hasSpace = false;
  }
  for (const segment of segments) {
    if (segment.parts.some(({ isRightToLeft }) => isRightToLeft)) segment.text = inReadingOrder(segment.parts);
  }
  return segments;
}

/** The parts of a line as they are read: Arabic and Hebrew from right to left, what stands within them as it is. */
function inReadingOrder(parts: readonly Part[]): string {
  const sorted = [...parts].sort((a, b) => a.left - b.left);
  const lengthOf = (isRightToLeft: boolean) =>
    sorted.reduce((sum, part) => sum + (part.isRightToLeft === isRightToLeft ? part.text.trim().length : 0), 0);
  const isRightToLeft = lengthOf(true) > lengthOf(false);
  const runs: Part[][] = [];
  for (const part of sorted) {
    // Spaces and points go with the line.
    const isOther = part.isRightToLeft !== isRightToLeft && /[\p{L}\p{N}]/u.test(part.text);
    const [before, last] = [runs.at(-2), runs.at(-1)];
    const isOtherRun = (run: Part[] | undefined) => run !== undefined && run[0]!.isRightToLeft !== isRightToLeft;
    if (isOther && isOtherRun(last)) last!.push(part);
    else if (isOther && isOtherRun(before) && last![0]!.text.trim() === '') before!.push(...runs.pop()!, part);
    else runs.push([isOther ? part : { ...part, isRightToLeft }]);
  }
  const read = (run: Part[]) => (run[0]!.isRightToLeft ? run.reverse() : run);
  return (isRightToLeft ? runs.reverse() : runs)
    .flatMap(read)
    .map(({ text }) => text)
    .join('')
    .replace(/[\ufb50-\ufdff\ufe70-\ufefc]+/g, (forms) => forms.normalize('NFKC'));
}

/** Whether text was drawn twice, a little apart, to look bold. */
function isRepeated(open: Segment, next: Segment): boolean {
  const isSamePlace = Math.abs(open.right - next.right) < next.size / 5 && Math.abs(open.y - next.y) < next.size / 5;
  return isSamePlace && next.text.length > 1 && open.text.endsWith(next.text);
}

function continues(open: Segment, next: Segment): boolean {
  if (open.angle !== next.angle) return false;
  const size = Math.max(open.size, next.size);
  const isSmall = Math.min(open.size, next.size) < 0.85 * size;
  if (Math.abs(next.y - open.y) > (isSmall ? 0.7 : 0.25) * size) return false;
  const gap = next.left - open.right;
  const text = open.text.trim();
  const isNumbered = SECTION_NUMBER.test(text) && /^\p{L}/u.test(next.text);
  const isWide = isNumbered || LIST_MARK.test(text) || LEADERS_AT_END.test(text);
  const isRightToLeft = next.parts[0]!.isRightToLeft || open.parts.at(-1)!.isRightToLeft;
  const gapLeft = open.left - next.right;
  if (isRightToLeft && gapLeft > -0.6 * size && gapLeft < COLUMN_GAP * size) return true;
  return gap > -0.6 * size && gap < (isWide ? 4 : COLUMN_GAP) * size;
}

function append(open: Segment, next: Segment, hasSpace: boolean): void {
  let { text } = next;
  if (next.size < 0.85 * open.size && next.y - open.y > 0.2 * open.size) text = raised(text);
  else if (open.size < 0.85 * next.size) {
    // A mark of a footnote stands before the text.
    if (open.y - next.y > 0.2 * next.size) open.text = raised(open.text);
    open.size = next.size;
    open.y = next.y;
  }
  const isToTheLeft = next.right <= open.left + 0.6 * next.size && next.left < open.left;
  const gap = isToTheLeft ? open.left - next.right : next.left - open.right;
  const isJoined = CJK.test(open.text.slice(-1)) && CJK.test(text[0]!) && gap < next.size / 2;
  const isApart = (hasSpace || gap > 0.3 * open.size) && !isJoined && !open.text.endsWith(' ');
  const [part] = next.parts as [Part];
  const space = { ...part, text: ' ', left: isToTheLeft ? next.right : next.left - 0.01 };
  open.parts.push(...(isApart ? [space] : []), { ...part, text });
  open.text += isApart ? ` ${text}` : text;
  open.left = Math.min(open.left, next.left);
  open.right = Math.max(open.right, next.right);
}

function rowsOf(segments: readonly Segment[]): Row[] {
  const rows: Segment[][] = [];
  let isCell = false;
  for (const [at, segment] of segments.entries()) {
    const { angle, left, y, size } = segment;
    const isBeside = (row: Row | undefined) => {
      const last = row?.at(-1);
      if (last === undefined || angle !== last.angle || left <= last.right) return false;
      return Math.abs(y - last.y) < 0.7 * Math.max(size, last.size);
    };
    // The lines of a cell may be drawn before those of the next one, which then begins higher, beside its first line.
    const above = rows.slice(-MAX_CELL_LINES).findLast(isBeside);
    if (at > 0 && y > segments[at - 1]!.y + 0.7 * size) isCell = above !== undefined;
    if (above !== undefined && (isCell || above === rows.at(-1))) above.push(segment);
    else rows.push([segment]);
  }
  return rows;
}

/**
 * Rows from `first` on that share columns: no segment crosses the gaps between them. `isLoose`: a row in one column
 * may have another size, as headings have.
 */
function structureAt(
  rows: readonly Row[],
  first: number,
  isLoose: boolean,
): { readonly rows: readonly Row[]; readonly extents: Extents } | undefined {
  if (rows[first]!.length < 2) return undefined;
  let extents = extentsOf(rows[first]!, []);
  let end = first + 1;
  let full = 1;
  let lastFull = end;
  for (; end < rows.length; end++) {
    const row = rows[end]!;
    const before = rows[end - 1]!.at(-1)!;
    const { y, size, angle } = row[0]!;
    const gap = before.y - y;
    if (gap < -0.7 * size || gap > 4 * Math.max(size, before.size) || angle !== before.angle) break;
    const merged = extentsOf(row, extents);
    if (merged.length < extents.length) break;
    if (row.length === 1) {
      const isAlike = Math.abs(size - before.size) < 0.15 * size && gap < 2.2 * size;
      if (merged.length > extents.length || !(isAlike || isLoose)) break;
    } else {
      full++;
      lastFull = end + 1;
    }
    extents = merged;
  }
  // Short lines behind the last row in the first column begin what follows a table.
  if (!isLoose) while (end > lastFull && overlaps(rows[end - 1]![0]!, extents[0]!)) end--;
  return full < 2 ? undefined : { rows: rows.slice(first, end), extents };
}

/** The columns that remain when a row joins them. */
function extentsOf(row: Row, known: Extents): Extents {
  const all = [...known, ...row].map(({ left, right }) => ({ left, right })).sort((a, b) => a.left - b.left);
  const merged: { left: number; right: number }[] = [];
  for (const extent of all) {
    const last = merged.at(-1);
    if (last !== undefined && extent.left < last.right + row[0]!.size / 5) {
      last.right = Math.max(last.right, extent.right);
    } else merged.push(extent);
  }
  return merged;
}

function overlaps(segment: Segment, { left, right }: Extents[number]): boolean {
  return segment.left < right && segment.right > left;
}

/** Whether rows are lines of columns, which fill them, and not cells of a table. */
function isProse(rows: readonly Row[], extents: Extents): boolean {
  if (extents.length > 4 || rows.length < 3) return false;
  return extents.every((extent) => {
    const inside = rows.flat().filter((segment) => overlaps(segment, extent));
    const width = extent.right - extent.left;
    const filled = inside.filter(({ left, right }) => right - left > 0.7 * width).length;
    return width > 8 * inside[0]!.size && inside.length >= 3 && filled >= inside.length / 2;
  });
}

/**
 * Rows with `|` between the cells. A row continues the cells of the row before where its first cell is empty, or where
 * it stands closer than other rows do.
 */
function linesOfTable(rows: readonly Row[], extents: Extents, table: number): PdfLine[] {
  const lines: { cells: string[]; row: Row }[] = [];
  const gapOf = (at: number) => (at === 0 ? 0 : rows[at - 1]!.at(-1)!.y - rows[at]![0]!.y);
  const gaps = [...rows.keys()].filter((at) => at > 0 && rows[at]!.length > 1).map(gapOf);
  const usual = gaps.sort((a, b) => a - b)[gaps.length >> 1]!;
  for (const [at, row] of rows.entries()) {
    const cells = extents.map((extent) =>
      row
        .filter((segment) => overlaps(segment, extent))
        .map(({ text }) => withoutLeaders(text))
        .join(' '),
    );
    const last = lines.at(-1);
    const isTight = gapOf(at) < 1.6 * row[0]!.size && (cells[0] === '' || gapOf(at) < 0.8 * usual);
    if (last !== undefined && isTight) {
      last.cells = last.cells.map((cell, at) => (cells[at] === '' ? cell : joined(cell, cells[at]!, false)));
    } else lines.push({ cells, row });
  }
  return lines.map(({ cells, row }) => ({ ...lineOfRow(row), text: cells.join(' | ').trim(), table }));
}

function lineOfRow(row: Row): PdfLine {
  return { ...lineOf({ ...row[0]!, text: row.map(({ text }) => text.trim()).join(' ') }), right: row.at(-1)!.right };
}

function lineOf({ text, left, right, y, size }: Segment): PdfLine {
  const shown = withoutLeaders(text);
  return { text: shown, left, right, y, size, isEntry: shown !== text.trim() };
}

/** The dots between the title and the page of an entry are left out. */
function withoutLeaders(text: string): string {
  return text.trim().replace(LEADERS, ' ').trim();
}

/** Lines that belong together, in a paragraph or table. */
export function paragraphsOf(lines: readonly PdfLine[]): PdfLine[][] {
  const gaps = lines.flatMap(({ y, size }, at) => {
    const gap = (lines[at - 1]?.y ?? 0) - y;
    return at > 0 && gap > 0 && gap < 4 * size ? [gap] : [];
  });
  const usual = gaps.sort((a, b) => a - b)[(gaps.length - 1) >> 1] ?? 0;
  const paragraphs: PdfLine[][] = [];
  for (const [at, line] of lines.entries()) {
    const before = lines[at - 1];
    if (before === undefined || isApart(before, line, usual)) paragraphs.push([line]);
    else paragraphs.at(-1)!.push(line);
  }
  return paragraphs;
}

function isApart(before: PdfLine, line: PdfLine, usual: number): boolean {
  if (before.table !== line.table) return true;
  if (line.table !== undefined) return false;
  const size = Math.max(before.size, line.size);
  const gap = before.y - line.y;
  if (gap < 0) return !goesOn(before.text, line.text);
  return gap > Math.max(1.8 * size, 1.3 * usual) || Math.abs(before.size - line.size) > 0.15 * size;
}

/** Whether a text that a column or page ends in the middle of a sentence goes on in another one. */
export function goesOn(text: string, next: string): boolean {
  return HYPHEN_AT_END.test(text) ? /^\p{L}/u.test(next) : /[\p{Ll},;]$/u.test(text) && /^\p{Ll}/u.test(next);
}

/** The text of lines that belong together. A line that would have had room for the next word ends with its line. */
export function textOfLines(lines: readonly PdfLine[]): string {
  const edge = Math.max(...lines.map(({ right }) => right));
  const margin = Math.min(...lines.map(({ left }) => left));
  let text = '';
  for (const [at, line] of lines.entries()) {
    const before = lines[at - 1];
    const word = /^\S+/.exec(line.text)?.[0] ?? '';
    const width = CJK.test(word) ? 2 * line.size : ((line.right - line.left) * (word.length + 1)) / line.text.length;
    // Ragged lines of a sentence end up to a fifth before the others.
    const room = before !== undefined && goesOn(before.text, line.text) ? Math.max(width, (edge - margin) / 5) : width;
    if (before === undefined) text = line.text;
    else text = joined(text, line.text, isEnd(before, line) || before.right + room < edge);
  }
  return text;
}

function isEnd(before: PdfLine, line: PdfLine): boolean {
  return line.table !== undefined || before.isEntry === true || LIST_MARK.test(line.text.split(' ', 1)[0]!);
}

/** Two lines as one text: words that a line end has cut are joined, Chinese and Japanese have no space between. */
export function joined(text: string, next: string, isLineKept: boolean): string {
  if (HYPHEN_AT_END.test(text) && /^\p{L}/u.test(next)) {
    if (text.endsWith('\u00ad')) return text.slice(0, -1) + next;
    if (!/^\p{Ll}/u.test(next)) return text + next;
    return SUSPENDED.test(next) ? `${text} ${next}` : text.slice(0, -1) + next;
  }
  if (isLineKept) return `${text}\n${next}`;
  return CJK.test(text.slice(-1)) && CJK.test(next[0]!) ? text + next : `${text} ${next}`;
}
