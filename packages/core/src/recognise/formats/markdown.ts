import type { DocumentFormat, Found, Region } from '../format.js';
import { blocksBetween, type Header } from '../headers.js';
import { meanLength, PASSAGE } from '../plausible.js';

const HEADING = /(#{1,6})[ \t]+([^\n]{1,300})/y;
/** A heading that names where the section under it comes from; a link to a version is a change log's. */
const ORIGIN =
  /^(?:\*\*)?(?:(?:source|file|document|doc|title|url|passage|page|from|quelle|datei)\b[^\n:]{0,30}:|https?:\/\/|\[(?!v?\d+(?:\.\d+)+[^\]\n]*\]|unreleased)[^\]\n]{1,200}\]\(|`?[\w./ -]{1,200}\.(?:md|mdx|txt|pdf|html?|docx?|rst|csv|pptx?)`?(?:[\s(#:]|$))/i;

/**
 * Sections under headings of one level. Unasked, only where each heading says where its section comes from (`###
 * Source: a.md`, a path, a link); the sections of an ordinary page have an order that means something.
 */
export const markdown: DocumentFormat = {
  name: 'markdown',
  unasked: true,
  find(region) {
    const { certain } = region;
    const headings = headingsOf(region);
    if (headings.length < 2) return [];
    // A block's level is that of its first heading; deeper ones are part of the documents, another one of it ends them.
    return blocksBetween(region, sections(headings, certain)).filter(
      ({ documents }: Found) => certain || meanLength(documents) >= PASSAGE,
    );
  },
};

interface Heading {
  readonly start: number;
  readonly end: number;
  readonly level: number;
  readonly title: string;
}

function headingsOf({ text, openings }: Region): readonly Heading[] {
  const headings: Heading[] = [];
  for (const line of openings.headings) {
    HEADING.lastIndex = line;
    const match = HEADING.exec(text);
    if (match === null) continue;
    headings.push({
      start: line,
      end: line + match[0].length,
      level: match[1]!.length,
      title: match[2]!.trim(),
    });
  }
  return headings;
}

function sections(headings: readonly Heading[], certain: boolean): readonly Header[] {
  const headers: Header[] = [];
  let level: number | undefined;
  for (const { start, end, level: own, title } of headings) {
    if (level !== undefined && own > level) continue;
    if (certain || ORIGIN.test(title)) {
      level ??= own;
      if (own === level) {
        headers.push({ start, contentStart: end, form: `${own}`, number: undefined, label: undefined, id: title });
        continue;
      }
    }
    // A heading of another kind ends the documents: it is a header of a form of its own, which makes no block.
    if (level !== undefined)
      headers.push({ start, contentStart: end, form: `end ${start}`, number: undefined, label: undefined });
    level = undefined;
  }
  return headers;
}
