import { Archive } from './archive.js';
import { BlockWriter, type ParsedDocument } from './document.js';
import { writeTable } from './write-table.js';
import { elementsOf, find, findAll, textOf, type XmlElement } from './xml.js';

/** Places of a slide that are the same on each: number, date, foot. */
const FURNITURE = new Set(['sldNum', 'dt', 'ftr', 'hdr']);

/** Reads a PowerPoint presentation: a section a slide, with its notes. Slides are its pages. */
export function parsePptx(bytes: Uint8Array): ParsedDocument {
  const archive = Archive.open(bytes);
  const main = 'ppt/presentation.xml';
  const relations = archive.relations(main);
  const writer = new BlockWriter();
  for (const [at, { attributes }] of findAll(archive.main(main), 'sldId').entries()) {
    const page = at + 1;
    const path = relations.get(attributes['r:id'] ?? '')?.path ?? '';
    const shapes = shapesOf(find(archive.xml(path), 'spTree'));
    const titles = shapes.filter((shape) => /title$/i.test(placeOf(shape)) && placeOf(shape) !== 'subTitle');
    const title = titles.map((shape) => linesOf(shape).join(' ')).join(' ');
    writer.heading(1, title.trim() === '' ? `slide ${page}` : title);
    for (const shape of shapes) {
      const table = find(shape, 'tbl');
      if (table !== undefined) {
        const rows = findAll(table, 'tr').map((row) => findAll(row, 'tc').map((cell) => linesOf(cell).join(' ')));
        writeTable(writer, rows, { page });
      } else if (!titles.includes(shape) && !FURNITURE.has(placeOf(shape))) {
        writer.block({ text: linesOf(shape).join('\n'), page });
      }
    }
    for (const { kind, path: target } of archive.relations(path).values()) {
      if (kind === 'diagramData') writer.block({ text: linesOf(archive.xml(target)).join('\n'), page });
      if (kind !== 'notesSlide') continue;
      const notes = shapesOf(find(archive.xml(target), 'spTree')).filter((shape) => placeOf(shape) === 'body');
      writer.block({ text: notes.flatMap(linesOf).join('\n'), page });
    }
  }
  return { ...archive.properties(), blocks: writer.finish(), unread: [] };
}

/** Shapes and tables, out of their groups. */
function shapesOf(element: XmlElement | undefined): XmlElement[] {
  return elementsOf(element).flatMap((child) => {
    if (child.name === 'sp' || child.name === 'graphicFrame') return [child];
    return child.name === 'Fallback' ? [] : shapesOf(child);
  });
}

function placeOf(shape: XmlElement): string {
  return find(elementsOf(shape)[0], 'ph')?.attributes['type'] ?? '';
}

/** The paragraphs of a shape. */
function linesOf(shape: XmlElement | undefined): string[] {
  return findAll(shape, 'p').flatMap((paragraph) => {
    const text = elementsOf(paragraph)
      .map((part) => (part.name === 'br' ? '\n' : textOf(find(part, 't'))))
      .join('')
      .trim();
    return text === '' ? [] : [text];
  });
}
