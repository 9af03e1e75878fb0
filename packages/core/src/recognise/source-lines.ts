import type { Region } from './format.js';
import type { Header } from './headers.js';
import { lineBefore, saysDocuments } from './lead-in.js';
import { isBlank } from './plausible.js';

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
 * Headers of documents that are told by a line with their source alone. What stands behind passages instead of before
 * them looks the same, so each must stand under an empty line, a rule, or a line that ends in a colon, and over its
 * text. O(lines that could be one).
 */
export function sourceLines(region: Region): readonly Header[] {
  const bracketed = inBrackets(region);
  return bracketed.length >= 2 ? bracketed : filesWithText(region);
}

function inBrackets({ text, openings }: Region): readonly Header[] {
  const headers: Header[] = [];
  for (const line of openings.brackets) {
    IN_BRACKETS.lastIndex = line;
    const match = IN_BRACKETS.exec(text);
    if (match === null) continue;
    const contentStart = IN_BRACKETS.lastIndex;
    if (!opensUnder(text, line) || isEmptyLine(text, contentStart + 1)) return [];
    headers.push(header(line + match[0].indexOf('['), contentStart, match));
  }
  return headers;
}

function filesWithText({ text, openings, certain }: Region): readonly Header[] {
  const headers: Header[] = [];
  let colon = 0;
  for (const line of openings.files) {
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
