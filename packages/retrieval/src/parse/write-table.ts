import type { BlockWriter } from './document.js';

/** Writes rows of cells as a block whose header each part repeats. A table of one column is text. */
export function writeTable(
  writer: BlockWriter,
  rows: readonly (readonly string[])[],
  { headerRows = 1, page }: { readonly headerRows?: number; readonly page?: number } = {},
): void {
  const lines = rows.flatMap((row) => {
    const cells = row.map((cell) => cell.replace(/\s+/g, ' ').trim());
    while (cells.at(-1) === '') cells.pop();
    return cells.length === 0 ? [] : [cells.join(' | ')];
  });
  const isTable = lines.length > 1 && rows.some((row) => row.length > 1);
  const header = isTable ? lines.slice(0, Math.min(headerRows, lines.length - 1)) : [];
  writer.block({
    ...(header.length > 0 && { header: header.join('\n') }),
    text: lines.slice(header.length).join('\n'),
    ...(page !== undefined && { page }),
  });
}
