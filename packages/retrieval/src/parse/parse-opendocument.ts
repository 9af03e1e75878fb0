import { Archive, propertiesIn } from './archive.js';
import { BlockWriter, type ParsedDocument, unreadable } from './document.js';
import { raised } from './signs.js';
import { writeTable } from './write-table.js';
import { elementsOf, find, findAll, type XmlElement } from './xml.js';

/** Elements whose text is not shown. */
const SILENT = new Set([
  'annotation',
  'tracked-changes',
  'note-citation',
  'ruby-text',
  'forms',
  'desc',
  'sequence-decls',
]);
/** Times that one cell or row is repeated; more are the empty end of a sheet. */
const MAX_REPEATS = 1000;
const MAX_CELLS = 5_000_000;

/** Reads texts, sheets and presentations of OpenDocument. */
export function parseOpenDocument(bytes: Uint8Array): ParsedDocument {
  const archive = Archive.open(bytes);
  if (find(archive.xml('META-INF/manifest.xml'), 'encryption-data') !== undefined) throw unreadable('it is encrypted');
  const content = archive.main('content.xml');
  const writer = new BlockWriter();
  const superscripts = new Set(
    findAll(content, 'style').flatMap((style) =>
      /^super/.test(find(style, 'text-properties')?.attributes['text-position'] ?? '')
        ? [style.attributes['name'] ?? '']
        : [],
    ),
  );
  let cells = 0;
  const shown = (element: XmlElement): string => {
    let text = '';
    for (const child of element.children) {
      if (typeof child === 'string') text += child.replace(/\s+/g, ' ');
      else if (SILENT.has(child.name)) continue;
      else if (child.name === 's') text += ' '.repeat(Math.min(100, Number(child.attributes['c'] ?? 1) || 1));
      else if (child.name === 'tab') text += '\t';
      else if (child.name === 'line-break') text += '\n';
      else if (child.name === 'note') text += ` [${shown(child).trim()}]`;
      else if (child.name === 'span' && superscripts.has(child.attributes['style-name'] ?? ''))
        text += raised(shown(child));
      else text += (/^(?:p|h|list-item)$/.test(child.name) && text !== '' ? '\n' : '') + shown(child);
    }
    return text;
  };
  const items = (list: XmlElement, depth: number): string[] =>
    elementsOf(list).flatMap((item) => {
      const own = elementsOf(item).filter(({ name }) => name !== 'list');
      const text = own.map(shown).join('\n').trim();
      const inner = elementsOf(item).filter(({ name }) => name === 'list');
      return [
        ...(text === '' ? [] : [`${'  '.repeat(depth)}- ${text}`]),
        ...inner.flatMap((one) => items(one, depth + 1)),
      ];
    });
  const table = (element: XmlElement, page?: number): void => {
    const rows: string[][] = [];
    for (const row of findAll(element, 'table-row')) {
      const texts = elementsOf(row).flatMap((cell) => {
        const text = shown(cell);
        return Array<string>(text === '' ? Math.min(50, repeatsOf(cell, 'columns')) : repeatsOf(cell, 'columns')).fill(
          text,
        );
      });
      while (texts.at(-1) === '') texts.pop();
      if (texts.length === 0) continue;
      const count = repeatsOf(row, 'rows');
      cells += texts.length * count;
      if (cells > MAX_CELLS) throw unreadable(`its tables have more than ${MAX_CELLS.toLocaleString('en')} cells`);
      for (let at = 0; at < count; at++) rows.push(texts);
    }
    const headerRows = findAll(find(element, 'table-header-rows'), 'table-row').length;
    writeTable(writer, rows, { ...(headerRows > 0 && { headerRows }), ...(page !== undefined && { page }) });
  };
  const walk = (element: XmlElement, page?: number): void => {
    for (const child of elementsOf(element)) {
      const place = page === undefined ? {} : { page };
      if (SILENT.has(child.name)) continue;
      if (child.name === 'h') writer.heading(Number(child.attributes['outline-level'] ?? 1) || 1, shown(child));
      else if (child.name === 'p') writer.block({ text: shown(child).trim(), ...place });
      else if (child.name === 'list') writer.block({ text: items(child, 0).join('\n'), ...place });
      else if (child.name === 'table') table(child, page);
      else walk(child, page);
    }
  };
  const body = find(content, 'body');
  for (const sheet of findAll(find(body, 'spreadsheet'), 'table')) {
    writer.heading(1, sheet.attributes['name'] ?? '');
    table(sheet);
  }
  for (const [at, slide] of findAll(find(body, 'presentation'), 'page').entries()) {
    const isTitle = (frame: XmlElement) => frame.attributes['class'] === 'title';
    const frames = elementsOf(slide);
    const named = frames.filter(isTitle).map(shown).join(' ').trim();
    writer.heading(1, named === '' ? `slide ${at + 1}` : named);
    walk({ ...slide, children: frames.filter((frame) => !isTitle(frame)) }, at + 1);
  }
  const text = find(body, 'text');
  if (text !== undefined) walk(text);
  return { ...propertiesIn(archive.xml('meta.xml')), blocks: writer.finish(), unread: [] };
}

function repeatsOf({ attributes }: XmlElement, kind: 'columns' | 'rows'): number {
  return Math.max(1, Math.min(MAX_REPEATS, Number(attributes[`number-${kind}-repeated`] ?? 1) || 1));
}
