import { lineBefore, meanLength, PASSAGE, saysDocuments, trimmed } from '../document-text.js';
import type { DocumentFormat, DocumentGroup, Region } from '../format.js';
import { blocksBetween, type Header } from '../headers.js';

/** A line of one sign, `---` or `=====` or `***`. */
const RULE = /[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,}|#{3,}|~{3,})[ \t]*$/my;

/**
 * Documents between rules. Never looked for unasked: rules stand between all kinds of text, and nothing says which part
 * is a document.
 */
export const separator: DocumentFormat = {
  name: 'separator',
  unasked: false,
  find(region) {
    const documents = [];
    let from = 0;
    for (const [start, end] of rulesOf(region)) {
      documents.push([from, start] as const);
      from = end;
    }
    documents.push([from, region.text.length] as const);
    const spans = documents
      .map(([start, end]) => trimmed(region.text, start, end))
      .filter(([start, end]) => end > start)
      .map(([start, end]) => ({
        start,
        end,
        contentStart: start,
        contentEnd: end,
        id: undefined,
        title: undefined,
        labels: [],
      }));
    if (spans.length < 2) return [];
    return [{ documents: spans, start: spans[0]!.start, end: spans.at(-1)!.end }];
  },
};

function* rulesOf({ text, lines }: Region): Generator<readonly [number, number]> {
  for (const line of lines) {
    RULE.lastIndex = line;
    if (RULE.test(text)) yield [line, RULE.lastIndex];
  }
}

const AT_LINE_START = /([ \t]{0,8})\[(\d{1,4})\][:.)]?(?=[ \t\n])/y;
const ANYWHERE = /\[(\d{1,4})\]/g;
/** What search tools write behind the number. */
const FIELD = /^[ \t]*(?:title|url|source|link|content|snippet)\b[^\n:]{0,20}:/i;

/**
 * `[1] text`, at the start of a line, under a line that speaks of documents or from a search tool. Citations, array
 * indices and numbered steps have the same signs and are no documents; where the prompt marks documents, the next
 * number counts anywhere.
 */
export const numbered: DocumentFormat = {
  name: 'numbered',
  unasked: true,
  find(region) {
    const { text, certain } = region;
    if (!text.includes('[1]') && !text.includes('[0]')) return [];
    return blocksBetween(region, certain ? expected(region) : atLineStarts(region)).filter(
      (found) => certain || isPlausible(region, found),
    );
  },
};

function atLineStarts({ text, lines }: Region): readonly Header[] {
  const headers: Header[] = [];
  for (const line of lines) {
    AT_LINE_START.lastIndex = line;
    const match = AT_LINE_START.exec(text);
    if (match !== null) headers.push(header(line + match[1]!.length, match[2]!, line + match[0].length));
  }
  return headers;
}

/** Each number that follows the one before; others are part of what the documents say. */
function expected({ text }: Region): readonly Header[] {
  const headers: Header[] = [];
  for (const match of text.matchAll(ANYWHERE)) {
    const number = Number(match[1]);
    const last = headers.at(-1)?.number;
    if (last === undefined ? number <= 1 : number === last + 1) {
      headers.push(header(match.index, match[1]!, match.index + match[0].length));
    }
  }
  return headers;
}

function header(start: number, digits: string, contentStart: number): Header {
  const label = { start: start + 1, end: start + 1 + digits.length };
  return { start, contentStart, form: '[n]', number: Number(digits), label };
}

function isPlausible({ text }: Region, { documents }: DocumentGroup): boolean {
  if (meanLength(documents) < PASSAGE) return false;
  const { contentStart } = documents[0]!;
  if (FIELD.test(text.slice(contentStart, contentStart + 80))) return true;
  return saysDocuments(lineBefore(text, documents[0]!.start));
}
