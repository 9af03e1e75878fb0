import type { PromptRole } from './block.js';
import { isBlank, trimmed } from './document-text.js';

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
export interface Shape {
  /** All others are one line. */
  readonly singleLine: boolean;
  /** No other one has an empty line inside. */
  readonly singleParagraph: boolean;
  /** No other one has a line that could end documents, such as `Question:` or a rule. */
  readonly withoutEnds: boolean;
}

/** The shape of the texts `[start, end)`, without the white space at their ends. O(their length). */
export function shapeOf(text: string, spans: readonly (readonly [number, number])[]): Shape {
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
export function endOfLast(
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
export function beforeRule(text: string, from: number, end: number): number | undefined {
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
