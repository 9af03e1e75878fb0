import { Archive } from './archive.js';
import { BlockWriter, type ParsedDocument, unreadable } from './document.js';
import { writeTable } from './write-table.js';
import { elementsOf, find, findAll, textOf, type XmlElement } from './xml.js';

const MAX_CELLS = 5_000_000;
const DAY_MS = 86_400_000;
/** Numbers of the formats that Excel has built in for dates and times. */
const DATE_FORMATS = new Set([14, 15, 16, 17, 18, 19, 20, 21, 22, 45, 46, 47]);

/** Reads an Excel workbook: each sheet a table under its name. */
export function parseXlsx(bytes: Uint8Array): ParsedDocument {
  const archive = Archive.open(bytes);
  const main = 'xl/workbook.xml';
  const workbook = archive.main(main);
  const relations = archive.relations(main);
  const shared = findAll(archive.xml('xl/sharedStrings.xml'), 'si').map(stringOf);
  const isDate = dateStyles(archive.xml('xl/styles.xml'));
  const firstDay = /^(?:1|true)$/.test(find(workbook, 'workbookPr')?.attributes['date1904'] ?? '') ? 24_107 : 25_569;
  const shownValue = (cell: XmlElement): string => {
    const value = textOf(elementsOf(cell).find(({ name }) => name === 'v'));
    const type = cell.attributes['t'] ?? 'n';
    if (type === 's') return shared[Number(value)] ?? '';
    if (type === 'inlineStr') return stringOf(cell);
    if (type === 'b') return value === '1' ? 'TRUE' : 'FALSE';
    if (type !== 'n' || value === '' || !Number.isFinite(Number(value))) return value;
    if (!isDate[Number(cell.attributes['s'] ?? 0)]) return String(Number(Number(value).toPrecision(15)));
    return dateOf(Number(value), firstDay);
  };
  const writer = new BlockWriter();
  let cells = 0;
  for (const { attributes } of findAll(workbook, 'sheet')) {
    const rows: Map<number, string>[] = [];
    archive.xml(relations.get(attributes['r:id'] ?? '')?.path ?? '', (element) => {
      if (element.name !== 'row') return false;
      const values = new Map<number, string>();
      let column = -1;
      for (const cell of elementsOf(element)) {
        column = columnOf(cell.attributes['r']) ?? column + 1;
        const value = shownValue(cell);
        if (value.trim() !== '') values.set(column, value);
      }
      return rows.push(values) > 0;
    });
    const columns = [...new Set(rows.flatMap((row) => [...row.keys()]))].sort((a, b) => a - b);
    cells += columns.length * rows.length;
    if (cells > MAX_CELLS) throw unreadable(`its sheets have more than ${MAX_CELLS.toLocaleString('en')} cells`);
    writer.heading(1, attributes['name'] ?? '');
    writeTable(
      writer,
      rows.map((row) => columns.map((column) => row.get(column) ?? '')),
    );
  }
  return { ...archive.properties(), blocks: writer.finish(), unread: [] };
}

/** Without the readings of characters. */
function stringOf(element: XmlElement): string {
  return elementsOf(element)
    .filter(({ name }) => name !== 'rPh')
    .map((child) => (child.name === 't' ? textOf(child) : stringOf(child)))
    .join('');
}

/** `C7` is in the third column. */
function columnOf(place: string | undefined): number | undefined {
  const letters = /^[A-Z]{1,3}/.exec(place ?? '')?.[0];
  return letters === undefined
    ? undefined
    : Array.from(letters).reduce((sum, letter) => 26 * sum + letter.charCodeAt(0) - 64, 0) - 1;
}

/** By number of the style, whether it shows a date. */
function dateStyles(styles: XmlElement | undefined): boolean[] {
  const custom = new Map(
    findAll(styles, 'numFmt').map(({ attributes }) => [
      Number(attributes['numFmtId']),
      /[ymdhs]/i.test((attributes['formatCode'] ?? '').replace(/"[^"]*"|\[[^\]]*\]|\\./g, '')),
    ]),
  );
  return findAll(find(styles, 'cellXfs'), 'xf').map(({ attributes }) => {
    const format = Number(attributes['numFmtId'] ?? 0);
    return custom.get(format) ?? DATE_FORMATS.has(format);
  });
}

function dateOf(days: number, firstDay: number): string {
  const date = new Date(Math.round((days - firstDay) * DAY_MS));
  if (Number.isNaN(date.getTime())) return String(days);
  const [day, time] = date.toISOString().split('T') as [string, string];
  if (Number.isInteger(days)) return day;
  return days < 1 ? time.slice(0, 8) : `${day} ${time.slice(0, 8)}`;
}
