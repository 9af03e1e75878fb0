import type { PromptText } from './block.js';
import { saysDocuments, trimmed } from './document-text.js';
import { isLeadOut } from './open-end.js';
import { type DocumentTemplate, templateRegions } from './template-regions.js';

/** A frame in which a prompt seems to hold documents, for somebody to look at before it is set. */
export interface SuggestedTemplate {
  /** Which of the texts it stands in. */
  readonly text: number;
  readonly template: DocumentTemplate;
  /** What the frame would take for documents: their number. */
  readonly documents: number;
}

/** Opening tags between which templates put what was retrieved. */
const TAG =
  /<((?:retrieved[-_ ]?)?(?:contexts?|documents?|sources?|passages?|knowledge|information|data|references?))>[ \t]*\n?/gi;
/** Rules above and below what was retrieved. */
const RULE = /\n(-{3,}|={3,}|\*{3,}|_{3,}|#{3,})[ \t]*\n/g;
/** The end of a clause that says that documents follow. */
const COLON = /[:：][ \t]*(?:\n\s*|(?=\S))/g;
/** A paragraph that says so in the middle, and whose end the documents follow. */
const PARAGRAPH =
  /following (?:pieces of )?(?:retrieved )?(?:contexts?|documents|sources|passages|information)\b[^\n]{0,2000}\n[ \t]*\n\s*/gi;
/** Signs that are looked at in a text, and frames of those that are tried: each costs O(text). */
const MOST_SIGNS = 64;
const MOST_FRAMES = 8;
/** Characters of a text that is looked at, and of the line in front of documents. */
const MOST_LENGTH = 262_144;
const LINE_LENGTH = 300;
/** What may part documents, the surest first. A single line end is the least that is believed. */
const SEPARATORS: readonly RegExp[] = [
  /\n[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,}|~{3,})[ \t]*\n+/,
  /\n[ \t]*\n[ \t]*/,
  /\n[ \t]*/,
];
/** Characters of every piece: what is shorter is a heading or a list, so its parts are no passages. */
const PASSAGE = 40;
/** Words that stand before the documents in a suggested frame: enough to be found, few enough to be the same always. */
const WORDS_BEFORE = 4;

/**
 * Where a prompt says that documents follow and nothing but empty lines, rules or lines parts them: the frame that
 * `recognise.templates` would need. Formats that `recognise` knows are none of its business. `undefined` where nothing
 * speaks of documents, or nothing parts them. A guess: whoever sets it must know that no passage holds the separator.
 * O(texts).
 */
export function suggestTemplate(texts: readonly PromptText[]): SuggestedTemplate | undefined {
  for (const [index, { role, text, kind }] of texts.entries()) {
    if (role === 'assistant' || role === 'tool' || kind !== undefined || text.length > MOST_LENGTH) continue;
    let frames = 0;
    for (const frame of framesIn(text)) {
      if (++frames > MOST_FRAMES) break;
      const suggested = templateOf(text, frame);
      if (suggested !== undefined) return { text: index, ...suggested };
    }
  }
  return undefined;
}

/** A stretch that may hold documents, and where what announces it begins. */
interface Frame {
  readonly opens: number;
  readonly start: number;
  readonly end: number;
}

function* framesIn(text: string): Generator<Frame> {
  for (const match of signs(text, TAG)) {
    const start = match.index + match[0].length;
    const end = text.indexOf(`</${match[1]}>`, start);
    if (end > start) yield { opens: match.index, start, end };
  }
  for (const match of signs(text, RULE)) {
    if (!saysDocuments(lineEndingAt(text, match.index))) continue;
    const start = match.index + match[0].length;
    const end = text.indexOf(`\n${match[1]}`, start);
    if (end > start) yield { opens: match.index, start, end };
  }
  for (const match of signs(text, COLON)) {
    if (!saysDocuments(lineEndingAt(text, match.index))) continue;
    const start = match.index + match[0].length;
    yield { opens: match.index, start, end: endOfDocuments(text, start) };
  }
  for (const match of signs(text, PARAGRAPH)) {
    const start = match.index + match[0].length;
    yield { opens: start - /\s*$/.exec(match[0])![0].length, start, end: endOfDocuments(text, start) };
  }
}

function* signs(text: string, pattern: RegExp): Generator<RegExpExecArray> {
  let count = 0;
  for (const match of text.matchAll(pattern)) {
    if (++count > MOST_SIGNS) return;
    yield match;
  }
}

function lineEndingAt(text: string, at: number): string {
  return text.slice(Math.max(text.lastIndexOf('\n', at - 1) + 1, at - LINE_LENGTH), at);
}

/** The line behind the documents that opens something else; the end of the text if there is none. */
function endOfDocuments(text: string, start: number): number {
  for (let feed = text.indexOf('\n', start); feed >= 0; feed = text.indexOf('\n', feed + 1)) {
    if (isLeadOut(text.slice(feed + 1, feed + 121))) return feed;
  }
  return text.length;
}

function templateOf(text: string, frame: Frame): Omit<SuggestedTemplate, 'text'> | undefined {
  const [from, to] = trimmed(text, frame.start, frame.end);
  const found = separatorIn(text.slice(from, to));
  if (found === undefined) return undefined;
  const template = {
    before: beforeDocuments(text, frame.opens, from),
    separator: found,
    ...(to < trimmed(text, 0, text.length)[1] && { after: behindDocuments(text, to) }),
  };
  const [region] = templateRegions(text, [template]);
  if (region === undefined || region.start !== from) return undefined;
  const { documents } = region;
  const isPassages = documents.every(({ start, end }) => end - start >= PASSAGE);
  return isPassages ? { template, documents: documents.length } : undefined;
}

/** The surest of the separators that stands in a text, as it is written there first. */
function separatorIn(text: string): string | undefined {
  for (const pattern of SEPARATORS) {
    const match = pattern.exec(text);
    if (match === null) continue;
    let from = match.index;
    while (from > 0 && text[from - 1] === '\n') from--;
    return text.slice(from, match.index + match[0].length);
  }
  return undefined;
}

/** A few words in front of the documents, and more where these stand farther up already. */
function beforeDocuments(text: string, opens: number, start: number): string {
  let from = opens;
  for (let words = 0; from > 0; words++) {
    if (words >= WORDS_BEFORE && text.indexOf(text.slice(from, start)) === from) break;
    const word = wordBefore(text, from);
    // What stands on an earlier line is more likely to change.
    if (words > 0 && text.slice(word, from).includes('\n')) break;
    from = word;
  }
  return text.slice(from, start);
}

/** Where the word begins that stands before a place, white space behind it left aside; at most 100 characters away. */
function wordBefore(text: string, at: number): number {
  const window = text.slice(Math.max(0, at - 100), at);
  const end = window.trimEnd().length;
  let start = end;
  while (start > 0 && window[start - 1]!.trim() !== '') start--;
  return at - window.length + (end === 0 ? 0 : start);
}

/** What stands right behind the documents, to the end of its first line and at most a few words of it. */
function behindDocuments(text: string, end: number): string {
  const rest = text.slice(end, end + 200);
  const match = /^\s*(?:<\/[^>\n]+>|[^\s\w]+(?=\s)|\S+(?:[ \t]\S+)?[:：]|\S+(?:[ \t]\S+){0,2})/.exec(rest);
  return match === null ? rest : match[0];
}
