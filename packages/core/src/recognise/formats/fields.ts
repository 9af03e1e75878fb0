import type { DocumentSpan } from '../block.js';
import { isBlank, lineBefore, meanLength, PASSAGE, saysDocuments } from '../document-text.js';
import type { DocumentFormat, DocumentGroup, Region } from '../format.js';
import { blocksBetween, type Header } from '../headers.js';

/** `[Source: port.md, page 3]`, a line of its own. */
const IN_BRACKETS =
  /[ \t]{0,3}\[(source|file|document|doc|title|url|from|quelle|datei|fuente|来源|文件)[^\]\n:：]{0,20}[:：][ \t]*([^\]\n]{1,200})\][ \t]*\r?(?=\n)/iy;
/** `port.pdf#page=3: …` as Azure's samples write sources. */
const FILE_AND_TEXT =
  /[ \t]{0,3}([\p{L}\p{N}][\p{L}\p{N}_ ./-]{0,100}\.(?:pdf|txt|mdx?|docx?|html?|pptx?|xlsx?|csv|json|rst)(?:#page=\d{1,5})?):[ \t]/iuy;
/** Characters of a file's name with its blanks. */
const NAME_LENGTH = 120;
/** A line that may stand above the first document. */
const RULE = /^[ \t]*[-=*_]{3,}[ \t]*\r?$/;

/**
 * Headers of documents that are recognised by a line with their source alone. What stands behind passages instead of
 * before them looks the same, so each must stand under an empty line, a rule, or a line that ends in a colon, and over
 * its text. O(lines that could be one).
 */
function sourceLines(region: Region): readonly Header[] {
  const bracketed = inBrackets(region);
  return bracketed.length >= 2 ? bracketed : filesWithText(region);
}

function inBrackets({ text, lines }: Region): readonly Header[] {
  const headers: Header[] = [];
  for (const line of lines) {
    IN_BRACKETS.lastIndex = line;
    const match = IN_BRACKETS.exec(text);
    if (match === null) continue;
    const contentStart = IN_BRACKETS.lastIndex;
    if (!opensUnder(text, line) || isEmptyLine(text, contentStart + 1)) return [];
    headers.push(header(line + match[0].indexOf('['), contentStart, match));
  }
  return headers;
}

function filesWithText({ text, lines, certain }: Region): readonly Header[] {
  const headers: Header[] = [];
  let colon = 0;
  for (const line of lines) {
    // Most such lines are sentences: looking for the sign that they lack is one pass over the text.
    if (colon < line) colon = text.indexOf(':', line);
    if (colon < 0) break;
    if (colon - line > NAME_LENGTH) continue;
    FILE_AND_TEXT.lastIndex = line;
    const match = FILE_AND_TEXT.exec(text);
    if (match === null) continue;
    if (!certain && headers.length === 0 && !saysDocuments(lineBefore(text, line))) continue;
    headers.push(header(line + match[0].search(/\S/), FILE_AND_TEXT.lastIndex, ['', 'file', match[1]!]));
  }
  return headers;
}

function header(start: number, contentStart: number, [, form, id]: readonly string[]): Header {
  return { start, contentStart, form: form!.toLowerCase(), number: undefined, label: undefined, id: id!.trim() };
}

function opensUnder(text: string, line: number): boolean {
  if (line === 0) return true;
  const above = text.slice(text.lastIndexOf('\n', line - 2) + 1, line - 1).trimEnd();
  return above === '' || above.endsWith(':') || above.endsWith('：') || above.endsWith('>') || RULE.test(above);
}

function isEmptyLine(text: string, start: number): boolean {
  const feed = text.indexOf('\n', start);
  return isBlank(text, start, feed < 0 ? text.length : feed);
}

/** The first line of a record as search tools and retrievers write it. */
const FIRST =
  /[ \t]{0,8}(?:[-*] )?(?:\*\*)?(Source|Title|URL|Link|File|File ?path|Filename|Document(?: name| id)?|Doc ?id|ID|Name|Page_?label|Page|Metadata|file_path|file_name|source|title|url)(?:\*\*)?[ \t]*[:：][ \t]*([^\n]{0,300})/y;
/** The line that a document's text follows. */
const CONTENT =
  /[ \t]{0,8}(?:[└├]─{1,3} )?(?:\*\*)?(?:(?:Page|Markdown) )?(?:Content|Text|Snippets?|Description|Summary|Passage|Excerpts?|Highlights?|Body|Abstract|content|text|snippet|page_content)(?:\*\*)?[ \t]*[:：]/y;
/** Characters of a record in which the line of its text must come. */
const RECORD_HEAD = 1_500;
/**
 * The frame of LlamaIndex's question-answering templates; inside, a node is its metadata, an empty line, and its text.
 */
const FRAME = /[Cc]ontext information[^\n]{0,80}\n$/;
const FRAME_RULE = /-{5,}[ \t]*\r?(?:\n|$)/y;
/** Characters before a rule that are read. */
const FRAME_LENGTH = 120;
/** Keys of LlamaIndex that say where in a file a node stands. */
const PAGE = /^page/i;
const METADATA = /^([A-Za-z][\w -]{0,40}): (\S[^\n]{0,300})/;

/**
 * Records of named fields: `Source: …` and `Content: …` as LangChain's tutorials write retrieved documents, `Title:`,
 * `URL:`, `Content:` of search tools, and LlamaIndex's nodes between the lines of its templates.
 */
export const fields: DocumentFormat = {
  name: 'fields',
  unasked: true,
  find(region) {
    const nodes = framed(region);
    if (nodes.length > 0) return nodes;
    for (const headers of [recordsOf(region), sourceLines(region)]) {
      if (headers.length < 2) continue;
      const found = blocksBetween(region, headers).filter(
        ({ documents }) => region.certain || meanLength(documents) >= PASSAGE,
      );
      if (found.length > 0) return found;
    }
    return [];
  },
};

/** Headers of records: lines with the first record's key, each with its text's line before the next one. */
function recordsOf({ text, lines }: Region): readonly Header[] {
  const nextOf = new Map<string, number>();
  const headers: Header[] = [];
  // Where what the nearest text behind a line says begins.
  let content: number | undefined;
  for (const line of lines.toReversed()) {
    CONTENT.lastIndex = line;
    if (CONTENT.test(text)) content = CONTENT.lastIndex;
    FIRST.lastIndex = line;
    const match = FIRST.exec(text);
    if (match === null) continue;
    const [whole, key, value] = match;
    const start = line + whole.search(/\S/);
    const end = Math.min(nextOf.get(key!) ?? text.length, start + RECORD_HEAD);
    nextOf.set(key!, start);
    if (content === undefined || content > end) continue;
    headers.push({ start, contentStart: content, form: key!, number: undefined, label: undefined, id: idOf(value!) });
  }
  headers.reverse();
  const alike = headers.filter(({ form }) => form === headers[0]!.form);
  return alike.length < 2 || isPaged(alike) ? [] : withLinesAbove(text, alike);
}

/** Pages that are counted are those of one file, in its order. */
function isPaged(headers: readonly Header[]): boolean {
  return headers.every(({ form, id }, place) => /^page$/i.test(form) && Number(id) === Number(headers[0]!.id) + place);
}

/** Lines of a record that may stand above the one that it is known by. */
const LINES_ABOVE = 4;

/** Records begin where the lines above them are the same kind of line for each of them: `Published: …`, `Result 2:`. */
function withLinesAbove(text: string, headers: readonly Header[]): readonly Header[] {
  let starts = headers.map(({ start }) => text.lastIndexOf('\n', start - 1) + 1);
  let raised = 0;
  for (; raised < LINES_ABOVE; raised++) {
    const above = starts.map((start) => (start === 0 ? -1 : text.lastIndexOf('\n', start - 2) + 1));
    const [kind, ...kinds] = above.map((from, i) => (from < 0 ? '' : kindOf(text.slice(from, starts[i]!))));
    if (kind === '' || kinds.some((other) => other !== kind)) break;
    starts = above;
  }
  return raised === 0 ? headers : headers.map((header, i) => ({ ...header, start: starts[i]! }));
}

/** What a line has in common with its like in other records: the words before its colon, whatever their numbers. */
function kindOf(line: string): string {
  const head = /^[ \t]*(?:[-*#=]{1,6} ?|\*\*)?([\p{L}_][\p{L}\p{N} _#-]{0,40})[:：]/u.exec(line.slice(0, 80))?.[1];
  return head === undefined ? '' : head.replace(/\d+/g, '#').toLowerCase();
}

function idOf(value: string): string | undefined {
  const id = value.trim();
  return id === '' ? undefined : id;
}

function framed({ text, lines }: Region): readonly DocumentGroup[] {
  const found: DocumentGroup[] = [];
  let open: number | undefined;
  for (const line of lines) {
    FRAME_RULE.lastIndex = line;
    if (!FRAME_RULE.test(text)) continue;
    const nodes = open === undefined ? undefined : nodesOf(text, open, line);
    if (nodes !== undefined) found.push(nodes);
    const opens = open === undefined && FRAME.test(text.slice(Math.max(0, line - FRAME_LENGTH), line));
    open = opens ? FRAME_RULE.lastIndex : undefined;
  }
  return found;
}

/** Nodes in a frame: each paragraph that opens with the first line's key opens a node. */
function nodesOf(text: string, start: number, end: number): DocumentGroup | undefined {
  const frame = text.slice(start, end);
  const first = METADATA.exec(frame);
  if (first === null) return undefined;
  const feed = frame.includes('\r\n') ? '\r\n' : '\n';
  const opening = `${feed}${feed}${first[1]}: `;
  const starts = [0];
  for (let at = frame.indexOf(opening); at >= 0; at = frame.indexOf(opening, at + 1)) starts.push(at + 2 * feed.length);
  if (starts.length < 2) return undefined;
  const documents = starts.map((from, place) => nodeOf(frame.slice(from, starts[place + 1]), start + from));
  return { documents, start, end: documents.at(-1)!.end };
}

function nodeOf(given: string, start: number): DocumentSpan {
  const node = given.trimEnd();
  const blank = /\r?\n\r?\n/.exec(node);
  const contentStart = blank === null ? start : start + blank.index + blank[0].length;
  const end = start + node.length;
  const id = nodeName(node);
  return { start, end, contentStart, contentEnd: end, id, title: undefined, labels: [] };
}

/** What the first line of a node says; a page alone is no name, so the line under it goes with it. */
function nodeName(node: string): string | undefined {
  const first = METADATA.exec(node);
  if (first === null || !PAGE.test(first[1]!)) return first?.[2]?.trim();
  const next = METADATA.exec(node.slice(first[0].length + 1));
  return [next?.[2], first[2]].flatMap((value) => value?.trim() ?? []).join(' ');
}
