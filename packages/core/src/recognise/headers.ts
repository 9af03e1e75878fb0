import type { DocumentSpan, LabelSpan, PromptRole } from './block.js';
import { isBlank, trimmed } from './document-text.js';
import type { DocumentGroup, Region } from './format.js';

/** Where a document opens that is closed by nothing but the next one. */
export interface Header {
  /** Start of the header, white space before it not counted. */
  readonly start: number;
  readonly contentStart: number;
  /** Headers of one block are written alike. */
  readonly form: string;
  /** The document's number, where the form counts. */
  readonly number: number | undefined;
  readonly label: LabelSpan | undefined;
  readonly id?: string | undefined;
  readonly title?: string | undefined;
}

/** Where a document closes itself, if it does. */
export type CloserOf = (
  header: Header,
  end: number,
) => { readonly end: number; readonly contentEnd: number; readonly label: LabelSpan } | undefined;

interface Opened {
  readonly header: Header;
  /** Further headers of the same number belong to the same document. */
  readonly labels: LabelSpan[];
}

/**
 * Documents between headers that stand in the order of the text. Numbers must rise; a number that falls back to 0 or 1
 * opens a new block; anything else makes it uncertain what is a header and what is quoted, and there is no block at
 * all. O(headers + text between).
 */
export function blocksBetween(
  region: Region,
  headers: readonly Header[],
  closerOf?: CloserOf,
): readonly DocumentGroup[] {
  const found: DocumentGroup[] = [];
  let run: Opened[] = [];
  let uncertain = false;
  const close = (end: number) => {
    if (!uncertain && run.length >= 2) {
      const block = blockOf(region, run, { end, closerOf });
      if (block !== undefined) found.push(block);
    }
    run = [];
    uncertain = false;
  };
  for (const header of headers) {
    const last = run.at(-1);
    const { number } = header;
    const opens = last === undefined || header.form !== last.header.form;
    if (opens || (number !== undefined && number <= 1 && number !== last.header.number && !isNext(last, number))) {
      if (last !== undefined) close(header.start);
      run = [{ header, labels: labelsOf(header) }];
    } else if (number === undefined || number > last.header.number!) run.push({ header, labels: labelsOf(header) });
    else if (number === last.header.number && header.label !== undefined) last.labels.push(header.label);
    else uncertain = true;
  }
  close(region.text.length);
  return found;
}

function isNext({ header }: Opened, number: number): boolean {
  return header.number === 0 && number === 1;
}

function labelsOf({ label }: Header): LabelSpan[] {
  return label === undefined ? [] : [label];
}

function blockOf(
  region: Region,
  run: readonly Opened[],
  { end, closerOf }: { readonly end: number; readonly closerOf: CloserOf | undefined },
): DocumentGroup | undefined {
  const { text, role } = region;
  const counts = run.every(({ header }, place) => header.number === run[0]!.header.number! + place);
  const startsRight = run[0]!.header.number === 0 || run[0]!.header.number === 1;
  const ends = endsOf(text, run, end);
  const open = run.slice(0, -1).map(({ header }, place) => [header.contentStart, ends[place]!] as const);
  const shape = shapeOf(text, open);
  const documents: DocumentSpan[] = [];
  for (const [place, { header, labels }] of run.entries()) {
    const isLast = place === run.length - 1;
    const closer = closerOf?.(header, ends[place]!);
    const last =
      isLast && closer === undefined ? endOfLast(text, header.contentStart, { end, role, shape }) : ends[place];
    if (closer === undefined && last === undefined) break;
    const [, to] = trimmed(text, header.start, closer?.end ?? last!);
    const [contentStart, contentEnd] = trimmed(text, Math.min(header.contentStart, to), closer?.contentEnd ?? to);
    const all = closer === undefined ? labels : [...labels, closer.label];
    // A number behind the end of the last document is none of its labels.
    const counted = counts && startsRight ? all.filter((label) => label.end <= to) : [];
    const { id, title } = header;
    documents.push({ start: header.start, end: to, contentStart, contentEnd, id, title, labels: counted });
  }
  if (documents.length < 2 || (!region.certain && isExampled(text, documents, end))) return undefined;
  return { documents, start: documents[0]!.start, end: documents.at(-1)!.end };
}

/** Where each document ends at the latest: a rule that parts each from the next belongs to none of them. */
function endsOf(text: string, run: readonly Opened[], end: number): readonly number[] {
  const ends = run.map((_, place) => run[place + 1]?.header.start ?? end);
  const cut = run.map(({ header }, place) => beforeRule(text, header.contentStart, ends[place]!));
  const areAllCut = cut.slice(0, -1).every((before) => before !== undefined);
  return areAllCut ? ends.map((latest, place) => cut[place] ?? latest) : ends;
}

/** The last line of a prompt that the model is to write on: `Label:`. */
const UNFINISHED = /(?:^|\n)[ \t]*([^\n:：]{1,40})[:：]\s*$/;
/** Characters of the end of a prompt that are read for it. */
const UNFINISHED_LENGTH = 80;

/** Whether they are examples of what the model is to do: each has the line that the prompt ends in. O(documents). */
function isExampled(text: string, documents: readonly DocumentSpan[], end: number): boolean {
  if (end < text.length) return false;
  const key = UNFINISHED.exec(text.slice(-UNFINISHED_LENGTH))?.[1];
  if (key === undefined) return false;
  return documents.slice(0, -1).every(({ start, end: to }) => text.slice(start, to).includes(`\n${key}:`));
}

/** A line that opens what is not a document: a question, an instruction, the end of what was opened before. */
const LEAD_OUT =
  /^[ \t]*(?:(?:\*\*|#{1,6} )?(?:user |my |the |now )?(?:user|human|assistant|system|question|query|task|answer|instructions?|helpful answer|response|frage|antwort|aufgabe|pregunta|respuesta|domanda|risposta|вопрос|ответ|问题|回答|質問|질문|السؤال|الجواب)(?: \([^)\n]{0,30}\))?(?:\*\*)?[ \t]*[:：]|#{1,6} (?:question|query|task|instructions?|answer|frage)(?!\w)|<\/[a-z])/i;
/** A line that closes documents unless they have such lines themselves. */
const RULE = /^[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,}|```)[ \t]*\r?$/;
/** A paragraph that asks or tells the model something. */
const ADDRESS =
  /^\s*(?:answer|based on|using|given|use|please|now|with|from|according|respond|reply|write|summari[sz]e|explain|compare|list|tell|what|who|when|where|which|why|how|is|are|does|do|did|can|could|should|would|if you|remember|note|only|don't|you (?:must|should|are)|beantworte|was|wer|wie|welche|warum|fasse|bitte|que|qui|comment|réponds|responde|cuál|cómo|根据|请|以上)(?![\w'])/i;
/** Characters of a paragraph within which a question mark must end it to make it a question. */
const QUESTION_LENGTH = 600;

/** Characters of a line that are looked at. */
const LINE_LENGTH = 120;

/** How much of the form of documents is known from those before the last one. */
interface Shape {
  /** All others are one line. */
  readonly singleLine: boolean;
  /** No other one has an empty line inside. */
  readonly singleParagraph: boolean;
  /** No other one has a line that could end documents, such as `Question:` or a rule. */
  readonly withoutEnds: boolean;
}

/** The shape of the texts `[start, end)`, without the white space at their ends. O(their length). */
function shapeOf(text: string, spans: readonly (readonly [number, number])[]): Shape {
  let singleLine = true;
  let singleParagraph = true;
  let withoutEnds = true;
  for (const [start, end] of spans) {
    const [from, to] = trimmed(text, start, end);
    const line = text.indexOf('\n', from);
    if (line < 0 || line >= to) continue;
    singleLine = false;
    if (blankLine(text, from, to) < to) singleParagraph = false;
    if (lineOf(text, from, { end: to, test: couldEnd }) !== undefined) withoutEnds = false;
  }
  return { singleLine, singleParagraph, withoutEnds };
}

/**
 * Where the last of several documents ends that nothing closes, or `undefined` if what follows it cannot be
 * distinguished from it. Then the document stays where it is, for a question must not move with it, nor half of a
 * document without the other. O(its length).
 */
function endOfLast(
  text: string,
  from: number,
  { end, role, shape }: { readonly end: number; readonly role: PromptRole; readonly shape: Shape },
): number | undefined {
  const [start, last] = trimmed(text, from, end);
  // A tool says nothing behind its results.
  if (role === 'tool') return last;
  const lead = shape.withoutEnds ? lineOf(text, start, { end: last, test: couldEnd }) : undefined;
  if (lead !== undefined) return trimmed(text, start, lead)[1];
  const feed = text.indexOf('\n', start);
  if (feed < 0 || feed >= last) return last;
  if (shape.singleLine) return addressesModel(text, feed, last) ? feed : undefined;
  const blank = blankLine(text, start, last);
  if (blank >= last) return last;
  if (shape.singleParagraph) return addressesModel(text, blank, last) ? blank : undefined;
  return role === 'user' ? beforeQuestion(text, start, last) : undefined;
}

/** Where a text that ends in a rule ends before it; `undefined` for one that does not. O(1). */
function beforeRule(text: string, from: number, end: number): number | undefined {
  const [start, last] = trimmed(text, from, end);
  const feed = text.lastIndexOf('\n', last - 1);
  if (feed < start || last - feed > LINE_LENGTH || text.startsWith('```', feed + 1)) return undefined;
  return RULE.test(text.slice(feed + 1, last)) ? trimmed(text, start, feed)[1] : undefined;
}

function couldEnd(head: string): boolean {
  return LEAD_OUT.test(head) || RULE.test(head);
}

/** The start of the first line behind the first whose beginning passes the test. */
function lineOf(
  text: string,
  start: number,
  { end, test }: { readonly end: number; readonly test: (head: string) => boolean },
): number | undefined {
  for (let feed = text.indexOf('\n', start); feed >= 0 && feed < end; feed = text.indexOf('\n', feed + 1)) {
    const next = text.indexOf('\n', feed + 1);
    const lineEnd = Math.min(next < 0 ? end : next, end, feed + 1 + LINE_LENGTH);
    if (test(text.slice(feed + 1, lineEnd))) return feed + 1;
  }
  return undefined;
}

/** The first line feed that only white space parts from the next one; `end` if there is none. */
function blankLine(text: string, start: number, end: number): number {
  for (let line = text.indexOf('\n', start); line >= 0 && line < end; ) {
    const next = text.indexOf('\n', line + 1);
    if (next < 0 || next >= end) return end;
    if (isBlank(text, line, next)) return line;
    line = next;
  }
  return end;
}

/** Where the last paragraph's predecessor ends, if that paragraph is a question. */
function beforeQuestion(text: string, start: number, end: number): number | undefined {
  let paragraph: number | undefined;
  for (let blank = blankLine(text, start, end); blank < end; ) {
    paragraph = blank;
    blank = blankLine(text, text.indexOf('\n', blank + 1), end);
  }
  if (paragraph === undefined || end - paragraph > QUESTION_LENGTH || !/[?？]$/.test(text.slice(end - 1, end))) {
    return undefined;
  }
  return trimmed(text, start, paragraph)[1];
}

/**
 * Whether what is left asks or tells something, rather than go on telling: its first paragraph must, because a question
 * farther on says nothing of what stands before it.
 */
function addressesModel(text: string, start: number, end: number): boolean {
  const [from, to] = trimmed(text, start, end);
  const paragraph = text.slice(from, Math.min(blankLine(text, from, to), from + QUESTION_LENGTH + 1));
  return ADDRESS.test(paragraph) || (paragraph.length <= QUESTION_LENGTH && /[?？]\s*$/.test(paragraph));
}
