/** Tables of figures in pages of the documentation: between the marks `<!-- figures: name -->` and `<!-- end -->`. */

/** The page with what stands between the marks replaced by these tables, Markdown by name. */
export function withTables(page, tables) {
  return Object.entries(tables).reduce((text, [name, markdown]) => {
    const marks = new RegExp(`(<!-- figures: ${name} -->)[^]*?(<!-- end -->)`);
    if (!marks.test(text)) throw new Error(`the page has no marks for the table "${name}"`);
    return text.replace(marks, (_, start, end) => `${start}\n\n${markdown}\n\n${end}`);
  }, page);
}

export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** A mean with its standard error, as plain numbers that JSON keeps as they are. */
export function rounded({ mean, se }) {
  return { mean: Number(mean.toFixed(6)), se: Number(se.toFixed(6)) };
}

export function table(header, rows) {
  const cells = [header, ...rows];
  const widths = header.map((_, column) => Math.max(3, ...cells.map((row) => row[column].length)));
  const line = (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column])).join(' | ')} |`;
  return [line(header), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...rows.map(line)].join('\n');
}
