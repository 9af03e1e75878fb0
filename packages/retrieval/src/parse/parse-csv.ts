import { DOCUMENT_FIELDS } from '@warmpath/core/internal';
import papaparse from 'papaparse';
import { BlockWriter, type ParsedDocument } from './document.js';
import { writeTable } from './write-table.js';

/** Rows of a text with commas, semicolons, tabs or bars between its cells. */
export function rowsOf(text: string): string[][] {
  return papaparse.parse<string[]>(text.replace(/^\ufeff/, ''), { skipEmptyLines: 'greedy' }).data;
}

/** Reads a table, with its first row as the header. */
export function parseCsv(text: string): ParsedDocument {
  const writer = new BlockWriter();
  writeTable(writer, rowsOf(text));
  return { blocks: writer.finish(), unread: [] };
}

/** A number as people write it; an id with zeros before it is none. */
const NUMBER = /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?$/;

/** Rows as objects with the names of the header, without empty cells. Numbers are such where they are metadata. */
export function recordsOfRows([header = [], ...rows]: readonly string[][]): Record<string, unknown>[] {
  return rows.map((row) =>
    Object.fromEntries(
      header.flatMap((name, at) => {
        const cell = row[at] ?? '';
        if (name.trim() === '' || cell === '') return [];
        const isNumber = NUMBER.test(cell) && !DOCUMENT_FIELDS.has(name.trim());
        return [[name.trim(), isNumber ? Number(cell) : cell]];
      }),
    ),
  );
}
