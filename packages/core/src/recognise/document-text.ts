import type { BlockFormat, DocumentSpan } from './block.js';

/** Characters from which on a text is taken for more than a name or a path. */
const SENTENCE = 24;
/** Characters a passage has at the least, on the average of a block, in forms that other things share. */
export const PASSAGE = 40;

/** Whether a document says something: more than one word, or longer than names are. O(1). */
export function saysSomething(text: string, { contentStart, contentEnd }: DocumentSpan): boolean {
  const head = text.slice(contentStart, Math.min(contentEnd, contentStart + 400)).trim();
  return head.length >= SENTENCE || /\S\s+\S/.test(head);
}

/** Mean characters of the documents' contents. */
export function meanLength(documents: readonly DocumentSpan[]): number {
  let sum = 0;
  for (const { contentStart, contentEnd } of documents) sum += contentEnd - contentStart;
  return sum / Math.max(1, documents.length);
}

/** `[start, end)` without white space at either end; an empty one stands at `start`. */
export function trimmed(text: string, start: number, end: number): readonly [number, number] {
  let from = start;
  let to = end;
  while (from < to && isSpace(text.charCodeAt(from))) from++;
  while (to > from && isSpace(text.charCodeAt(to - 1))) to--;
  return [from, to];
}

/** Whether nothing but white space stands in `[start, end)`. */
export function isBlank(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at++) if (!isSpace(text.charCodeAt(at))) return false;
  return true;
}

function isSpace(code: number): boolean {
  return code === 32 || (code >= 9 && code <= 13) || code === 0xa0 || code === 0x2028 || code === 0x2029;
}

/** Words that a line in front of documents says, whatever the language: documents, sources, context, results. */
const DOCUMENT_WORDS =
  /(?<![a-z])(?:documents?|docs|passages?|sources?|contexts?|excerpts?|snippets?|chunks?|evidence|knowledge|articles?|(?:search |web |retrieval )results?|retrieved|information|materials?|dokumente?|quellen?|kontext|auszüge|wissen|documentos?|fuentes?|contexto|contexte|extraits?|documenti|fonti|contesto|документ\w*|источник\w*|контекст)(?![a-z])|المصادر|المستندات|الوثائق|المقاطع|السياق|资料|文档|上下文|知识|参考|検索結果|文書|資料|문서|자료/i;
/** Headings of what lists sources instead of quoting them. */
const BIBLIOGRAPHY =
  /^[\s#*]*(?:references|bibliography|works cited|literature(?: cited)?|footnotes|(?:end)?notes|literatur(?:verzeichnis)?|bibliographie|referencias|参考文献)[\s*:]*$/i;
/** Characters of a line that are read. */
const LINE_LENGTH = 300;

/** The last line before `at` that says something, at most two line ends away; empty if there is none. O(1). */
export function lineBefore(text: string, at: number): string {
  const window = text.slice(Math.max(0, at - LINE_LENGTH), at).split('\n');
  // A rule under a heading, or the fence of a code block, says nothing itself.
  const lines = window.slice(-4).reverse();
  return lines.find((line) => /[\p{L}\p{N}]/u.test(line) && !/^\s*```/.test(line)) ?? '';
}

/** Whether a line announces documents. */
export function saysDocuments(line: string): boolean {
  return DOCUMENT_WORDS.test(line) && !BIBLIOGRAPHY.test(line);
}

/** Where a document's own words stand, and what they are. */
export interface DocumentText {
  readonly start: number;
  readonly end: number;
  /** Without white space at its ends; a string literal is read. */
  readonly text: string;
  /** Other words as they are written in the same place. */
  write(text: string): string;
}

/** Children of a document's tag that hold its words; what stands beside them (`<source>`) names it. */
const CHILD = /<(document_contents?|page_content|content|text|snippet|passage|body|excerpt|chunk)(?:\s[^<>]{0,200})?>/g;
/** A first line that names the document where its form has no place for that. */
const NAMING = /^(?:\*\*)?(?:title|url|link|source|file(?: ?path|name)?|date|author|score|id)\b[^\n:]{0,20}[:：]/i;
/** The line that such a document's words follow. */
const WORDS =
  /\n[ \t]*(?:\*\*)?(?:page )?(?:content|text|snippet|description|summary|passage|excerpt|body|abstract)(?:\*\*)?[ \t]*[:：]/i;
/** Characters of a document in which its words must begin. */
const HEAD = 1_500;

/**
 * The words of a document apart from what names it: ids, titles, sources and scores are kept when other words take
 * their place. O(length of the document).
 */
export function documentText(text: string, document: DocumentSpan, format: BlockFormat): DocumentText {
  const { contentStart, contentEnd } = document;
  const first = text[contentStart];
  if (format === 'json') return literal(text, document, readJson);
  if (format === 'python' && (first === '"' || first === "'")) return literal(text, document, inQuotes);
  const [start, end] = trimmed(text, ...wordsOf(text, document, format));
  if (start >= end) return plain(text, contentStart, contentEnd);
  return plain(text, start, end);
}

function wordsOf(text: string, document: DocumentSpan, format: BlockFormat): readonly [number, number] {
  const { contentStart, contentEnd, labels } = document;
  if (format === 'result') return [contentStart, contentEnd];
  const head = Math.min(contentEnd, contentStart + HEAD);
  if (format === 'tags') {
    // The pattern is tried where there is a tag: over all of the words it took a tenth of the time of a prompt.
    const tag = text.indexOf('<', contentStart);
    CHILD.lastIndex = tag;
    const child = tag < 0 || tag >= head ? null : CHILD.exec(text.slice(0, head));
    const end = child === null ? -1 : text.lastIndexOf(`</${child[1]!}>`, contentEnd - 1);
    if (child !== null && end >= CHILD.lastIndex) return [CHILD.lastIndex, end];
  } else if (NAMING.test(text.slice(contentStart, contentStart + 80))) {
    const words = WORDS.exec(text.slice(contentStart, head));
    if (words !== null) return [contentStart + words.index + words[0].length, contentEnd];
  }
  // A label among the words stays with what is in front of it.
  const label = labels.findLast(({ end }) => end > contentStart && end <= contentEnd);
  if (label === undefined) return [contentStart, contentEnd];
  const close = text.indexOf('>', label.end);
  return [close < 0 || close >= contentEnd ? contentEnd : close + 1, contentEnd];
}

function plain(text: string, start: number, end: number): DocumentText {
  return { start, end, text: text.slice(start, end), write: (words) => words };
}

function literal(
  text: string,
  { contentStart: start, contentEnd: end }: DocumentSpan,
  read: (written: string) => string,
): DocumentText {
  // A JSON string is one in Python, too.
  return { start, end, text: read(text.slice(start, end)).trim(), write: (words) => JSON.stringify(words) };
}

/** A string that is written without escapes is what stands between the quotes. */
function readJson(written: string): string {
  if (!written.includes('\\')) return inQuotes(written);
  try {
    return String(JSON.parse(written));
  } catch {
    return inQuotes(written);
  }
}

function inQuotes(written: string): string {
  return written.slice(1, -1);
}
