// The little Markdown that the reference pages are made of.

/** What stands at the top of every generated page. */
export function page(title, introduction, sections) {
  return `${[`# ${title}`, '<!-- Written by `npm run docs:generate`. Do not edit. -->', introduction, ...sections].join(
    '\n\n',
  )}\n`;
}

/** A table; a bar inside a cell is escaped. */
export function table(head, rows) {
  const line = (cells) => `| ${cells.map((cell) => String(cell).replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

/** Text as code, empty for nothing. */
export function code(text) {
  return text === undefined || text === '' ? '' : `\`${text}\``;
}
