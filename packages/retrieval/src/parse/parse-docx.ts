import { Archive } from './archive.js';
import { BlockWriter, type ParsedDocument } from './document.js';
import { raised } from './signs.js';
import { writeTable } from './write-table.js';
import { elementsOf, find, findAll, textOf, type XmlElement } from './xml.js';

/** Elements whose text is not shown: deleted, codes of fields, doubled for older readers, readings of characters. */
const SILENT = new Set(['del', 'moveFrom', 'delText', 'instrText', 'Fallback', 'pPr', 'rPr', 'rt']);
const SIGNS: Readonly<Record<string, string>> = { tab: '\t', br: '\n', cr: '\n', noBreakHyphen: '-' };

/** What a style of paragraphs says. */
interface Style {
  readonly level?: number;
  readonly isTitle?: boolean;
  readonly isList?: boolean;
}

/** Reads a Word document: headings by their styles, lists, tables, notes where they are referred to. */
export function parseDocx(bytes: Uint8Array): ParsedDocument {
  const archive = Archive.open(bytes);
  const path = [...archive.relations('').values()].find(({ kind }) => kind === 'officeDocument')?.path;
  const main = path ?? 'word/document.xml';
  const body = find(archive.main(main), 'body');
  const folder = main.slice(0, main.lastIndexOf('/') + 1);
  const styles = stylesOf(archive.xml(`${folder}styles.xml`));
  const notes = new Map(
    ['footnote', 'endnote'].flatMap((kind) =>
      findAll(archive.xml(`${folder}${kind}s.xml`), kind).map((note) => [
        `${kind}Reference ${note.attributes['id']}`,
        note,
      ]),
    ),
  );
  const properties = archive.properties();
  const writer = new BlockWriter();
  let items: string[] = [];
  const closeList = () => {
    writer.block({ text: items.join('\n') });
    items = [];
  };
  const walk = (element: XmlElement): void => {
    for (const child of elementsOf(element)) {
      if (SILENT.has(child.name)) continue;
      if (child.name === 'p') paragraph(child);
      else if (child.name === 'tbl') {
        closeList();
        table(child);
      } else walk(child);
    }
  };
  const paragraph = (element: XmlElement): void => {
    const settings = elementsOf(element).find(({ name }) => name === 'pPr');
    const style = styles.get(settingOf(settings, 'pStyle') ?? '') ?? {};
    const outline = settingOf(settings, 'outlineLvl');
    const level = outline === undefined ? style.level : levelOf(outline);
    const text = shownText(element, notes)
      .trim()
      .replace(/\n{2,}/g, '\n');
    if (text === '') return;
    if (style.isList || find(settings, 'numPr') !== undefined) {
      if (level === undefined) {
        items.push(`${'  '.repeat(Math.min(8, Number(settingOf(settings, 'ilvl') ?? 0) || 0))}- ${text}`);
        return;
      }
    }
    closeList();
    if (style.isTitle && writer.blocks.length === 0) properties.title = text;
    else if (level !== undefined) writer.heading(level, text);
    else writer.block({ text });
  };
  const table = (element: XmlElement): void => {
    const rows = findAll(element, 'tr');
    const headers = rows.filter((row) => find(row, 'tblHeader') !== undefined).length;
    const cells = rows.map((row) => findAll(row, 'tc').map((cell) => shownText(cell, notes)));
    writeTable(writer, cells, headers > 0 ? { headerRows: headers } : {});
  };
  if (body !== undefined) walk(body);
  closeList();
  return { ...properties, blocks: writer.finish(), unread: [] };
}

function shownText(element: XmlElement, notes: ReadonlyMap<string, XmlElement>): string {
  let text = '';
  for (const child of element.children) {
    if (typeof child === 'string' || SILENT.has(child.name)) continue;
    const { name } = child;
    const note = notes.get(`${name} ${child.attributes['id']}`);
    if (name === 't') text += textOf(child);
    else if (note !== undefined) text += ` [${shownText(note, new Map()).trim()}]`;
    else if (name === 'r') {
      const settings = elementsOf(child).find((one) => one.name === 'rPr');
      const part = shownText(child, notes);
      const isHidden = find(settings, 'vanish') !== undefined && settingOf(settings, 'vanish') !== '0';
      if (!isHidden) text += settingOf(settings, 'vertAlign') === 'superscript' ? raised(part) : part;
    } else {
      const part = SIGNS[name] ?? shownText(child, notes);
      text += name === 'p' ? `\n${part}\n` : part;
    }
  }
  return text;
}

function stylesOf(part: XmlElement | undefined): Map<string, Style> {
  const elements = new Map(findAll(part, 'style').map((style) => [style.attributes['styleId'] ?? '', style]));
  const styleOf = (id: string, left: number): Style => {
    const element = elements.get(id);
    if (element === undefined || left === 0) return {};
    const name = settingOf(element, 'name') ?? '';
    const base = styleOf(settingOf(element, 'basedOn') ?? '', left - 1);
    const named = /^heading (\d)$/i.exec(name)?.[1];
    const level = levelOf(settingOf(element, 'outlineLvl')) ?? (named === undefined ? base.level : Number(named));
    return {
      ...(level !== undefined && { level }),
      isTitle: /^title$/i.test(name),
      isList: base.isList === true || find(element, 'numPr') !== undefined || /^list (?:bullet|number)/i.test(name),
    };
  };
  // A style may be based on itself.
  return new Map([...elements.keys()].map((id) => [id, styleOf(id, 10)]));
}

/** 0 is the outermost, 9 is text. */
function levelOf(outline: string | undefined): number | undefined {
  return /^[0-8]$/.test(outline ?? '') ? Number(outline) + 1 : undefined;
}

function settingOf(element: XmlElement | undefined, name: string): string | undefined {
  return find(element, name)?.attributes['val'];
}
