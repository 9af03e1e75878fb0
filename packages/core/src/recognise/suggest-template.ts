import type { PromptText } from './block.js';
import { saysDocuments } from './lead-in.js';
import { isLeadOut } from './open-end.js';
import { trimmed } from './plausible.js';
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
  /following (?:pieces of )?(?:retrieved )?(?:contexts?|documents|sources|passages|information)\b[^\n]*\n[ \t]*\n\s*/gi;
/** Clauses that are looked at in a text. */
const MOST_CLAUSES = 200;
/** Characters of a text that are looked at. */
const MOST_LENGTH = 262_144;
/** What may part documents, the surest first. A single line end is the least that is believed. */
const SEPARATORS: readonly RegExp[] = [
  /\n+[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,}|~{3,})[ \t]*\n+/,
  /\n[ \t]*\n[ \t]*/,
  /\n[ \t]*/,
];
/** Characters that a document has at least, on the average: less is a list, not passages. */
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
    for (const { opens, start, end } of framesIn(text)) {
      const suggested = templateOf(text, { opens, start, end });
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
  for (const match of text.matchAll(TAG)) {
    const start = match.index + match[0].length;
    const end = text.indexOf(`</${match[1]}>`, start);
    if (end > start) yield { opens: match.index, start, end };
  }
  for (const match of text.matchAll(RULE)) {
    const start = match.index + match[0].length;
    const end = text.indexOf(`\n${match[1]}`, start);
    if (end > start && saysDocuments(lineEndingAt(text, match.index))) yield { opens: match.index, start, end };
  }
  let clauses = 0;
  for (const match of text.matchAll(COLON)) {
    if (++clauses > MOST_CLAUSES) return;
    if (!saysDocuments(lineEndingAt(text, match.index))) continue;
    const start = match.index + match[0].length;
    const end = endOfDocuments(text, start);
    yield { opens: match.index, start, end };
  }
  for (const match of text.matchAll(PARAGRAPH)) {
    const start = match.index + match[0].length;
    yield { opens: start - /\s*$/.exec(match[0])![0].length, start, end: endOfDocuments(text, start) };
  }
}

function lineEndingAt(text: string, at: number): string {
  return text.slice(text.lastIndexOf('\n', at - 1) + 1, at);
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
  const length = documents.reduce((sum, { start, end }) => sum + end - start, 0);
  return length / documents.length < PASSAGE ? undefined : { template, documents: documents.length };
}

/** The surest of the separators that stands in a text, as it is written there first. */
function separatorIn(text: string): string | undefined {
  for (const pattern of SEPARATORS) {
    const match = pattern.exec(text);
    if (match !== null) return match[0];
  }
  return undefined;
}

/** A few words in front of the documents, and more where these stand farther up already. */
function beforeDocuments(text: string, opens: number, start: number): string {
  let from = opens;
  for (let words = 0; from > 0; words++) {
    if (words >= WORDS_BEFORE && text.indexOf(text.slice(from, start)) === from) break;
    const space = text.slice(0, from).search(/\S+\s*$/);
    // What stands on an earlier line is more likely to change.
    if (space < 0 || (words > 0 && text.slice(space, from).includes('\n'))) break;
    from = space;
  }
  return text.slice(from, start);
}

/** What stands right behind the documents, to the end of its first line and at most a few words of it. */
function behindDocuments(text: string, end: number): string {
  const rest = text.slice(end, end + 200);
  const match = /^\s*(?:<\/[^>\n]+>|[^\s\w]+(?=\s)|\S+(?:[ \t]\S+)?[:：]|\S+(?:[ \t]\S+){0,2})/.exec(rest);
  return match === null ? rest : match[0];
}
