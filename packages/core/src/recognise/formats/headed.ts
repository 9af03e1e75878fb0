import { meanLength, PASSAGE } from '../document-text.js';
import type { DocumentFormat, DocumentGroup, Region } from '../format.js';
import { blocksBetween, type CloserOf, type Header } from '../headers.js';

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
      ({ documents }: DocumentGroup) => certain || meanLength(documents) >= PASSAGE,
    );
  },
};

interface Heading {
  readonly start: number;
  readonly end: number;
  readonly level: number;
  readonly title: string;
}

function headingsOf({ text, lines }: Region): readonly Heading[] {
  const headings: Heading[] = [];
  for (const line of lines) {
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

const NOUN =
  '(?:retrieved |search |web |context |knowledge )?(?:document|doc|source|passage|context|chunk|snippet|excerpt|evidence|search result|web result|retrieval result|knowledge|dokument|quelle|documento|fuente|extrait|fonte|документ|источник|фрагмент|文档|资料|文書|資料|문서|자료|المستند|المصدر|الوثيقة|المقطع)';
/** `Document 1:`, `### Source [2]`, `[CONTEXT 0]:`, `--- Passage 3 ---`, `Document [1](Title: …)`. */
const HEADER = new RegExp(
  `([ \\t]{0,8})(#{1,6} |\\*\\*|\\[|【|<{2,3} ?|-{2,} ?|={2,} ?)?(${NOUN})[ _-]{0,2}([#\\[(]{0,2})(\\d{1,4})(?=[\\])】*:：.\\s>=-])([^\\n]{0,200})`,
  'iy',
);
/** Behind the number of a header; in a sentence, «Document 1 shows that …», a word would follow. */
const CLOSED = /^(?:[ \t\r]*$|[\])】*:：>=]|\.(?:[ \t]|$)|[ \t]*[(:：>=-])/;
/** What stands behind the number: signs, a title in brackets, or the text itself. */
const BEHIND = /^[\])】]{0,2}(?:\*\*)?[ \t]*(?:\((?:title: ?)?([^)\n]{1,160})\))?(?:[ \t]*[:：.\])>=*-]+)*/i;
const CLOSER = new RegExp(`^[ \\t]*(?:[-=<]{2,} ?|\\[)?END (?:OF )?${NOUN}[ _-]?[#\\[]?(\\d{1,4})[^\\n]{0,20}$`, 'imy');

/** Documents under headers that name and count them, as LlamaIndex's citation engine and AnythingLLM write them. */
export const headed: DocumentFormat = {
  name: 'headed',
  unasked: true,
  find(region) {
    const headers = headersOf(region);
    if (headers.length < 2) return [];
    return blocksBetween(region, headers, closers(region)).filter((found) => region.certain || isPlausible(found));
  },
};

function headersOf({ text, lines }: Region): readonly Header[] {
  const headers: Header[] = [];
  for (const line of lines) {
    HEADER.lastIndex = line;
    const match = HEADER.exec(text);
    if (match === null) continue;
    const [whole, indent, decoration = '', noun, bracket, digits, rest] = match;
    const behind = BEHIND.exec(rest!)!;
    const from = match.index + indent!.length;
    const digitsAt = from + decoration.length + noun!.length;
    const at = text.indexOf(digits!, digitsAt);
    if (!CLOSED.test(rest!)) continue;
    headers.push({
      start: from,
      contentStart: match.index + whole!.length - rest!.length + behind[0].length,
      form: `${decoration.trim()} ${noun!.toLowerCase()} ${bracket}`,
      number: Number(digits),
      label: { start: at, end: at + digits!.length },
      title: behind[1],
    });
  }
  return headers;
}

/** `[END CONTEXT 0]` closes `[CONTEXT 0]`. */
function closers(region: Region): CloserOf {
  // The documents are asked for in the order of the text, so one pass finds all closers.
  const lines = closingLines(region);
  let next = lines.next();
  return (header, end) => {
    while (next.done !== true && next.value.index < header.start) next = lines.next();
    if (next.done === true) return undefined;
    const { index, 0: line, 1: digits } = next.value;
    if (index >= end || Number(digits) !== header.number) return undefined;
    const closed = index + line.trimEnd().length;
    const label = index + line.lastIndexOf(digits!);
    return { end: closed, contentEnd: index, label: { start: label, end: label + digits!.length } };
  };
}

function* closingLines({ text, lines }: Region): Generator<RegExpExecArray, undefined> {
  for (const line of lines) {
    CLOSER.lastIndex = line;
    const match = CLOSER.exec(text);
    if (match !== null) yield match;
  }
}

function isPlausible({ documents }: DocumentGroup): boolean {
  return meanLength(documents) >= PASSAGE;
}
