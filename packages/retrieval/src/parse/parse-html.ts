import { type DefaultTreeAdapterTypes, defaultTreeAdapter, parse } from 'parse5';
import { type Block, BlockWriter, type ParsedDocument } from './document.js';
import { SUBSCRIPTS, SUPERSCRIPTS } from './signs.js';

type Node = DefaultTreeAdapterTypes.ChildNode;
type Element = DefaultTreeAdapterTypes.Element;
type Parent = DefaultTreeAdapterTypes.ParentNode;

/** Elements without text for readers, or that stand on every page of a site. */
const SILENT = new Set(
  'script style noscript template svg nav select iframe object head annotation annotation-xml rp'.split(' '),
);
/** Elements that end the line before them. */
const BLOCKS = new Set(
  'address article aside blockquote body center dd details dialog dir div dl dt fieldset figcaption figure footer form header hgroup hr html legend li main menu ol p pre search section summary table tbody td tfoot th thead tr ul'.split(
    ' ',
  ),
);
const LISTS = new Set(['ul', 'ol', 'menu', 'dir', 'dl']);
/** Elements that stay one block with all that is in them, unless a heading is in them. */
const WHOLE = new Set([...LISTS, 'table', 'pre']);
/** Elements whose headings do not head what follows the element. */
const BOXES = new Set(
  'article aside blockquote details dialog dd fieldset figure footer form li nav section td th'.split(' '),
);
const BOX_CLASS =
  /(?:^|[\s_-])(?:admonition|alert|box|callout|caution|danger|hint|important|info|note|notice|seealso|sidebar|tip|warning)s?(?:$|[\s_-])/i;
const HEADING = /^h[1-6]$/;
/** Decoration that some sites hide from screen readers. Larger elements hold text, collapsed for a while. */
const DECORATION = new Set(['a', 'span', 'i', 'button']);
const EDIT_LINK = /\bmw-editsection\b/;
export const PERMALINK = /^[\s¶#§†🔗⚓∞\u200b\ufeff]*$/u;
/** Raised letters that are read as a part of the word: 1st, 2ᵉ, ™. */
const RAISED_LETTERS = /^(?:st|nd|rd|th|er|re|e|ème|o|a|os|as|tm|sm|r|c|mo|ma)$/i;

/** Elements within elements. A page that is deeper is read without its elements. */
const MAX_DEPTH = 1000;
/** Lines of a program that fits a cell of a table. */
const MAX_CELL_LINES = 5;
const TOO_DEEP = new Error('too deep');

/** Reads a page as browsers do. */
export function parseHtml(source: string): ParsedDocument {
  const writer = new BlockWriter();
  const named = writeHtml(source, writer);
  return { ...named, blocks: writer.finish(), unread: [] };
}

/** Puts the blocks of a page, or of a part of one, below the open heading. `lineOffset`: lines before it. */
export function writeHtml(
  source: string,
  writer: BlockWriter,
  lineOffset = 0,
): Pick<ParsedDocument, 'title' | 'language'> {
  let depth = 0;
  const treeAdapter = {
    ...defaultTreeAdapter,
    onItemPush() {
      if (++depth > MAX_DEPTH) throw TOO_DEEP;
    },
    onItemPop() {
      depth--;
    },
  };
  try {
    const document = parse(closeElements(source), { sourceCodeLocationInfo: true, treeAdapter });
    return new PageReader(writer, lineOffset).read(document);
  } catch (error) {
    if (error !== TOO_DEEP) throw error;
    const text = source.replace(/(?:<[^<>]*>)+/g, ' ');
    writer.block({ text, line: lineOffset + 1, lines: text.split('\n').length });
    return {};
  }
}

const VOID = /^(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)$/i;

/** Closes what XHTML closes and HTML leaves open: `<script/>` would take all that follows. */
function closeElements(source: string): string {
  const expanded = source.replace(/<([a-z][a-z0-9:-]*)((?:\s[^<>]*)?)\/>/gi, (tag, name: string, attributes: string) =>
    VOID.test(name) ? tag : `<${name}${attributes}></${name}>`,
  );
  return closeTitle(withoutSections(expanded));
}

/** XHTML's CDATA sections as text: HTML takes them for comments. */
function withoutSections(source: string): string {
  let text = '';
  let from = 0;
  for (;;) {
    const start = source.indexOf('<![CDATA[', from);
    const end = start < 0 ? -1 : source.indexOf(']]>', start);
    if (end < 0) return text + source.slice(from);
    const section = source
      .slice(start + 9, end)
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;');
    text += source.slice(from, start) + section;
    from = end + 3;
  }
}

/** A title without an end would be the whole page. */
function closeTitle(source: string): string {
  const title = /<title\b[^>]*>/i.exec(source);
  if (title === null || /<\/title/i.test(source)) return source;
  const end = title.index + title[0].length;
  const length = source.slice(end).search(/[<\n]/);
  return length < 0 ? source : `${source.slice(0, end + length)}</title>${source.slice(end + length)}`;
}

class PageReader {
  readonly #writer: BlockWriter;
  readonly #lineOffset: number;
  /** Elements with a heading below them, or with a table or program within a table: all in them are blocks. */
  readonly #holdsHeading = new Set<Parent>();
  #title: string | undefined;
  #language: string | undefined;
  /** The paragraph that is being read, and its lines in the source. */
  #text = '';
  #firstLine: number | undefined;
  #lastLine = 0;

  constructor(writer: BlockWriter, lineOffset: number) {
    this.#writer = writer;
    this.#lineOffset = lineOffset;
  }

  read(document: Parent): Pick<ParsedDocument, 'title' | 'language'> {
    this.#markHeadings(document);
    this.#children(document);
    this.#end();
    const [title, language] = [this.#title, this.#language];
    return { ...(title && { title }), ...(language && { language }) };
  }

  #markHeadings(document: Parent): void {
    const stack: Parent[] = [document];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      if ('tagName' in node && (HEADING.test(node.tagName) || isLayoutIn(node))) {
        let above: Parent | null = 'parentNode' in node ? node.parentNode : null;
        for (; above !== null && !this.#holdsHeading.has(above); ) {
          this.#holdsHeading.add(above);
          above = 'parentNode' in above ? (above.parentNode as Parent | null) : null;
        }
      }
      for (const child of node.childNodes) if ('childNodes' in child) stack.push(child);
    }
  }

  #children(parent: Parent): void {
    for (const child of parent.childNodes) this.#node(child);
  }

  #node(node: Node): void {
    if (node.nodeName === '#text') {
      this.#add(lineOf(node), node);
      return;
    }
    if (!('tagName' in node)) return;
    const { tagName: name } = node;
    if (name === 'html') this.#language = attribute(node, 'lang') ?? attribute(node, 'xml:lang');
    if (name === 'head') this.#readTitle(node);
    if (isSilent(node)) return;
    if (HEADING.test(name)) this.#heading(node);
    else if (WHOLE.has(name) && !this.#holdsHeading.has(node)) {
      this.#end();
      this.#whole(node);
    } else if (BLOCKS.has(name)) {
      this.#end();
      const path = this.#writer.headings;
      this.#children(node);
      this.#end();
      if (isBox(node)) this.#writer.leave(path);
    } else this.#add(inlineText(node), node, () => this.#children(node));
  }

  /** An element in a line: its own text, or that of its children. */
  #add(text: string | undefined, node: Node, readChildren?: () => void): void {
    if (text === undefined) {
      readChildren?.();
      return;
    }
    if (text === '') return;
    this.#text += text;
    const { startLine, endLine } = node.sourceCodeLocation ?? {};
    if (startLine === undefined || text.trim() === '') return;
    this.#firstLine ??= startLine;
    this.#lastLine = endLine ?? startLine;
  }

  #readTitle(head: Element): void {
    const title = head.childNodes.find((child): child is Element => child.nodeName === 'title');
    if (title !== undefined) this.#title ??= collapse(textOf(title)).trim().slice(0, 300);
  }

  /** Ends a paragraph. */
  #end(): void {
    const text = tidy(this.#text);
    const first = this.#firstLine;
    this.#text = '';
    this.#firstLine = undefined;
    if (text !== '') this.#writer.block({ text, ...this.#place(first, this.#lastLine) });
  }

  #place(first: number | undefined, last: number | undefined): Pick<Block, 'line' | 'lines'> {
    return first === undefined ? {} : { line: this.#lineOffset + first, lines: (last ?? first) - first + 1 };
  }

  /** A heading: its words up to the first block in it, where it was not closed and holds what follows. */
  #heading(node: Element): void {
    this.#end();
    const level = Number(node.tagName[1]);
    const { line } = this.#place(node.sourceCodeLocation?.startLine, undefined);
    const children = node.childNodes;
    const isBlock = (child: Node) => 'tagName' in child && (BLOCKS.has(child.tagName) || this.#holdsHeading.has(child));
    let end = children.findIndex(isBlock);
    if (end < 0) end = children.length;
    let words = collapse(children.slice(0, end).map(lineOf).join('')).trim();
    if (words === '' && end < children.length && !this.#holdsHeading.has(children[end] as Element)) {
      words = collapse(lineOf(children[end++]!)).trim();
    }
    this.#writer.heading(level, words, line);
    for (const child of children.slice(end)) this.#node(child);
    this.#end();
  }

  #whole(node: Element): void {
    const { startLine, endLine } = node.sourceCodeLocation ?? {};
    const place = this.#place(startLine, endLine);
    if (node.tagName === 'table') this.#writer.block({ ...tableOf(node), ...place });
    else this.#writer.block({ text: node.tagName === 'pre' ? preOf(node) : listOf(node), ...place });
  }
}

/** Whether an element makes the table around it a frame for the page, and no table of data. */
function isLayoutIn(node: Element): boolean {
  const isProgram = node.tagName === 'pre' && textOf(node).split('\n').length > MAX_CELL_LINES;
  if (!isProgram && node.tagName !== 'table') return false;
  let above = node.parentNode;
  while (above !== null && 'tagName' in above && !/^(?:t[dh]|body)$/.test(above.tagName)) above = above.parentNode;
  return above !== null && 'tagName' in above && above.tagName !== 'body';
}

function attribute(node: Element, name: string): string | undefined {
  return node.attrs.find((one) => one.name === name)?.value;
}

function isBox(node: Element): boolean {
  return BOXES.has(node.tagName) || (node.tagName === 'div' && BOX_CLASS.test(attribute(node, 'class') ?? ''));
}

function isSilent(node: Element): boolean {
  const { tagName: name, attrs } = node;
  if (SILENT.has(name)) return true;
  if (name === 'a' && attribute(node, 'href')?.startsWith('#') && PERMALINK.test(textOf(node))) return true;
  return attrs.some(
    (one) =>
      (one.name === 'hidden' && one.value !== 'until-found') ||
      (one.name === 'style' && /(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)/i.test(one.value)) ||
      (one.name === 'role' && one.value === 'navigation') ||
      (one.name === 'class' && EDIT_LINK.test(one.value)) ||
      (one.name === 'aria-hidden' && one.value === 'true' && DECORATION.has(name)),
  );
}

/** Text of an element that is not that of its children; undefined where it is. */
function inlineText(node: Element): string | undefined {
  switch (node.tagName) {
    case 'br':
      return '\n';
    case 'wbr':
      return '';
    case 'img':
    case 'area':
      return ` ${collapse(attribute(node, 'alt') ?? '')} `;
    case 'sup':
      return scriptText(node, SUPERSCRIPTS, '^');
    case 'sub':
      return scriptText(node, SUBSCRIPTS, '_');
    case 'rt':
      return `(${lineIn(node)})`;
    default:
      return undefined;
  }
}

/** Raised and lowered text: `10⁶`, `x^n`, and of a note its mark in brackets. */
function scriptText(node: Element, signs: ReadonlyMap<string, string>, mark: string): string {
  const text = collapse(lineIn(node)).trim();
  if (text === '') return '';
  const hasLink = node.childNodes.some((child) => child.nodeName === 'a');
  if (hasLink || /^\[.*\]$/.test(text)) return /^\[.*\]$/.test(text) ? text : `[${text}]`;
  if ([...text].every((sign) => signs.has(sign))) return [...text].map((sign) => signs.get(sign)).join('');
  if (RAISED_LETTERS.test(text) || /^[™®©*†‡]+$/u.test(text)) return text;
  return /^[\p{L}\p{N}]+$/u.test(text) ? `${mark}${text}` : `${mark}(${text})`;
}

/** The text of a node, without silent elements. Lines end only where `br` ends them. */
function lineOf(node: Node): string {
  if (node.nodeName === '#text') return collapse((node as DefaultTreeAdapterTypes.TextNode).value);
  if (!('tagName' in node) || isSilent(node)) return '';
  const text = inlineText(node) ?? lineIn(node);
  return BLOCKS.has(node.tagName) ? ` ${text} ` : text;
}

function lineIn(node: Element): string {
  return node.childNodes.map(lineOf).join('');
}

/** All text of an element, as it stands. */
function textOf(node: Element): string {
  return node.childNodes
    .map((child) => {
      if (child.nodeName === '#text') return (child as DefaultTreeAdapterTypes.TextNode).value;
      return 'tagName' in child ? textOf(child) : '';
    })
    .join('');
}

function preOf(node: Element): string {
  const text = (one: Node): string => {
    if (one.nodeName === '#text') return (one as DefaultTreeAdapterTypes.TextNode).value;
    if (!('tagName' in one) || isSilent(one)) return '';
    if (one.tagName === 'br') return '\n';
    return one.childNodes.map(text).join('');
  };
  return node.childNodes
    .map(text)
    .join('')
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n')
    .replace(/^\n+|\s+$/g, '');
}

/** A list with its inner lists indented, as Markdown. */
function listOf(list: Element): string {
  let number = Number(attribute(list, 'start') ?? 1) || 1;
  const items: string[] = [];
  for (const item of list.childNodes) {
    if (!('tagName' in item) || isSilent(item)) {
      const text = tidy(lineOf(item));
      if (text !== '') items.push(text);
      continue;
    }
    const text = flowOf(item);
    const mark = markOf(list, item, number);
    if (list.tagName === 'ol' && item.tagName === 'li') number++;
    if (text !== '') items.push(`${mark}${text.replaceAll('\n', `\n${' '.repeat(mark.length)}`)}`);
  }
  return items.join('\n');
}

function markOf(list: Element, item: Element, number: number): string {
  if (item.tagName === 'dd') return ': ';
  if (item.tagName !== 'li') return '';
  return list.tagName === 'ol' ? `${attribute(item, 'value') ?? number}. ` : '- ';
}

/** The text of an element that holds paragraphs, lists and tables. */
function flowOf(element: Element): string {
  if (element.tagName === 'pre') return preOf(element);
  if (LISTS.has(element.tagName)) return listOf(element);
  if (element.tagName === 'table') {
    const { header, text } = tableOf(element);
    return header === undefined ? text : `${header}\n${text}`;
  }
  const parts: string[] = [];
  let line = '';
  const end = () => {
    parts.push(tidy(line));
    line = '';
  };
  const walk = (parent: Element) => {
    for (const child of parent.childNodes) {
      const isElement = 'tagName' in child && !isSilent(child);
      if (isElement && (BLOCKS.has(child.tagName) || HEADING.test(child.tagName))) {
        end();
        parts.push(flowOf(child));
      } else if (isElement && inlineText(child) === undefined) walk(child);
      else line += lineOf(child);
    }
  };
  walk(element);
  end();
  return parts.filter((part) => part !== '').join('\n');
}

/** A table as Markdown has it. Its header: the rows of `thead`, or those first rows that have header cells only. */
function tableOf(table: Element): { readonly header?: string; readonly text: string } {
  const rows: { readonly cells: readonly string[]; readonly isHeader: boolean }[] = [];
  const captions: string[] = [];
  const walk = (parent: Element, isHead: boolean) => {
    for (const child of parent.childNodes) {
      if (!('tagName' in child) || isSilent(child)) continue;
      if (child.tagName === 'tr') {
        const cells = child.childNodes.filter((cell): cell is Element => /^t[dh]$/.test(cell.nodeName));
        const texts = cells.flatMap((cell) => cellsOf(cell));
        const isHeader = isHead || (cells.length > 1 && cells.every(({ tagName }) => tagName === 'th'));
        if (texts.some((text) => text !== '')) rows.push({ cells: texts, isHeader });
      } else if (child.tagName === 'caption') captions.push(collapse(lineOf(child)).trim());
      else walk(child, child.tagName === 'thead');
    }
  };
  walk(table, false);
  const lines = rows.map(({ cells }) => (cells.length === 1 ? cells[0]! : `| ${cells.join(' | ')} |`));
  const headers = rows.findIndex(({ isHeader }) => !isHeader);
  const count = headers < 0 ? 0 : headers;
  const text = [...(count === 0 ? captions : []), ...lines.slice(count)].join('\n');
  if (count === 0) return { text };
  const columns = rows[count - 1]!.cells.length;
  const rule = columns > 1 ? [`|${' --- |'.repeat(columns)}`] : [];
  return { header: [...captions, ...lines.slice(0, count), ...rule].join('\n'), text };
}

/** The text of a cell, and empty ones where it spans columns. */
function cellsOf(cell: Element): string[] {
  if (isSilent(cell)) return [];
  const text = flowOf(cell).replace(/\s+/g, ' ').replaceAll('|', '\\|');
  const span = Math.min(100, Number(attribute(cell, 'colspan') ?? 1) || 1);
  return [text, ...Array<string>(Math.max(0, span - 1)).fill('')];
}

function collapse(text: string): string {
  return text.replace(/[ \t\n\f\r]+/g, ' ');
}

/** Lines without spaces at their ends, and no more than one empty line in a row. */
function tidy(text: string): string {
  return text
    .split('\n')
    .map((line) => line.replace(/[ \t]+/g, ' ').trim())
    .join('\n')
    .replace(/\n{3,}/g, '\n\n')
    .trim();
}
