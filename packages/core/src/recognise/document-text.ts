import type { BlockFormat, DocumentSpan } from './block.js';
import { trimmed } from './plausible.js';

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
