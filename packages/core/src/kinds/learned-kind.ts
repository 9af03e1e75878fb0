import type { DocumentBlock, DocumentSpan, PromptRole, PromptText } from '../recognise/block.js';
import { recognise } from '../recognise/recognise.js';
import { isCounted } from '../recognise/rewrite.js';
import { estimateTokens } from '../token-estimate.js';
import { countedBlock, countedFrame } from './counted-documents.js';
import { isNeutralText } from './neutral-text.js';
import { isInOwnOrder, PairOrders } from './own-order.js';
import { type Gap, MIN_PROMPTS, type ProgramText } from './program-text.js';
import { RecurrenceHistory } from './recurrence.js';
import type { Stretch, StretchHasher } from './stretches.js';

/** Texts whose repetition is noticed, for each kind. */
const MAX_RECENT = 256;
/** Lines whose repetition is counted for each kind, and the prompts before they can count as separators. */
const MAX_REPEATED = 64;
const MIN_SEPARATED = 8;
/** Share of a kind's prompts that show what is said of nearly all of them. */
const NEARLY_ALL = 0.95;
/** Prompts with the same blanks behind the documents before these count as the program's. */
const MIN_TRAILED = 8;
/** Estimated bytes of a remembered piece. */
export const PIECE_BYTES = 48;
/** Prompts that count their documents alike before numbers count as labels. */
const MIN_COUNTED = 8;
/** Documents whose end is remembered, and lines of a last document that are compared with them. */
const MAX_WHOLE = 1_024;
const MAX_COMPARED_LINES = 64;
/** Prompts that end in a known document before a new one may be the last. */
const MIN_CLEAN = 8;
/** Forms in which each document says itself where it ends. */
const CLOSED: ReadonlySet<DocumentBlock['format']> = new Set(['tags', 'json', 'python']);
/** Characters of the form, such as `[{"id":`, that are the same in all prompts and so count as the program's. */
const MAX_FORM = 200;
/** Share of the changing part that documents found by their form take up. */
const MIN_COVERED = 0.7;
/** Share of a kind's prompts for which something must be true to be said of the kind. */
const MOST = 0.5;

/** Why the documents of a kind bring no gain as they are, or must not move without consent. */
export type KindNotice =
  /** The documents say nothing else than where they stand: the same document has other bytes at another place. */
  | 'labels-by-position'
  /** Text that changes stands before the documents in the same prompt. */
  | 'changing-text-first'
  /** That text is what the user asks. */
  | 'question-first'
  | 'few-documents'
  /** Shorter than a block of the engine's cache. */
  | 'too-short'
  /** Dates, numbers or versions of the documents rise or fall, or two documents always stand in the same order. */
  | 'own-order'
  /** Later calls of tools may refer to the result. */
  | 'tool-result'
  /** The program's text may speak of the order of the documents: a person must read it. */
  | 'program-text';

/** A part of a kind's text as a person reads it. */
type KindPart =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'documents' }
  | { readonly kind: 'changing' };

/** A program's prompt, learned from its texts. */
export interface PromptKind {
  readonly id: string;
  readonly role: PromptRole;
  readonly parts: readonly KindPart[];
  /** Prompts of this kind, and those with two documents or more that can be told apart. */
  readonly prompts: number;
  readonly withDocuments: number;
  readonly notices: readonly KindNotice[];
  /** Whether documents may move without a person's consent: nothing speaks of their order, and they have none. */
  readonly isSafe: boolean;
}

/** Documents in a text of a known kind. */
export interface KindDocuments {
  readonly kind: string;
  /** Whether these documents may move without a person's consent. */
  readonly isSafe: boolean;
  /** Documents that may move; `undefined` with fewer than two. */
  readonly block: DocumentBlock | undefined;
  /**
   * For documents found by recurrence, the hashes of the stretches of each: documents that moved as one may part later,
   * so an order is compared stretch by stretch.
   */
  readonly stretches: readonly (readonly number[])[] | undefined;
}

/** A text of a kind, with its changing parts. */
export interface MatchedText {
  readonly kind: LearnedKind;
  readonly gaps: readonly Gap[];
}

/** Which of the latest texts came before. */
export class RecentTexts {
  readonly #hashes = new Set<number>();

  get bytes(): number {
    return this.#hashes.size * PIECE_BYTES;
  }

  /** Whether a text is none of the latest; it is one afterwards. */
  isNew(hash: number): boolean {
    if (this.#hashes.has(hash)) return false;
    this.#hashes.add(hash);
    if (this.#hashes.size > MAX_RECENT) this.#hashes.delete(this.#hashes.values().next().value!);
    return true;
  }
}

/** What was found in a text, and what stood before it. */
interface LearnedText extends MatchedText, FoundDocuments {
  readonly text: string;
  /** Whether what a user says stands in front of the text, in the same prompt. */
  readonly isQuestionBefore: boolean;
}

/** How often a line stood in the prompts since it was noticed: at all, twice, first and last of all documents. */
interface RepeatedLine {
  prompts: number;
  twice: number;
  first: number;
  last: number;
}

/**
 * Whether a line stands between documents: it stood twice in most prompts, and it begins and ends the documents in
 * nearly all prompts or in nearly none. A line that some documents have, such as a footer, ends some prompts.
 */
function isSeparator({ prompts, twice, first, last }: RepeatedLine, all: number): boolean {
  const isClear = (count: number) => Math.max(count, prompts - count) >= NEARLY_ALL * prompts;
  return twice > MOST * all && isClear(first) && isClear(last);
}

/** A kind, and what its prompts have shown. */
export class LearnedKind {
  readonly program: ProgramText;
  readonly #historyBytes: number;
  history: RecurrenceHistory;
  prompts = 0;
  /** Blanks of the program in front of the first document. */
  indent = '';
  /** Blanks of the program behind the last document. */
  trail = '';
  /** The shortest text that has stood between two documents. */
  separator: string | undefined;
  /** What stands around the number with which the documents began first, and the prompts that began so. */
  #frame: string | undefined;
  #counted = 0;
  /** Whether numbers alone showed documents: a numbered list may be steps, which only a person can tell. */
  #hasCounted = false;
  /** Hashes of what documents say that stood before another one, which shows where they end. */
  readonly #whole = new Set<number>();
  /** Prompts whose last document is a known one, and whether text has ever followed a known one. */
  #clean = 0;
  #hasTextBehind = false;
  #withDocuments = 0;
  #tokens = 0;
  readonly #recent = new RecentTexts();
  readonly #counts = new Map<KindNotice, number>();
  readonly #pairs = new PairOrders();
  /** Whether the program's text certainly says nothing about an order. */
  readonly #isNeutral: boolean;
  /** Lines that stood twice in the documents of a prompt, the one used longest ago first. */
  readonly #repeated = new Map<number, RepeatedLine>();
  #separators: ReadonlySet<number> = new Set();

  constructor(program: ProgramText, historyBytes: number) {
    this.program = program;
    this.#historyBytes = historyBytes;
    this.history = new RecurrenceHistory(historyBytes);
    this.#isNeutral = program.segments.length > 0 && program.segments.every(isNeutralText);
  }

  /** Whether blanks behind the last document are the program's: no prompt had others. */
  get hasOwnTrail(): boolean {
    return this.trail !== '' && this.prompts >= MIN_TRAILED;
  }

  /** Documents under numbers, where nearly all prompts count theirs so. O(gap). */
  countedBlock(text: string, gap: Gap): DocumentBlock | undefined {
    if (this.prompts < MIN_COUNTED || this.#counted < NEARLY_ALL * this.prompts) return undefined;
    return countedBlock(text, gap, this.#frame!);
  }

  /**
   * The block without a last document whose end is not certain: a question may follow it. The end is certain where the
   * form closes documents, where the document has stood before another one, and where nothing ever followed such ones.
   */
  withCertainEnd(text: string, block: DocumentBlock, hasher: StretchHasher): DocumentBlock | undefined {
    const isLastOfAll = this.#clean >= MIN_CLEAN && !this.#hasTextBehind;
    if (isLastOfAll || CLOSED.has(block.format)) return block;
    if (this.#whole.has(contentHash(text, block.documents.at(-1)!, hasher))) return block;
    const documents = block.documents.slice(0, -1);
    return documents.length < 2 ? undefined : { ...block, documents, end: documents.at(-1)!.end };
  }

  /** Whether documents of this kind may move without a person's consent. */
  get isSafe(): boolean {
    const { role } = this.program;
    const isOrdered = this.#isMost('own-order') || this.#isMost('labels-by-position') || this.#hasCounted;
    return this.#isNeutral && role !== 'tool' && this.prompts >= MIN_PROMPTS && this.#pairs.isFree && !isOrdered;
  }

  get bytes(): number {
    const pieces = this.#repeated.size + this.#whole.size;
    const remembered = this.history.bytes + this.#recent.bytes + this.#pairs.bytes + pieces * PIECE_BYTES;
    return remembered + this.program.segments.reduce((sum, { length }) => sum + 2 * length, 0);
  }

  learn({ text, gaps, found, listed, isQuestionBefore }: LearnedText, hasher: StretchHasher): void {
    if (!this.#recent.isNew(hasher.hash(text))) return;
    this.prompts++;
    this.#tokens += estimateTokens(text);
    const gap = gaps[this.program.documents]!;
    const counted = this.#noticeCounted(text, gap);
    const open = listed ?? counted;
    if (open !== undefined && !CLOSED.has(open.format)) this.#noticeWhole(text, open, hasher);
    const { block } = found;
    if (block !== undefined) {
      this.#withDocuments++;
      this.#hasCounted ||= block.format === 'counted';
      this.separator = shortestSeparator(text, block.documents, this.separator);
      this.#pairs.add(block.documents.map((document) => contentHash(text, document, hasher)));
    }
    const before = gaps.slice(0, this.program.documents).some(({ start, end }) => text.slice(start, end).trim() !== '');
    const notices: readonly (readonly [KindNotice, boolean])[] = [
      ['labels-by-position', block !== undefined && isCounted(block)],
      ['own-order', block !== undefined && isInOwnOrder(text, block.documents)],
      ['changing-text-first', before],
      ['question-first', isQuestionBefore],
    ];
    for (const [notice, isTrue] of notices) if (isTrue) this.#counts.set(notice, (this.#counts.get(notice) ?? 0) + 1);
    this.#noticeIndent(text.slice(gap.start, gap.end));
    this.#noticeTrail(text.slice(gap.start, gap.end));
    const lines = linesOf(this, { text, gap }, hasher);
    this.#noticeSeparators(lines);
    this.history.learn(this.withoutSeparators(lines).map(({ hash }) => hash));
  }

  /** The lines without those that stand between the documents of most prompts: nothing is learned from them. */
  withoutSeparators(lines: readonly Stretch[]): readonly Stretch[] {
    return this.#separators.size === 0 ? lines : lines.filter(({ hash }) => !this.#separators.has(hash));
  }

  /** Whether lines stand between the documents of most prompts. */
  get hasSeparators(): boolean {
    return this.#separators.size > 0;
  }

  /** Whether each separator begins and ends the lines where it usually does. If not, a document may begin or end so. */
  hasUsualEdges(lines: readonly Stretch[]): boolean {
    return [...this.#separators].every((hash) => {
      const line = this.#repeated.get(hash);
      if (line === undefined) return false;
      const isUsual = (place: number, count: number) =>
        (lines.at(place)?.hash === hash) === count > MOST * line.prompts;
      return isUsual(0, line.first) && isUsual(-1, line.last);
    });
  }

  #noticeCounted(text: string, gap: Gap): DocumentBlock | undefined {
    const frame = countedFrame(text, gap);
    this.#frame ??= frame;
    if (frame === undefined || frame !== this.#frame) return undefined;
    this.#counted++;
    return countedBlock(text, gap, frame);
  }

  #noticeWhole(text: string, { documents }: DocumentBlock, hasher: StretchHasher): void {
    const last = documents.at(-1)!;
    if (this.#whole.has(contentHash(text, last, hasher))) this.#clean++;
    else {
      const lines = hasher.lines(text, last.contentStart, last.contentEnd).slice(0, MAX_COMPARED_LINES);
      const isKnown = ({ end }: Stretch) => this.#whole.has(hasher.hash(text.slice(last.contentStart, end)));
      this.#hasTextBehind ||= lines.slice(0, -1).some(isKnown);
    }
    for (const document of documents.slice(0, -1)) {
      this.#whole.add(contentHash(text, document, hasher));
      if (this.#whole.size > MAX_WHOLE) this.#whole.delete(this.#whole.values().next().value!);
    }
  }

  /**
   * White space in front of the first document belongs to the program where all prompts have the same, and no other
   * line begins so: the program's source is indented there.
   */
  #noticeIndent(gap: string): void {
    const [space] = SPACE_BEFORE.exec(gap)!;
    const indent = space.slice(space.lastIndexOf('\n') + 1);
    const isAlone = indent !== '' && !gap.slice(space.length).includes(`\n${indent}`);
    const known = this.prompts === 1 ? indent : this.indent;
    if (isAlone && indent === known) this.indent = indent;
    else if (this.indent !== '') {
      this.indent = '';
      this.history = new RecurrenceHistory(this.#historyBytes);
    }
  }

  /** The same behind the last document, where all prompts have the same blanks. */
  #noticeTrail(gap: string): void {
    const trail = /^[ \t]*/.exec(gap.slice(gap.trimEnd().length))![0];
    this.trail = this.prompts === 1 || trail === this.trail ? trail : '';
  }

  #noticeSeparators(lines: readonly Stretch[]): void {
    const counts = new Map<number, number>();
    for (const { hash } of lines) counts.set(hash, (counts.get(hash) ?? 0) + 1);
    for (const [hash, count] of counts) {
      if (count < 2 || this.#repeated.has(hash)) continue;
      this.#repeated.set(hash, { prompts: 0, twice: 0, first: 0, last: 0 });
      if (this.#repeated.size > MAX_REPEATED) this.#repeated.delete(this.#repeated.keys().next().value!);
    }
    for (const [hash, line] of this.#repeated) {
      line.prompts++;
      if ((counts.get(hash) ?? 0) >= 2) line.twice++;
      if (lines[0]?.hash === hash) line.first++;
      if (lines.at(-1)?.hash === hash) line.last++;
    }
    if (this.prompts < MIN_SEPARATED) return;
    const most = [...this.#repeated].filter(([, line]) => isSeparator(line, this.prompts)).map(([hash]) => hash);
    if (most.length === this.#separators.size && most.every((hash) => this.#separators.has(hash))) return;
    this.#separators = new Set(most);
    // With other separators, what was learned has other neighbours.
    this.history = new RecurrenceHistory(this.#historyBytes);
  }

  #isMost(notice: KindNotice): boolean {
    return (this.#counts.get(notice) ?? 0) > MOST * this.prompts;
  }

  describe(blockTokens: number): PromptKind {
    const { program, prompts } = this;
    const notices = [...this.#counts.keys()].filter((notice) => this.#isMost(notice));
    if (this.#pairs.isKept && !notices.includes('own-order')) notices.push('own-order');
    if (prompts >= MIN_PROMPTS && this.#withDocuments < MOST * prompts) notices.push('few-documents');
    if (prompts > 0 && this.#tokens / prompts < 2 * blockTokens) notices.push('too-short');
    if (program.role === 'tool') notices.push('tool-result');
    if (!this.#isNeutral) notices.push('program-text');
    return {
      id: program.id,
      role: program.role,
      parts: programParts(program),
      prompts,
      withDocuments: this.#withDocuments,
      notices,
      isSafe: this.isSafe,
    };
  }
}

/** A program's text and the places for what changes, in the order of the prompt. */
export function programParts({ segments, opens, closes, documents }: ProgramText): readonly KindPart[] {
  const parts: KindPart[] = [];
  for (let gap = 0; gap <= segments.length; gap++) {
    const isEmpty = (gap === 0 && opens) || (gap === segments.length && closes);
    if (!isEmpty) parts.push({ kind: gap === documents ? 'documents' : 'changing' });
    const text = segments[gap];
    if (text !== undefined) parts.push({ kind: 'text', text });
  }
  return parts;
}

/** The lines of the part that holds the documents. */
function linesOf(
  { indent }: LearnedKind,
  { text, gap }: { readonly text: string; readonly gap: Gap },
  hasher: StretchHasher,
): readonly Stretch[] {
  const [space] = SPACE_BEFORE.exec(text.slice(gap.start, gap.end))!;
  // Behind words in front of a colon, the first line begins with a blank that belongs to the program.
  const isOnLine = !space.includes('\n') && text[gap.start - 1] !== '\n';
  const isIndented = indent !== '' && space.endsWith(indent);
  return hasher.lines(text, isOnLine || isIndented ? gap.start + space.length : gap.start, gap.end);
}

const SPACE_BEFORE = /^\s*/;

/** What was found in a text; `listed`: all documents that a form or numbers show, those without a certain end too. */
interface FoundDocuments {
  readonly found: KindDocuments;
  readonly listed: DocumentBlock | undefined;
}

export function documentsOf(
  { kind, gaps }: MatchedText,
  given: PromptText,
  { index, hasher }: { readonly index: number; readonly hasher: StretchHasher },
): FoundDocuments {
  const { program } = kind;
  const { text } = given;
  const gap = gaps[program.documents]!;
  const foundIn = (block: DocumentBlock | undefined, stretches?: KindDocuments['stretches']): KindDocuments => {
    const placed = block === undefined ? undefined : { ...block, text: index };
    return { kind: program.id, isSafe: isSafe(kind, text, placed), block: placed, stretches };
  };
  const listed = withAll(formedBlock(given, gap, kind.separator), kind.countedBlock(text, gap));
  if (listed !== undefined) return { found: foundIn(kind.withCertainEnd(text, listed, hasher)), listed };
  if (given.kind === 'elements') return { found: foundIn(undefined), listed };
  const all = linesOf(kind, { text, gap }, hasher);
  const recurring = kind.hasUsualEdges(all)
    ? recurringBlock(kind.withoutSeparators(all), { text, index, kind })
    : undefined;
  return { found: foundIn(recurring?.block, recurring?.stretches), listed };
}

/** The documents that a form shows, with all that numbers show where both see the same ones. */
function withAll(formed: DocumentBlock | undefined, counted: DocumentBlock | undefined): DocumentBlock | undefined {
  if (formed === undefined || counted === undefined) return formed ?? counted;
  const isSame = formed.documents.every(({ start }, rank) => counted.documents[rank]?.start === start);
  return isSame ? { ...formed, documents: counted.documents, end: counted.end } : formed;
}

function contentHash(text: string, { contentStart, contentEnd }: DocumentSpan, hasher: StretchHasher): number {
  return hasher.hash(text.slice(contentStart, contentEnd));
}

/** Whether the documents of one prompt may move without a person's consent. */
function isSafe(kind: LearnedKind, text: string, block: DocumentBlock | undefined): boolean {
  return block !== undefined && kind.isSafe && !isInOwnOrder(text, block.documents);
}

/** Documents by their form that are most of a changing part, rather than a list within one of its documents. */
export function formedBlock(given: PromptText, gap: Gap, separator: string | undefined): DocumentBlock | undefined {
  const { text } = given;
  const found = recognise([given], { mode: 'form' });
  const block = found.find(
    ({ start, end }) =>
      start >= gap.start - MAX_FORM && end <= gap.end + MAX_FORM && end - start >= MIN_COVERED * (gap.end - gap.start),
  );
  if (block === undefined) return undefined;
  const documents = withOwnSpace(text, block.documents, separator);
  return { ...block, documents, end: documents.at(-1)!.end, fixed: undefined };
}

/** The documents that recurrence shows, without a first or last one whose edge is not certain. */
function recurringBlock(
  lines: readonly Stretch[],
  { text, index, kind }: { readonly text: string; readonly index: number; readonly kind: LearnedKind },
): { readonly block: DocumentBlock; readonly stretches: readonly (readonly number[])[] } | undefined {
  const { units, isStartCertain, isEndCertain } = kind.history.unitsOf(lines.map(({ hash }) => hash));
  const apart = withSameSeparator(text, lines, units);
  if (kind.hasSeparators && apart.length < units.length) return undefined;
  const movable = apart.slice(isStartCertain ? 0 : 1, isEndCertain ? undefined : -1);
  if (movable.length < 2) return undefined;
  const spans = movable.map(({ from, to }): DocumentSpan => {
    const [start, end] = [lines[from]!.start, lines[to - 1]!.end];
    return { start, end, contentStart: start, contentEnd: end, id: undefined, title: undefined, labels: [] };
  });
  const spaced = withOwnSpace(text, spans, kind.separator);
  const isLast = movable.at(-1)!.to === lines.length;
  const documents = isLast && kind.hasOwnTrail ? [...spaced.slice(0, -1), spans.at(-1)!] : spaced;
  const block: DocumentBlock = {
    text: index,
    format: 'recurrence',
    marked: false,
    start: documents[0]!.start,
    end: documents.at(-1)!.end,
    documents,
    fixed: undefined,
  };
  const stretches = movable.map(({ from, to }) => lines.slice(from, to).map(({ hash }) => hash));
  return { block, stretches };
}

type Range = { readonly from: number; readonly to: number };

/**
 * Units with the same text between all of them, because what stands between two documents stays in its place. Of what
 * stands there, the most frequent counts. White space in front of it belongs to the document before; units around
 * anything else stay together.
 */
function withSameSeparator(text: string, lines: readonly Stretch[], units: readonly Range[]): readonly Range[] {
  const separators = units.slice(1).map(({ from }) => text.slice(lines[from - 1]!.end, lines[from]!.start));
  const counts = new Map<string, number>();
  for (const separator of separators) counts.set(separator, (counts.get(separator) ?? 0) + 1);
  const [usual] = [...counts].sort((a, b) => b[1] - a[1]);
  const apart: { from: number; to: number }[] = [];
  for (const [rank, { from, to }] of units.entries()) {
    if (rank > 0 && spaceBefore(separators[rank - 1]!, usual![0]) === undefined) apart.at(-1)!.to = to;
    else apart.push({ from, to });
  }
  return apart;
}

/**
 * Documents with the white space that each of them ends in, so that the same text stands between all of them. Blanks at
 * the end of a line belong to it. Of line ends, `known` are the fewest that have stood between documents of the kind.
 */
function withOwnSpace(text: string, documents: readonly DocumentSpan[], known: string | undefined): DocumentSpan[] {
  const spans = documents.map((document, rank): DocumentSpan => {
    const between = text.slice(document.end, documents[rank + 1]?.start ?? document.end + MAX_FORM);
    const blanks = /^[ \t]*(?=\r?\n|$)/.exec(between)?.[0].length ?? 0;
    return blanks === 0 ? document : { ...document, end: document.end + blanks };
  });
  const usual = shortestSeparator(text, spans, known);
  return spans.map((document, rank) => {
    const next = spans[rank + 1];
    const space = next === undefined ? 0 : (spaceBefore(text.slice(document.end, next.start), usual) ?? 0);
    return space === 0 ? document : { ...document, end: document.end + space };
  });
}

/** The shortest text between two documents. */
function shortestSeparator(text: string, documents: readonly DocumentSpan[], known: string | undefined): string {
  const separators = documents.slice(1).map(({ start }, i) => text.slice(documents[i]!.end, start));
  if (known !== undefined) separators.push(known);
  return separators.reduce((one, other) => (other.length < one.length ? other : one));
}

/** Characters of white space in front of the usual separator; `undefined` for another one. */
function spaceBefore(separator: string, usual: string): number | undefined {
  if (!separator.endsWith(usual)) return undefined;
  const space = separator.length - usual.length;
  return separator.slice(0, space).trim() === '' ? space : undefined;
}
